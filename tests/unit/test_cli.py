"""What commands print of data that is given, and the records behind them. Real runs are in integration/test_cli.py."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fastpipe import comparison, diagnosis, factory, tuning, verification
from fastpipe.backends import generators
from fastpipe.cli import app
from fastpipe.cli.shown import parameters_of
from fastpipe.comparison import Comparison
from fastpipe.contest import Contender, Tuning
from fastpipe.errors import MissingBackendError, OptionError
from fastpipe.timing import in_turns
from fastpipe.verification import Disagreement, Verification

FOUND = Comparison(
    task="text-classification",
    samples=100,
    runs="openvino int8",
    batch_size=1,
    rounds={
        "fastpipe": (0.5, 0.4, 9.0),
        "transformers, 1 thread": (2.0, 4.0, 2.5),
        "transformers, 2 threads": (1.0, 2.0, 1.5),
    },
)
VERIFIED = Verification(
    task="text-classification", candidate="int8", samples=2, agreement=0.5, worst=0.0, drift=0.25, speedup=2.0,
    metric="", scores={},
    disagreements=(
        Disagreement(index=1, sample="a mill", reference="good", candidate="bad", agreement=0.0, drift=0.25),
    ),
)  # fmt: skip
WINNER = Contender(backend="openvino", precision="int8", passed=True, rate=12.0, reason="the fastest of 2")
TUNED = Tuning(task="text-classification", samples=2, chosen=WINNER, contenders=(WINNER,), took_s=1.0, pipe=None)


def run(*arguments: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("a mill\na river\n")
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every command finds what is above, and says here what it was asked."""
    seen: dict[str, Any] = {}

    class Pipe:
        task = "text-classification"

    def make(*args: Any, **options: Any) -> Any:
        seen["pipeline"] = (args, options)
        return Pipe()

    def compare(arguments: Any, items: Any, **options: Any) -> Comparison:
        seen["compare"] = (arguments, list(items), options)
        return FOUND

    def verify(pipe: Any, samples: Any, **parameters: Any) -> Verification:
        seen["verify"] = (list(samples), parameters)
        return VERIFIED

    monkeypatch.setattr(factory, "pipeline", make)
    monkeypatch.setattr(comparison, "compare", compare)
    monkeypatch.setattr(verification, "verify", verify)
    monkeypatch.setattr(tuning, "tune", lambda pipe, samples, *, seconds: TUNED)
    return seen


@pytest.mark.parametrize(
    ("arguments", "key", "wanted"),
    [
        (("verify", "m", "--data"), "agreement", 0.5),
        (("bench", "m", "--data"), "ratio", 3.0),
        (("tune", "m"), "samples", 2),
    ],
)
def test_json_is_one_object_and_nothing_else(
    asked: Any, texts: Path, arguments: tuple[str, ...], key: str, wanted: float
) -> None:
    assert json.loads(run(*arguments, texts, "--json").stdout)[key] == wanted


def test_bench_shows_both_settings_of_transformers(asked: Any, texts: Path) -> None:
    shown = run(
        "bench", "m", "--data", texts, "--batch-size", 8, "--backend", "openvino", "--parameters", '{"top_k": 2}'
    )
    assert "* fastpipe, openvino int8" in shown.stdout
    assert "transformers, 1 thread" in shown.stdout
    assert "3.00x the rate of transformers, 2 threads" in shown.stdout
    arguments, items, options = asked["compare"]
    assert (arguments["model"], items) == ("m", ["a mill", "a river"])
    assert options == {"backend": "openvino", "batch_size": 8, "parameters": {"top_k": 2}}


def test_verify_shows_what_differs(asked: Any, texts: Path) -> None:
    shown = run("verify", "m", "--data", texts, "--precision", "int8", "--parameters", '{"top_k": 2}')
    assert "agreement 0.5000" in shown.stdout
    assert "good -> bad" in shown.stdout
    assert asked["pipeline"][1]["precision"] == "int8"
    samples, parameters = asked["verify"]
    assert samples == ["a mill", "a river"]
    assert parameters["top_k"] == 2


def test_errors_come_before_anything_is_loaded(asked: Any, texts: Path, tmp_path: Path) -> None:
    for command in ("verify", "bench"):
        done = run(command, "m", "--data", tmp_path / "none.txt", code=1)
        assert done.stderr.startswith("error: ")
        assert "is not a file" in done.stderr
        assert "is no JSON object" in run(command, "m", "--data", texts, "--parameters", "[1]", code=1).stderr
        assert run(command, "m", code=2).stdout == ""
    run("bench", "m", "--data", texts, "--batch-size", 0, code=2)
    assert not asked


def test_a_plot_that_cannot_be_written_is_refused_at_once(asked: Any, texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "writes no file such as" in run("bench", "m", "--data", texts, "--plot", "rates.doc", code=1).stderr
    assert "is not a folder" in run("bench", "m", "--data", texts, "--plot", tmp_path / "no" / "a.png", code=1).stderr
    assert not asked


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, asked: Any, texts: Path) -> None:
    imports = builtins.__import__

    def fails(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imports(name, *rest)

    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", fails)
    with pytest.raises(MissingBackendError, match="pip install matplotlib"):
        comparison.check_plot(Path("rates.png"))
    assert "pip install matplotlib" in run("bench", "m", "--data", texts, "--plot", "rates.png", code=1).stderr


def test_the_rates_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    FOUND.plot(tmp_path / "rates.svg")
    assert "<svg" in (tmp_path / "rates.svg").read_text("utf-8")


def test_medians_and_the_better_setting_count() -> None:
    assert FOUND.rates == pytest.approx(
        {"fastpipe": 200.0, "transformers, 1 thread": 40.0, "transformers, 2 threads": 66.6667}, rel=1e-4
    )
    assert FOUND.reference == "transformers, 2 threads"
    assert FOUND.ratio == pytest.approx(3.0)
    assert [row[-1] for row in FOUND.rows()[1:]] == ["3.00", "0.60", "1.00"]
    json.dumps(FOUND.to_dict())


def test_turns_alternate_and_the_first_round_does_not_count() -> None:
    now, order = 0.0, []

    def call(name: str) -> Any:
        def run(items: Sequence[Any]) -> None:
            nonlocal now
            order.append(name)
            now += len(order) * len(items)

        return run

    calls = {name: call(name) for name in "ab"}
    took = in_turns(calls, [1, 2], rounds=2, clock=lambda: now, rest=lambda seconds: None)
    assert "".join(order) == "ababab"
    assert took == {"a": (6.0, 10.0), "b": (8.0, 12.0)}


def test_the_number_of_torch_threads_is_put_back() -> None:
    before, seen = torch.get_num_threads(), []
    with pytest.raises(ZeroDivisionError):
        comparison._with_threads(before + 1, lambda items: seen.append(torch.get_num_threads()) or 1 / 0, [])  # type: ignore[func-returns-value]
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("said", ["{", "[]", '"top_k"', "3"])
def test_parameters_are_an_object(said: str) -> None:
    assert parameters_of(None) == {}
    assert parameters_of('{"top_k": null}') == {"top_k": None}
    with pytest.raises(OptionError, match="no JSON object"):
        parameters_of(said)


def test_the_doctor_knows_what_generates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path))
    monkeypatch.setattr(generators, "load", lambda name: None)
    chosen = json.loads(run("doctor", "--json").stdout)["chosen"]
    assert not chosen["text-classification"].startswith("torch")
    assert chosen["text-generation"].startswith("torch"), "nothing brings it to an engine"
    assert "text-generation" in run("doctor").stdout
    assert set(diagnosis.diagnose().chosen) == set(chosen)
