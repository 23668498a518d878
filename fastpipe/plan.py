"""The decision: which engine, precision, device, threads and streams, with a reason for each. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastpipe.errors import DeviceError, MissingBackendError, OptionError
from fastpipe.hardware import Hardware
from fastpipe.tasks import Task

# Precisions for which torch is what the user means, where no engine has them.
TORCH_PRECISIONS = ("fp16", "float64", "double")
DTYPE_PRECISIONS = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What planning needs to know of a backend.

    Attributes:
        name: Its name in the registry.
        version: Of the library that is installed; empty when it is not.
        remedy: How to install it.
        precisions: Those it runs on this hardware.
    """

    name: str
    version: str
    remedy: str
    precisions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One thing that was decided, and why."""

    what: str
    value: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What runs, why, and what was rejected.

    Attributes:
        task: transformers' name of the task.
        backend: Name of the engine.
        precision: What the engine computes in.
        device: torch's name of the device.
        threads: CPU threads of one inference; 0 leaves them as they are.
        streams: Batches of a list that run side by side.
        choices: Each of the above with its reason.
        rejected: What could have run and why it does not.
        warning: What the user must hear; empty when nothing was taken away from them.
    """

    task: str
    backend: str
    precision: str
    device: str
    threads: int
    streams: int
    choices: tuple[Choice, ...]
    rejected: tuple[Choice, ...]
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain values that JSON can hold."""
        return asdict(self)

    def _rows(self) -> list[tuple[str, str, str]]:
        chosen = [(c.what, c.value, c.reason) for c in self.choices]
        return chosen + [(f"not {c.what}", c.value, c.reason) for c in self.rejected]

    def __str__(self) -> str:
        rows = self._rows()
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [f"  {what:<{wide[0]}}  {value:<{wide[1]}}  {reason}".rstrip() for what, value, reason in rows]
        return "\n".join([f"Plan for {self.task}", *lines])

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._rows()
        )
        return f"<table><caption>Plan for {html.escape(self.task)}</caption>{cells}</table>"


def precision_of(dtype: Any) -> str | None:
    """Translate `dtype=` into a precision.

    Args:
        dtype: A `torch.dtype`, its name, "auto" or `None`.

    Returns:
        A precision; the dtype's own name where only torch has it; `None` where the user did not say.

    Raises:
        OptionError: There is no such dtype.
    """
    name = str(dtype).removeprefix("torch.")
    if dtype is None or name == "auto":
        return None
    if name in DTYPE_PRECISIONS:
        return DTYPE_PRECISIONS[name]
    if name in ("float64", "double"):
        return name
    raise OptionError(
        f"dtype={dtype!r} is not a dtype a model can run in", remedy=f"Use one of {', '.join(DTYPE_PRECISIONS)}."
    )


def place(device: Any, hardware: Hardware) -> tuple[str, str]:
    """Translate `device=` into torch's name of a device.

    Args:
        device: `None`, a number (-1 is the CPU), a name, or a `torch.device`.
        hardware: What this machine has.

    Returns:
        The name, and a warning that is empty when the user gets what they asked for.

    Raises:
        DeviceError: The device does not exist here.
    """
    kinds = {gpu.kind: [g.index for g in hardware.gpus if g.kind == gpu.kind] for gpu in hardware.gpus}
    here = ["cpu", *(f"{kind}:{index}" for kind, indices in kinds.items() for index in indices)]
    accelerator = next(iter(kinds), None)
    if device is None:
        return (f"{accelerator}:0" if accelerator else "cpu"), ""
    if isinstance(device, int):
        if device < 0:
            return "cpu", ""
        if accelerator is None:
            return "cpu", f"device={device} asks for a GPU and torch finds none: running on the CPU"
        name = f"{accelerator}:{device}"
    else:
        name = str(device)
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return "cpu", ""
    if kind not in kinds or (index and int(index) not in kinds[kind] if index.isdigit() or not index else True):
        raise DeviceError(
            f"device={device!r} is not in this machine",
            remedy=f"Valid names are cpu, cuda, cuda:N, mps, xpu and -1 (the CPU); here there is {', '.join(here)}.",
        )
    return (name if index else f"{kind}:0"), ""


def as_run(plan: Plan, dtype: Any) -> Plan:
    """Correct a plan for torch by the dtype that transformers chose where the user left it open."""
    name = str(dtype).removeprefix("torch.")
    runs = DTYPE_PRECISIONS.get(name, name)
    if plan.backend != "torch" or plan.precision == runs:
        return plan
    return decided(plan, runs, "what the weights are stored in")


def decided(plan: Plan, precision: str, reason: str, streams: int = 1) -> Plan:
    """Put what was chosen by measuring into a plan: the precision, and the streams for lists."""
    found = {"precision": Choice(what="precision", value=precision, reason=reason)}
    if streams > 1:
        measured = "measured: lists are faster in batches side by side; a single text has all threads"
        found["streams"] = Choice(what="streams", value=str(streams), reason=measured)
    choices = tuple(found.get(choice.what, choice) for choice in plan.choices)
    return replace(plan, precision=precision, streams=streams, choices=choices)


def as_tuned(plan: Plan, reason: str, others: Mapping[str, str]) -> Plan:
    """Say in a plan that its engine was chosen by tuning.

    Args:
        plan: The plan.
        reason: Why this engine.
        others: Why not, by engine.
    """
    choices = tuple(replace(c, reason=reason) if c.what == "backend" else c for c in plan.choices)
    kept = [choice for choice in plan.rejected if choice.value not in (plan.backend, *others)]
    beaten = [Choice(what="backend", value=name, reason=why) for name, why in others.items() if name != plan.backend]
    return replace(plan, choices=choices, rejected=(*kept, *beaten))


def choose(
    task_name: str,
    *,
    task: Task | None,
    obstacle: str,
    hardware: Hardware,
    engines: Sequence[Engine],
    backend: str = "auto",
    precision: str | None = None,
    device: str = "cpu",
    failed: Mapping[str, str] | None = None,
    first: str = "",
    threads: int | None = None,
) -> Plan:
    """Choose what runs.

    Args:
        task_name: transformers' name of the task.
        task: What fastpipe knows of it; `None` where it knows nothing.
        obstacle: Why no engine but torch can take this model; empty when there is no such reason.
        hardware: What this machine has.
        engines: The backends, fastest first, torch last.
        backend: The one the user named, or "auto".
        precision: The one the user named, or `None`.
        device: torch's name of the device.
        failed: Reason by backend, for those that tried this model and could not take it.
        first: The backend to prefer to the order of `engines`, where it was measured on this model; empty without.
        threads: CPU threads for an engine, where the user said how many.

    Raises:
        OptionError: There is no such backend, or the one named does not run the precision named.
        MissingBackendError: The backend named is not installed.
    """
    by_name = {engine.name: engine for engine in engines}
    if backend != "auto":
        if backend not in by_name:
            raise OptionError(f"backend={backend!r} does not exist", remedy=f"Use one of auto, {', '.join(by_name)}.")
        if not by_name[backend].version:
            raise MissingBackendError(f"{backend} is not installed", remedy=by_name[backend].remedy)
    wanted = precision or "auto"

    if backend != "auto" and wanted not in ("auto", *by_name[backend].precisions):
        able = ", ".join(engine.name for engine in engines if wanted in engine.precisions)
        raise OptionError(f"{backend} does not run {wanted} here", remedy=f"These do: {able or 'none'}.")

    no_engine_path = obstacle if task else f"{task_name} has no engine path yet"
    rejected: list[Choice] = []
    for engine in sorted(engines, key=lambda engine: engine.name != first):
        reason = _why_not(engine, wanted, backend, device, no_engine_path, failed or {})
        if not reason:
            break
        rejected.append(Choice(what="backend", value=engine.name, reason=reason))
    chosen, warning = engine, ""
    if len(rejected) == len(engines):  # int8 for a model that no engine takes: torch still answers
        if not (no_engine_path or failed):
            raise OptionError(
                f"precision={wanted!r} cannot run here ({'; '.join(f'{r.value}: {r.reason}' for r in rejected)})",
                remedy="Install one of these engines, or use another precision.",
            )
        wanted = "auto"
    kept = wanted == (precision or "auto")
    on_gpu = backend == "auto" and not device.startswith("cpu")
    on_purpose = "torch" in (backend, first) or on_gpu or wanted in TORCH_PRECISIONS
    if chosen.name == "torch" and not (on_purpose and kept):
        why = dict.fromkeys(r.reason for r in rejected if backend in ("auto", r.value) and r.value != "torch")
        warning = f"{task_name} runs on torch: {'; '.join(why)}"
    return _plan(task_name, chosen, wanted, precision, backend, device, hardware, rejected, warning, threads)


def _why_not(engine: Engine, wanted: str, backend: str, device: str, obstacle: str, failed: Mapping[str, str]) -> str:
    """Say why an engine cannot run, or nothing when it can."""
    is_torch = engine.name == "torch"
    reasons = (
        (backend not in ("auto", engine.name) and not is_torch, f"backend={backend!r} was asked for"),
        (not engine.version, f"not installed: {engine.remedy}"),
        (not device.startswith("cpu") and not is_torch, f"it runs on the CPU here, and the device is {device}"),
        (bool(obstacle) and not is_torch, obstacle),
        (engine.name in failed, failed.get(engine.name, "")),
        (wanted not in ("auto", *engine.precisions), f"it does not run {wanted} here"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def _plan(
    task_name: str,
    engine: Engine,
    runs: str,
    asked: str | None,
    backend: str,
    device: str,
    hardware: Hardware,
    rejected: list[Choice],
    warning: str,
    said_threads: int | None,
) -> Plan:
    on_torch = engine.name == "torch"
    if on_torch and runs == "auto":
        runs = "fp32"
    threads = 0 if on_torch else said_threads or hardware.cores
    why_engine = "asked for" if backend == engine.name else "the engines above it were rejected" if rejected else ""
    precision_reason = (
        f"asked for, by name or by dtype ({asked})"
        if asked == runs
        else "the accuracy check chooses"
        if runs == "auto"
        else f"torch does not run {asked}"
        if asked not in (None, "auto")
        else "the default"
    )
    choices = (
        Choice(
            what="backend",
            value=f"{engine.name} {engine.version}".strip(),
            reason=why_engine or "the fastest installed engine that takes this task and model",
        ),
        Choice(what="precision", value=runs, reason=precision_reason),
        Choice(what="device", value=device, reason=str(hardware)),
        Choice(
            what="threads",
            value=str(threads) if threads else "unchanged",
            reason="torch's setting belongs to the whole process"
            if on_torch
            else "as threads= or the environment says"
            if said_threads
            else "all usable cores",
        ),
        Choice(what="streams", value="1", reason="all threads work on one batch"),
    )
    return Plan(
        task=task_name,
        backend=engine.name,
        precision=runs,
        device=device,
        threads=threads,
        streams=1,
        choices=choices,
        rejected=tuple(rejected),
        warning=warning,
    )
