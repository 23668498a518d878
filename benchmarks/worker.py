"""A process of its own for one contender: it loads it, and then answers one question a line.

    parent -> worker   {"call": "benchmarks.jobs:as_list", "arguments": {"texts": ["..."], "setting": {}}}
    worker -> parent   {"answer": {"seconds": [9.8]}}   or   {"error": "Traceback ..."}   or   {"unavailable": "..."}

The first question loads the contender; every later function gets what it returned as its first argument.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.contenders import UnavailableError

ROOT = Path(__file__).resolve().parent.parent


class WorkerError(RuntimeError):
    """A question failed in the worker; the message ends with what it said there."""


class Worker:
    """The parent's side.

    Args:
        name: Names the log file.
        workspace: Folder for everything that a run makes; fastpipe's cache goes there, too.
    """

    def __init__(self, name: str, workspace: Path) -> None:
        self.log = workspace / "logs" / f"{name}.txt"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment(workspace),
            )

    def ask(self, call: str, **arguments: Any) -> Any:
        """Let the worker call a function, and wait for what it returns.

        Args:
            call: "module:function".
            arguments: Plain values.

        Raises:
            WorkerError: The function raised, or the process ended.
            UnavailableError: The function raised it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"the process ended; its log says: {self.log.read_text('utf-8', 'replace')[-2000:]}")
        reply = json.loads(line)
        if "unavailable" in reply:
            raise UnavailableError(reply["unavailable"])
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["answer"]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def environment(workspace: Path) -> dict[str, str]:
    """Give the environment of every contender: offline, without the user's own settings and cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FASTPIPE_")}
    return {**kept, "HF_HUB_OFFLINE": "1", "FASTPIPE_CACHE": str(workspace / "cache")}


def find(call: str) -> Any:
    """Give the function that "module:function" names."""
    module, _, name = call.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> None:
    """Answer until the parent closes the pipe."""
    # Libraries print what they like: the answers get the pipe to themselves, and prints go to the log.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    loaded: list[Any] = []
    for line in sys.stdin:
        question: Mapping[str, Any] = json.loads(line)
        try:
            answer = find(question["call"])(*loaded, **question["arguments"])
            if not loaded:
                loaded.append(answer)
                answer = answer.facts()
            reply = {"answer": answer}
        except UnavailableError as error:
            reply = {"unavailable": str(error)}
        except Exception:
            reply = {"error": traceback.format_exc()}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
