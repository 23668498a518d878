"""fastpipe beside plain transformers, on the user's own inputs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastpipe import tuning
from fastpipe.contest import figure
from fastpipe.errors import MissingBackendError, OptionError
from fastpipe.factory import pipeline
from fastpipe.hardware import detect_hardware
from fastpipe.pipelines import request as requests
from fastpipe.timing import in_turns

OURS = "fastpipe"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was timed, on one list of inputs.

    Attributes:
        task: transformers' name of the task.
        samples: How many inputs the list has.
        runs: What fastpipe ran: engine and precision.
        batch_size: Of transformers.
        rounds: Seconds of each round, by contender: "fastpipe", and transformers with one torch thread and with all.
    """

    task: str
    samples: int
    runs: str
    batch_size: int
    rounds: Mapping[str, tuple[float, ...]]

    @property
    def rates(self) -> dict[str, float]:
        """Inputs per second in the median round, by contender."""
        return {name: self.samples / statistics.median(took) for name, took in self.rounds.items()}

    @property
    def reference(self) -> str:
        """The faster one of transformers' settings."""
        return max((name for name in self.rounds if name != OURS), key=self.rates.__getitem__)

    @property
    def ratio(self) -> float:
        """fastpipe's rate over that of the reference."""
        return self.rates[OURS] / self.rates[self.reference]

    def to_dict(self) -> dict[str, Any]:
        """Give the record, with what follows from it, as plain values that JSON can hold."""
        return {**asdict(self), "rates": self.rates, "reference": self.reference, "ratio": self.ratio}

    @property
    def title(self) -> str:
        """What was measured, in a line."""
        rounds = len(self.rounds[OURS])
        inputs = f"{self.samples} input{'s' if self.samples > 1 else ''}"
        return f"{self.task}: {inputs}, median of {rounds} round{'s' if rounds > 1 else ''}"

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        return f"{OURS} ({self.runs}) runs at {self.ratio:.2f}x the rate of {self.reference}."

    def rows(self) -> list[tuple[str, ...]]:
        """Give the table as texts, its head first; the row of fastpipe begins with a star."""
        base = self.rates[self.reference]
        found: list[tuple[str, ...]] = [("  contender", "samples/s", "slowest", "fastest", "x transformers")]
        for name, took in self.rounds.items():
            shown = f"* {name}, {self.runs}" if name == OURS else f"  {name}, batches of {self.batch_size}"
            figures = (self.rates[name], self.samples / max(took), self.samples / min(took))
            found.append((shown, *map(figure, figures), f"{self.rates[name] / base:.2f}"))
        return found

    def plot(self, path: Path) -> None:
        """Draw the rates as bars, into a file.

        Raises:
            MissingBackendError: matplotlib is not installed.
            OptionError: It writes no such kind of file.
            OSError: The file cannot be written.
        """
        drawing = check_plot(path)
        axes = drawing.subplots()
        names, rates = list(self.rates), list(self.rates.values())
        bars = axes.barh(names[::-1], rates[::-1])
        axes.bar_label(bars, [figure(rate) for rate in rates[::-1]], padding=3)
        axes.margins(x=0.15)
        axes.set_xlabel("samples/s")
        axes.set_title(f"{self.title}: {self.ratio:.2f}x")
        drawing.savefig(path)


def check_plot(path: Path) -> Any:
    """Give an empty matplotlib `Figure` that can be saved as the file.

    Raises:
        MissingBackendError: matplotlib is not installed.
        OptionError: It writes no such kind of file, or there is no such folder.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingBackendError(
            "drawing needs matplotlib, which is not installed", remedy="pip install matplotlib, or leave --plot out."
        ) from error
    drawing = Figure(figsize=(8, 3), layout="constrained")
    kinds = drawing.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise OptionError(f"matplotlib writes no file such as {path.name}", remedy="Name it .png, .svg or .pdf.")
    if not path.expanduser().absolute().parent.is_dir():
        raise OptionError(f"{path.parent} is not a folder", remedy="Make it, or name another.")
    return drawing


def compare(
    arguments: Mapping[str, Any],
    items: Sequence[Any],
    *,
    batch_size: int = 1,
    rounds: int = 3,
    parameters: Mapping[str, Any] | None = None,
    **options: Any,
) -> Comparison:
    """Time lists of inputs in fastpipe and in plain transformers on the CPU, in turns.

    Transformers runs with one torch thread and with all usable cores, as which of them is faster differs.

    Args:
        arguments: Of both pipelines: "task", "model", "revision".
        items: Inputs; at least one.
        batch_size: Of transformers' calls.
        rounds: That count; one that does not comes before them.
        parameters: Arguments of all calls.
        options: Of `fastpipe.pipeline` alone, such as `backend`.

    Raises:
        OptionError, MissingBackendError, KeyError, OSError, RuntimeError: As `fastpipe.pipeline`.
        InputError: An input cannot be processed.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    ours = pipeline(**given, device="cpu", **options)
    plain = requests.resolve({**given, "device": "cpu"}).transformers_pipeline()
    said = {**tuning.defaults(ours.task), **(parameters or {})}
    run = partial(tuning.call, parameters=said)
    calls: dict[str, Callable[[Sequence[Any]], object]] = {OURS: partial(run, ours)}
    theirs = partial(tuning.call, plain, parameters={**said, "batch_size": batch_size})
    for threads in sorted({1, detect_hardware().cores}):
        name = f"transformers, {threads} thread{'s' if threads > 1 else ''}"
        calls[name] = partial(_with_threads, threads, theirs)
    return Comparison(
        task=ours.task,
        samples=len(items),
        runs=f"{ours.plan.backend} {ours.plan.precision}",
        batch_size=batch_size,
        rounds=in_turns(calls, items, rounds=rounds),
    )


def _with_threads(threads: int, call: Callable[[Sequence[Any]], object], items: Sequence[Any]) -> None:
    with _torch_threads(threads):
        call(items)


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
