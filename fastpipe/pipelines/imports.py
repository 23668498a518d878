"""Imports of transformers, less what an engine never needs of them."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

# Modules of transformers, and what they take from libraries for assisted decoding, training and scores: functions that
# they call and do not look at. Whoever installs OpenVINO's tools has scikit-learn and SciPy, wanted or not, and each
# start would wait for them. transformers 5 has itself put off the first two. `torch._dynamo`, which takes as long, is
# not put off: what is taken from it is for models that are compiled, and there it would show.
_SELDOM: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "transformers.generation.candidate_generator": {"sklearn.metrics": ("roc_curve",)},
    "transformers.data.metrics": {
        "sklearn.metrics": ("f1_score", "matthews_corrcoef"),
        "scipy.stats": ("pearsonr", "spearmanr"),
    },
    "transformers.loss.loss_utils": {"scipy.optimize": ("linear_sum_assignment",)},
}


def put_off() -> None:
    """Import what takes from other libraries what is seldom called; its first call imports them.

    Nothing is put off that this process has imported already.
    """
    for name, libraries in _SELDOM.items():
        if name in sys.modules:
            continue
        with contextlib.ExitStack() as stack, contextlib.suppress(ImportError):  # there is none in this version
            for library, functions in libraries.items():
                stack.enter_context(_put_off(library, functions))
            importlib.import_module(name)


@contextlib.contextmanager
def _put_off(name: str, functions: tuple[str, ...]) -> Iterator[None]:
    """Let functions that are imported from a module meanwhile import it when they are called."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = _Later(name, functions)
    try:
        yield
    finally:
        _real(name)


def _real(name: str) -> None:
    """Take a stand-in away; another thread may have done it."""
    if isinstance(sys.modules.get(name), _Later):
        del sys.modules[name]


class _Later(ModuleType):
    """Stands in for a module: with it some functions, which bring it, and anything else at once."""

    def __init__(self, name: str, functions: tuple[str, ...]) -> None:
        super().__init__(name)
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system asks of modules
            raise AttributeError(name)

        def found() -> Any:
            _real(self.__name__)
            return getattr(importlib.import_module(self.__name__), name)

        if name not in self._functions:
            return found()

        def call(*args: Any, **kwargs: Any) -> Any:
            return found()(*args, **kwargs)

        return call
