"""Record what transformers 4.57 answers: `python -m tests.golden.record`, in an environment that has it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

from tests.golden.cases import CASES, RESULTS
from tests.golden.models import GoldenModels


def main() -> None:
    if not transformers.__version__.startswith("4.57."):
        raise SystemExit(f"this is transformers {transformers.__version__}; the answers to keep are those of 4.57")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        models = GoldenModels(Path(folder))
        answers = {name: case.answer(transformers.pipeline, models[case.model]) for name, case in CASES.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(answer, ensure_ascii=False)}" for name, answer in answers.items()]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(answers)} answers of transformers {transformers.__version__} in {RESULTS}")


if __name__ == "__main__":
    main()
