"""The runner: `python -m benchmarks W1 W4 --rounds 3 --only 'fastpipe-*,transformers-fp32' --json out.json`.

`python -m benchmarks page out.json` makes docs/benchmarks.md of what it wrote.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import contenders, machine, page, report
from benchmarks.field import Bench, say
from fastpipe.hardware import detect_hardware

# Those on one model stand together: it is loaded once.
SCENARIOS: Mapping[str, str] = {
    "W1": "benchmarks.w1_mixed_list",
    "W4": "benchmarks.w4_single_text",
    "W5": "benchmarks.w5_skew",
    "LENGTHS": "benchmarks.lengths",
    "THREADS": "benchmarks.threads",
    "W2": "benchmarks.w2_short_list",
    "W3": "benchmarks.w3_long_list",
    "W6": "benchmarks.w6_generation",
    "W7": "benchmarks.w7_speech",
    "W8": "benchmarks.w8_images",
    "W9": "benchmarks.w9_cold_start",
    "W10": "benchmarks.w10_accuracy",
    "GROWTH": "benchmarks.growth",
    "SOAK": "benchmarks.soak",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run scenarios, print their tables, and write the raw samples.

    Returns:
        0 when every contender that takes part was measured, else 1.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["page"]:
        return page.main(arguments[1:])
    options = _parse(arguments)
    hardware = detect_hardware()
    chosen, left_out = contenders.choose(options.only)
    warning = machine.busy(hardware)
    document: dict[str, Any] = {
        "machine": machine.describe(hardware),
        "warning": warning,
        "rounds": options.rounds,
        "size": options.size,
        "contenders": [contender.name for contender in chosen],
        "left_out": left_out,
        "results": [],
    }
    _introduce(document, str(hardware))
    with tempfile.TemporaryDirectory(prefix="fastpipe-bench-", ignore_cleanup_errors=True) as temporary:
        workspace = Path(options.workspace or temporary).resolve()
        bench = Bench(
            workspace=workspace,
            contenders=chosen,
            hardware=hardware,
            rounds=options.rounds,
            size=options.size,
            left_out=left_out,
        )
        try:
            for scenario in options.scenarios:
                say(f"{scenario} ({SCENARIOS[scenario]})")
                started = time.perf_counter()
                result = importlib.import_module(SCENARIOS[scenario]).run(bench)
                report.show(result, warning)
                document["results"].append({**result.to_dict(), "took_s": round(time.perf_counter() - started, 1)})
                document["failures"] = bench.failures
                if options.json:  # after each scenario, so that an interrupted run keeps what it has
                    report.write(options.json, document)
        finally:
            bench.close()
    for name, reason in bench.failures.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    return 1 if bench.failures else 0


def _introduce(document: Mapping[str, Any], hardware: str) -> None:
    print(hardware)
    print(", ".join(f"{name} {version}" for name, version in document["machine"]["versions"].items()))
    print(f"{document['rounds']} rounds, size {document['size']:g}")
    for name, reason in document["left_out"].items():
        print(f"left out: {name} ({reason})")
    if document["warning"]:
        print(f"WARNING: {document['warning']}")
    sys.stdout.flush()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare fastpipe with its peers.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"any of {', '.join(SCENARIOS)}; all without")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each contender (default: 3)")
    parser.add_argument("--size", type=float, default=1.0, help="share of the full amount of work (default: 1)")
    parser.add_argument("--only", default="", help="contenders, by name or pattern, separated by commas")
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    parser.add_argument("--workspace", type=Path, help="folder that keeps models and artifacts for the next run")
    options = parser.parse_args(arguments)
    options.scenarios = [scenario.upper() for scenario in options.scenarios] or list(SCENARIOS)
    options.only = [pattern.strip() for pattern in options.only.split(",") if pattern.strip()]
    unknown = sorted(set(options.scenarios) - set(SCENARIOS))
    if unknown:
        parser.error(f"no scenario is called {', '.join(unknown)}: there are {', '.join(SCENARIOS)}")
    if options.rounds < 1 or options.size <= 0:
        parser.error("--rounds and --size must be above zero")
    try:
        contenders.choose(options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


if __name__ == "__main__":
    sys.exit(main())
