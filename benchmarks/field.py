"""A run: the contenders in their processes, the probe for each one's best setting, and the interleaved rounds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.contenders import Contender, UnavailableError
from benchmarks.worker import Worker, WorkerError
from fastpipe.hardware import Hardware

# A setting is given up in the probe once it has taken this many times as long as the best one's whole probe.
_GIVE_UP = 1.5


@dataclass(kw_only=True)
class Entrant:
    """A contender that is loaded in its process."""

    contender: Contender
    worker: Worker
    detail: str


@dataclass(kw_only=True)
class Lane:
    """One row of a table: a measurement that is taken once a round.

    Attributes:
        name: The row's name.
        ask: Takes the measurement.
        precision: Of the contender; empty for a ceiling.
        setting: What the probe chose.
        probed: Seconds by setting, for all that were probed.
        samples: One measurement a round.
    """

    name: str
    ask: Callable[[], dict[str, Any]]
    precision: str = ""
    setting: dict[str, int] = field(default_factory=dict)
    probed: dict[str, float] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Give the lane as plain values."""
        return {
            "name": self.name,
            "precision": self.precision,
            "setting": self.setting,
            "probed_s": self.probed,
            "samples": self.samples,
        }


@dataclass(kw_only=True)
class Bench:
    """One run of the benchmarks.

    Attributes:
        workspace: Folder for models, fastpipe's cache and logs.
        contenders: Who takes part.
        hardware: What this machine has.
        rounds: How often each measurement is taken.
        size: Share of the scenarios' full amount of work.
        failures: Reason by name, for contenders that could not be loaded or run.
        left_out: Reason by name, for those that do not take part.
    """

    workspace: Path
    contenders: Sequence[Contender]
    hardware: Hardware
    rounds: int = 3
    size: float = 1.0
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    _loaded: dict[tuple[str, str], Entrant] = field(default_factory=dict)
    _given_up: set[tuple[str, str]] = field(default_factory=set)  # model and contender, for those that do not load

    def scaled(self, amount: int, least: int = 1) -> int:
        """Scale an amount of work to the size of this run."""
        return max(least, round(amount * self.size))

    def entrants(self, model: str, *, runners: bool = False) -> list[Entrant]:
        """Load all contenders for a model's task with it, each in its process.

        Those that an earlier scenario loaded with the same model are given as they are.

        Args:
            model: One of `data.MODELS`.
            runners: Leave out those without fastpipe's runner.
        """
        if any(name != model for name, _ in self._loaded):
            self.close()  # the memory is not enough for every model in every process
        task = data.MODELS[model].task
        for contender in self.contenders:
            tried = (model, contender.name) in {*self._loaded, *self._given_up} or (runners and not contender.runner)
            if not tried and (not contender.tasks or task in contender.tasks):
                say(f"loading {contender.name}, {model}")
                self._load(contender, model)
        return [entrant for entrant in self._loaded.values() if entrant.contender.runner or not runners]

    def start(self, name: str, load: str, **arguments: Any) -> tuple[Worker, dict[str, Any]]:
        """Start a worker and let it load something."""
        worker = Worker(name, self.workspace)
        try:
            return worker, worker.ask(load, workspace=str(self.workspace), **arguments)
        except BaseException:
            worker.close()
            raise

    def _load(self, contender: Contender, model: str) -> None:
        try:
            worker, facts = self.start(contender.name, contender.load, model=model, **contender.options)
        except UnavailableError as error:
            self.left_out[f"{contender.name}, {model}"] = str(error)
            self._given_up.add((model, contender.name))
            return
        except WorkerError as error:
            self.failures[contender.name] = str(error)
            self._given_up.add((model, contender.name))
            return
        self._loaded[model, contender.name] = Entrant(contender=contender, worker=worker, detail=facts["detail"])

    def lane(
        self,
        entrant: Entrant,
        job: str,
        texts: list[str],
        *,
        settings: Sequence[dict[str, int]],
        parts: Sequence[list[str]],
        name: str = "",
        **arguments: Any,
    ) -> Lane | None:
        """Find a contender's best setting, and make the lane that runs it.

        Args:
            entrant: The contender.
            job: "module:function" that takes the measurement, with texts and a setting.
            texts: What is measured.
            settings: To choose from.
            parts: The sample to choose on.
            name: Of the row, where it is not the contender's.
            arguments: More arguments for the job.

        Returns:
            The lane; `None` when the contender failed, with the reason among the failures.
        """
        worker, name = entrant.worker, name or entrant.contender.name

        def measure(setting: dict[str, int], part: list[str]) -> float:
            return float(sum(worker.ask(job, texts=part, setting=setting)["seconds"]))

        try:
            setting, probed = probe(measure, settings, parts)
        except WorkerError as error:
            self.failures[name] = str(error)
            return None
        say(f"probed {name}: {shown(setting)}" if probed else f"warmed {name}")
        return Lane(
            name=name,
            ask=lambda: worker.ask(job, texts=texts, setting=setting, **arguments),
            precision=entrant.contender.precision,
            setting=setting,
            probed=probed,
        )

    def race(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Take every lane's measurement once a round, the lanes in turn.

        Returns:
            The lanes that took every measurement; the reason why one did not is among the failures.
        """
        running = list(lanes)
        for round_number in range(1, self.rounds + 1):
            for lane in list(running):
                started = time.perf_counter()
                try:
                    lane.samples.append(lane.ask())
                except WorkerError as error:
                    self.failures[lane.name] = str(error)
                    running.remove(lane)
                say(f"round {round_number} of {self.rounds}: {lane.name}, {time.perf_counter() - started:.2f} s")
        return running

    def close(self) -> None:
        """End all processes."""
        for entrant in self._loaded.values():
            entrant.worker.close()
        self._loaded.clear()


def probe(
    measure: Callable[[dict[str, int], list[str]], float],
    settings: Sequence[dict[str, int]],
    parts: Sequence[list[str]],
) -> tuple[dict[str, int], dict[str, float]]:
    """Find the best setting on a sample; what turns out slower is not run to its end.

    Args:
        measure: Gives the seconds for some texts with a setting.
        settings: To choose from; one alone is only warmed up.
        parts: The sample in parts, after each of which a setting can be given up.

    Returns:
        The best setting, and seconds by setting, where "> " marks one that was given up after so many.
    """
    if len(settings) == 1:
        measure(settings[0], parts[0])  # a warm-up only
        return settings[0], {}
    best, chosen = float("inf"), settings[0]
    probed: dict[str, float] = {}
    for setting in settings:
        measure(setting, parts[0][:2])  # the first call of a setting allocates and compiles
        seconds = 0.0
        for done, part in enumerate(parts, 1):
            seconds += measure(setting, part)
            if seconds > _GIVE_UP * best and done < len(parts):
                break
        else:
            if seconds < best:
                best, chosen = seconds, setting
        name = shown(setting)
        probed[name if done == len(parts) else f"> {name}"] = round(seconds, 4)
    return chosen, probed


def shown(setting: dict[str, int]) -> str:
    """Give a setting as text."""
    return ", ".join(f"{name.replace('_size', '')} {value}" for name, value in setting.items())


def say(text: str) -> None:
    """Tell the user how far the run is."""
    print(f"  {text}", file=sys.stderr, flush=True)
