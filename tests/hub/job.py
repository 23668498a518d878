"""What a process of its own does with a hub: makes pipelines, one after the other, and says what came of each.

Usage: python -m tests.hub.job '[{"model": "me/tiny", "backend": "openvino"}, ...]'
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

TEXTS = ["a small river", "the old mill still turns, and the river runs past it", "no", "Grüße aus Köln"]


def outcome(said: dict[str, Any]) -> dict[str, Any]:
    import fastpipe

    os.environ.update(said.pop("environment", {}))
    try:
        pipe = fastpipe.pipeline(said.pop("task", "text-classification"), **said)
        checked = {c.recipe: {"verdict": c.verdict, "passed": c.passed} for c in pipe.report.candidates}
        return {
            "answers": pipe(TEXTS, top_k=None),
            "checked": checked,
            "plan": str(pipe.plan),
            "backend": pipe.plan.backend,
            "reason": pipe.report.reason,
        }
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("fastpipe").setLevel(logging.DEBUG)
    print(json.dumps([outcome(said) for said in json.loads(sys.argv[1])]))
