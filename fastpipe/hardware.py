"""What the machine offers this process: instruction sets, cores, memory, GPUs.

A container often sees the whole host in ``/proc`` but may use a slice of it. Planning for cores it does not have makes
every engine slower, so cores and memory are what the process may use, not what the board carries.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

_log = logging.getLogger(__name__)

_INT8 = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "dotprod", "i8mm"})
_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_FP16 = frozenset({"amx_fp16", "fp16"})
_KNOWN = _INT8 | _BF16 | _FP16 | {"avx2", "avx512f", "avx512_fp16", "amx_tile", "neon", "sve"}
# Where Linux ("asimd") or macOS (the rest) has another word for a feature.
_ALIASES = {"asimd": "neon", "asimddp": "dotprod", "AdvSIMD": "neon", "FEAT_DotProd": "dotprod"}
_ALIASES |= {"asimdhp": "fp16", "FEAT_FP16": "fp16", "FEAT_I8MM": "i8mm", "FEAT_BF16": "bf16", "avx2_0": "avx2"}


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One accelerator as torch lists it.

    ``kind`` is torch's device type ("cuda", "mps", "xpu") and ``index`` the device number within it. On "mps" the
    memory is the machine's own. ``compute_capability`` is NVIDIA's (major, minor), None for anyone else's device.
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None
    index: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What this process may use.

    ``isa`` is sorted and lists only what changes a plan. ``cores`` counts logical CPUs, at least 1. ``memory_bytes`` is
    0 where the system would not tell.
    """

    architecture: str
    cpu_model: str
    isa: tuple[str, ...]
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]

    def has(self, feature: str) -> bool:
        """Whether the CPU has the instruction set, by the names used in ``isa``."""
        return feature in self.isa

    @property
    def has_int8(self) -> bool:
        """Whether the CPU multiplies 8-bit integers in dedicated instructions."""
        return not _INT8.isdisjoint(self.isa)

    @property
    def has_bf16(self) -> bool:
        """Whether the CPU multiplies bfloat16 in dedicated instructions."""
        return not _BF16.isdisjoint(self.isa)

    @property
    def has_fp16(self) -> bool:
        """Whether half-precision floats are fast: AVX512's are not, beside its single ones."""
        return not _FP16.isdisjoint(self.isa)

    def __str__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        gpus = " + ".join(f"{gpu.name} ({gpu.memory_bytes / 2**30:.1f} GiB)" for gpu in self.gpus) or "no GPU"
        isa = " ".join(self.isa) or f"plain {self.architecture}"
        return f"{self.cpu_model}, {cores}, {self.memory_bytes / 2**30:.1f} GiB, {isa}, {gpus}"

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON gives it back: lists for tuples, so a stored report compares equal to a new one."""
        report: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return report


def detect_hardware(root: Path = Path("/")) -> Hardware:
    """Looks at the machine, honouring CPU affinity and cgroup limits.

    Listing GPUs imports torch and, where there is a CUDA device, initialises CUDA in this process.

    Args:
        root: folder that holds ``proc`` and ``sys``. Any other than ``/`` is read as a Linux tree.

    Returns:
        The hardware. A file that cannot be read means "no limit"; this never raises.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    isa: tuple[str, ...] = ()
    if sys.platform == "darwin" and root == Path("/"):
        cpu_model, isa, memory_bytes = parse_sysctl(_sysctl())
    elif sys.platform == "win32" and root == Path("/"):
        import ctypes

        # Windows has no call that names VNNI or bfloat16, so isa claims nothing.
        cpu_model = platform.processor() or "unknown CPU"
        # MEMORYSTATUSEX: two 32-bit fields, its own size first, then seven 64-bit ones, the physical total first.
        status = (ctypes.c_uint64 * 8)(64)
        memory_bytes = int(status[1]) if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)) else 0
    else:
        cpu_model, isa = parse_cpuinfo(_read(root / "proc/cpuinfo"))
        quotas, limits = _cgroup_limits(root)
        cores = min([cores, *map(math.ceil, quotas)])
        total = re.search(r"^MemTotal:\s*(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
        memory_bytes = min(limits + ([int(total[1]) * 1024] if total else []), default=0)
    machine = platform.machine().lower()
    return Hardware(
        architecture={"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine),
        cpu_model=cpu_model,
        isa=isa,
        cores=cores,
        memory_bytes=memory_bytes,
        gpus=_torch_gpus(memory_bytes),
    )


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Model name and instruction sets from Linux's ``/proc/cpuinfo`` ("flags" on x86, "Features" on ARM)."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    model = fields.get("model name", "unknown CPU")
    # 64-bit ARM kernels print no model name, only the ids it could be looked up by.
    if "model name" not in fields and "CPU part" in fields:
        model = f"ARM implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return model, _known(f"{fields.get('flags', '')} {fields.get('Features', '')}".split())


def parse_sysctl(text: str) -> tuple[str, tuple[str, ...], int]:
    """Model name, instruction sets and memory in bytes from the "name: value" lines of macOS's ``sysctl``."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    isa = _known(key.rpartition(".")[2] for key, value in fields.items() if value == "1")
    return fields.get("machdep.cpu.brand_string", "unknown CPU"), isa, parse_bytes(fields.get("hw.memsize", "")) or 0


def parse_cpu_quota(text: str) -> float | None:
    """Cores allowed by "quota period" (both in µs, cgroup v2's ``cpu.max``); None when there is no limit."""
    words = [int(word) for word in text.split() if word.isdecimal()]
    # Anything else is "max" in v2, "-1" in v1, or an unreadable file.
    return words[0] / words[1] if len(words) == 2 and all(words) else None


def parse_bytes(text: str) -> int | None:
    """A limit in bytes; None for "max", for 0 and for an unreadable file."""
    return (int(text) or None) if text.strip().isdecimal() else None


def parse_cgroup(text: str) -> dict[str, str]:
    """Controller to path from ``/proc/self/cgroup``; version 2 has one path for all, under the empty name."""
    lines = (line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2)
    return {controller: path for _, names, path in lines for controller in names.split(",")}


def _known(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(_KNOWN.intersection(_ALIASES.get(name, name) for name in names)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # every parser here takes the empty text for "not stated"


def _cgroup_limits(root: Path) -> tuple[list[float], list[int]]:
    """Every limit set on the process's cgroup or one above it: (cores, bytes). The smallest of each one binds."""
    paths, mount = parse_cgroup(_read(root / "proc/self/cgroup")), root / "sys/fs/cgroup"
    # Version 2, then version 1, whose link from "cpu" to "cpu,cpuacct" is missing on some systems.
    mounts = {".": "", "memory": "memory", "cpu": "cpu", "cpu,cpuacct": "cpu"}
    folders = [f for name, key in mounts.items() if key in paths for f in _upward(mount / name, paths[key])]
    quotas = [parse_cpu_quota(_read(f / "cpu.max")) for f in folders]
    quotas += [parse_cpu_quota(f"{_read(f / 'cpu.cfs_quota_us')} {_read(f / 'cpu.cfs_period_us')}") for f in folders]
    limits = [parse_bytes(_read(f / name)) for f in folders for name in ("memory.max", "memory.limit_in_bytes")]
    return [quota for quota in quotas if quota], [limit for limit in limits if limit]


def _upward(mount: Path, path: str) -> Iterator[Path]:
    # ".." is how the kernel writes a cgroup outside our namespace: nothing below the mount is ours. In a container
    # that shares the host's namespace the path does not exist below the mount, and the mount itself holds the limit.
    parts = [] if ".." in path.split("/") else list(PurePosixPath(path).parts[1:])
    return (mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _sysctl() -> str:
    command = ["/usr/sbin/sysctl", "hw.optional", "hw.memsize", "machdep.cpu.brand_string"]
    try:
        # Not checked: it exits 1 when one name is unknown and still prints the others.
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _torch_gpus(memory_bytes: int) -> tuple[Gpu, ...]:
    gpus = []
    try:
        import torch

        for kind, module in (("cuda", torch.cuda), ("xpu", torch.xpu)):
            for index in range(module.device_count() if module.is_available() else 0):
                gpu = module.get_device_properties(index)
                # AMD's build of torch answers as "cuda", with version numbers that are no compute capability.
                cc = (gpu.major, gpu.minor) if kind == "cuda" and torch.version.hip is None else None
                facts = {"name": gpu.name, "memory_bytes": gpu.total_memory, "compute_capability": cc}
                gpus.append(Gpu(kind=kind, index=index, **facts))
        if torch.backends.mps.is_available():
            gpus.append(Gpu(kind="mps", index=0, name="Apple GPU", memory_bytes=memory_bytes, compute_capability=None))
    except ModuleNotFoundError:
        return ()  # nothing is broken: torch is not installed, and GPUs are named by torch only
    except Exception as exc:
        # A broken driver raises anything at all. The CPU still works, so it costs the GPUs, said aloud, not the call.
        _log.warning("torch could not list the GPUs, so none is used: %s: %s", type(exc).__name__, exc)
        return ()
    return tuple(gpus)
