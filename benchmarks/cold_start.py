"""What W9 starts in a fresh process: make a pipeline, get one result, tell time and peaks of memory."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from typing import Any

from benchmarks.memory import peak_rss_bytes

TEXT = "The first answer is the one that somebody waits for."


def main() -> None:
    """Read what to load from the command line, and write one line of JSON once the first result is there."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    if wanted["threads"]:
        import torch

        torch.set_num_threads(wanted["threads"])
    if wanted["library"]:
        pipeline = importlib.import_module(wanted["library"]).pipeline
        with tempfile.TemporaryDirectory() as empty:
            options = {**wanted["options"], **({"cache_dir": empty} if wanted["first"] else {})}
            started = time.perf_counter()
            pipe = pipeline("text-classification", model=wanted["model"], **options)
            found = {"construction_s": time.perf_counter() - started, "construction_peak_bytes": peak_rss_bytes()}
            result = pipe(TEXT)
    else:
        # The floor: what everybody imports, and no model.
        importlib.import_module("torch")
        transformers = importlib.import_module("transformers")
        found = {}
        result = [transformers.pipeline.__name__, transformers.AutoTokenizer.__name__]
    print("\n" + json.dumps({"result": result, "peak_rss_bytes": peak_rss_bytes(), **found}), flush=True)


if __name__ == "__main__":
    main()
