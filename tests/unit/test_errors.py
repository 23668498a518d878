"""Errors and warnings: what they are, what they say, and that they survive a trip to another process."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from fastpipe import errors
from fastpipe.errors import FastpipeError, FastpipeWarning, InputError

ERRORS = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, FastpipeError)]
WARNINGS = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, FastpipeWarning)]
WITH_INDEX = [kind for kind in ERRORS if issubclass(kind, InputError)]


@pytest.mark.parametrize(
    ("name", "bases"),
    [
        ("OptionError", (TypeError, ValueError)),
        ("DeviceError", (RuntimeError, ValueError)),
        ("MissingBackendError", (ImportError,)),
        ("InputError", (ValueError, TypeError)),
        ("InputTooLongError", (ValueError, RuntimeError)),
        ("ExportError", (RuntimeError,)),
        ("ArtifactError", (OSError,)),
        ("UnsafeFileError", (ValueError,)),
        ("UnsupportedOnEngineError", (AttributeError,)),
    ],
)
def test_code_that_caught_the_builtin_still_catches(name, bases):
    kind = getattr(errors, name)
    for base in (*bases, FastpipeError):
        with pytest.raises(base, match="the fact"):
            raise kind("the fact")


def test_the_module_draws_every_class_it_has():
    for kind in (*ERRORS, *WARNINGS):
        assert kind.__name__ in errors.__doc__


@pytest.mark.parametrize("kind", ERRORS)
def test_the_message_has_fact_and_remedy(kind):
    error = kind("the fact", remedy="Do this.")
    assert str(error) == "the fact. Do this."
    assert error.remedy == "Do this."
    assert "the fact" in error.fact
    assert str(kind("the fact.", remedy="Do this.")) == "the fact. Do this."
    assert str(kind("the fact")) == "the fact"


@pytest.mark.parametrize("kind", WITH_INDEX)
def test_the_message_names_the_item(kind):
    error = kind("the fact", index=0, remedy="Do this.")
    assert str(error) == "item 0: the fact. Do this."
    assert error.index == 0
    assert kind("the fact").index is None
    assert "item" not in str(kind("the fact"))


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_survives_a_copy(kind, again):
    error = kind("the fact", remedy="Do this.", **({"index": 7} if kind in WITH_INDEX else {}))
    twin = again(error)
    assert type(twin) is kind
    assert str(twin) == str(error)
    assert twin.args == error.args
    assert (twin.fact, twin.remedy) == (error.fact, error.remedy)
    assert getattr(twin, "index", None) == getattr(error, "index", None)


def test_one_filter_reaches_every_warning():
    assert {kind.__name__ for kind in WARNINGS} == {"FastpipeWarning", "FallbackWarning", "CacheWarning"}
    assert all(issubclass(kind, UserWarning) for kind in WARNINGS)
