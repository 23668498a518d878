"""Progress bars: shown when asked for, and only then."""

from __future__ import annotations

import logging

import pytest

from fastpipe import progress
from fastpipe.errors import OptionError


@pytest.mark.parametrize(
    ("asked", "said", "shown"),
    [(None, "", None), (None, "1", True), (None, "off", False), (False, "1", False), (True, "0", True)],
)
def test_what_is_asked_for_wins_over_the_environment(monkeypatch, asked, said, shown):
    monkeypatch.setenv(progress.VARIABLE, said)
    assert progress.wanted(asked) is shown


def test_an_environment_that_says_neither_is_an_error(monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, "perhaps")
    with pytest.raises(OptionError, match="perhaps"):
        progress.wanted(None)


def test_a_bar_counts_up_to_its_total(capsys):
    with progress.bar(3, True) as bar:
        bar.update(3)
    assert "3/3" in capsys.readouterr().err
    with progress.bar(3, None) as bar:
        bar.update(3)
    assert capsys.readouterr().err == ""


def test_a_build_names_its_steps_where_it_was_asked_to(capsys):
    steps = progress.Steps("a model", True)
    with steps.step("exporting"), steps.step("checking"):
        pass
    steps.close()
    said = capsys.readouterr().err
    assert "a model: exporting" in said
    assert "a model: checking" in said


def test_a_build_is_silent_where_there_is_no_terminal(capsys):
    steps = progress.Steps("a model", None)
    with steps.step("exporting"):
        pass
    steps.close()
    assert capsys.readouterr().err == ""


def test_steps_are_logged_with_their_end(caplog):
    caplog.set_level(logging.DEBUG, "fastpipe")
    steps = progress.Steps("a model", False)
    with steps.step("exporting"):
        pass
    with pytest.raises(ValueError), steps.step("checking"):
        raise ValueError
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said[0] == ("DEBUG", "a model: exporting: begins")
    assert said[1][0] == "INFO"
    assert said[1][1].startswith("a model: exporting: done in ")
    assert said[3][1].startswith("a model: checking: failed in ")
