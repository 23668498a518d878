"""Where fastpipe's time goes: clocks around its steps, put there from outside, in calls that serve nothing else.

What is clocked is one table, `HOOKS`. A step that is no longer where the table says is named below the figures, and its
time is in "the rest".
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.field import Bench, Entrant, Lane
from benchmarks.loaders import Loaded
from benchmarks.report import Table, spread

_REST = "the rest"


@dataclass(frozen=True, kw_only=True)
class Hook:
    """A function to put a clock around.

    Attributes:
        part: What its time is counted as; several functions may be one part.
        owner: A module of fastpipe; "module:Class"; or "pipe" with the attributes that lead to what has the method.
        name: Of the function.
    """

    part: str
    owner: str
    name: str


HOOKS = (
    Hook(part="tokenizing", owner="pipe.tokenizer", name="__call__"),
    Hook(part="planning", owner="fastpipe.batching.planner", name="split"),
    Hook(part="collating", owner="fastpipe.batching.collate", name="pad"),
    Hook(part="engine", owner="pipe._batching.runner", name="run"),
    # Not `pipe.postprocess` itself: fastpipe goes another way where somebody has replaced that.
    Hook(part="postprocessing", owner="fastpipe.pipelines.call:Call", name="_finish"),
    Hook(part="postprocessing", owner="fastpipe.pipelines.call:Call", name="_decode"),
)
PARTS = (*dict.fromkeys(hook.part for hook in HOOKS), _REST)


class Clock:
    """Adds up the seconds of each part, without those of other parts inside it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._thread = threading.local()

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the function with the clock around it."""

        def clocked(*args: Any, **kwargs: Any) -> Any:
            inside = self._thread.__dict__.setdefault("inside", [])
            inside.append(0.0)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - started
                self.seconds[part] += took - inside.pop()
                self.calls[part] += 1
                if inside:
                    inside[-1] += took

        return clocked


def measure(loaded: Loaded, texts: list[str], hooks: Sequence[Hook] = HOOKS) -> dict[str, Any]:
    """Run the texts once with a clock around every hook.

    Args:
        loaded: A fastpipe pipeline.
        texts: What it is called with.
        hooks: What to put a clock around.

    Returns:
        The seconds of the call and of each part, and what could not be clocked, with the reason.
    """
    clock = Clock()
    missing: list[str] = []
    with ExitStack() as stack:
        for hook in hooks:
            try:
                stack.enter_context(_hooked(loaded.pipe, hook, clock))
            except (AttributeError, ImportError, TypeError) as error:
                missing.append(f"{hook.part} ({hook.owner}.{hook.name}: {error})")
        if batching := getattr(loaded.pipe, "_batching", None):  # one batch after another, so that parts add up
            stack.callback(setattr, batching, "streams", batching.streams)
            batching.streams = 1
        started = time.perf_counter()
        loaded(texts)
        seconds = time.perf_counter() - started
    parts = dict.fromkeys(hook.part for hook in hooks)
    missing += [f"{part} (no call)" for part in parts if not clock.calls[part]]
    return {
        "seconds": [seconds],
        "parts": {**clock.seconds, _REST: seconds - sum(clock.seconds.values())},
        "calls": dict(clock.calls),
        "missing": missing,
    }


@contextmanager
def _hooked(pipe: Any, hook: Hook, clock: Clock) -> Iterator[None]:
    """Put a clock around a function, everywhere it is looked up."""
    places = _places(pipe, hook)
    original = getattr(places[0], hook.name)
    clocked = clock.around(hook.part, original)
    before = [(place, vars(place).get(hook.name)) for place in places]
    for place in places:
        setattr(place, hook.name, clocked)
    try:
        yield
    finally:
        for place, own in before:
            if own is None:  # it was the class's, or a base class's
                delattr(place, hook.name)
            else:
                setattr(place, hook.name, own)


def _places(pipe: Any, hook: Hook) -> list[Any]:
    """Give what has the function under its name: an object, a class, or every module of fastpipe that imported it."""
    module_name, _, class_name = hook.owner.partition(":")
    if class_name:
        return [getattr(importlib.import_module(module_name), class_name)]
    if not hook.owner.startswith("pipe"):
        function = getattr(importlib.import_module(module_name), hook.name)
        return [
            module
            for name, module in list(sys.modules.items())
            if name.startswith("fastpipe.") and vars(module).get(hook.name) is function
        ]
    owner = pipe
    for attribute in hook.owner.split(".")[1:]:
        owner = getattr(owner, attribute)
    # Python looks for methods such as `__call__` on the class alone.
    return [type(owner) if hook.name.startswith("__") else owner]


def run(bench: Bench, entrants: list[Entrant], texts: list[str]) -> list[Lane]:
    """Measure every fastpipe contender, once a round."""
    lanes = [
        Lane(
            name=f"{entrant.contender.name}, clocked",
            ask=lambda worker=entrant.worker: worker.ask("benchmarks.overhead:measure", texts=texts),  # type: ignore[misc]
            precision=entrant.contender.precision,
        )
        for entrant in entrants
        if entrant.contender.runner
    ]
    return bench.race(lanes)


def table(lanes: list[Lane], title: str) -> Table:
    """Make the table of shares."""
    made = Table(
        title=f"where fastpipe's time goes: {title}",
        columns=("contender", "seconds", *PARTS),
        notes=[
            "Median (min-max) over rounds of their own. Shares of the time of the call, in percent.",
            "Tokenizing: calls of the tokenizer. Collating: padding and stacking.",
            "The rest: making arrays of tokens, taking outputs apart, the clocks, and whatever else there is.",
            "Where steps run at the same time, each counts in full, and the rest is below what it is.",
        ],
    )
    for lane in lanes:
        shares = {
            part: [100 * sample["parts"].get(part, 0.0) / sum(sample["seconds"]) for sample in lane.samples]
            for part in PARTS
        }
        measured = {part for sample in lane.samples for part in sample["parts"]}
        made.rows.append(
            (
                lane.name,
                spread([sum(sample["seconds"]) for sample in lane.samples]),
                *(spread(shares[part], 1) if part in measured else "-" for part in PARTS),
            )
        )
        missing = dict.fromkeys(entry for sample in lane.samples for entry in sample["missing"])
        if missing:
            made.notes.append(f"{lane.name}, not clocked: {'; '.join(missing)}.")
    return made
