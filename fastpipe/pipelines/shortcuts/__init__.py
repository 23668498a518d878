"""Ways around the work that transformers does item by item, for tasks whose steps are simple.

Texts are tokenized together, with the pipeline's own tokenizer, and a whole batch becomes results at once. The results
are those of the task's own `preprocess`, `_forward` and `postprocess`, which are used wherever one of them was
replaced, or anything unusual is asked for. A module for each kind of task says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import transformers

from fastpipe.pipelines.shortcuts import entailment, texts, tokens
from fastpipe.pipelines.shortcuts.base import Shortcut

_SHORTCUTS = (texts.LABELS, texts.FEATURES, tokens.ENTITIES, entailment.CANDIDATES)


def find(pipe: Any, preprocess: Mapping[str, Any]) -> Shortcut | None:
    """Give the way around for a pipeline, if it is one whose steps are known, and still transformers' own.

    Args:
        pipe: The pipeline.
        preprocess: Parameters of its `preprocess` in this call.
    """
    fast = isinstance(pipe.tokenizer, transformers.PreTrainedTokenizerFast)
    for shortcut in _SHORTCUTS:
        if isinstance(pipe, shortcut.task) and all(_is_own(pipe, shortcut.task, step) for step in shortcut.steps):
            return shortcut if fast and preprocess.keys() <= shortcut.parameters else replace(shortcut, encode=None)
    return None


def _is_own(pipe: Any, task: type, step: str) -> bool:
    return getattr(type(pipe), step) is getattr(task, step) and step not in vars(pipe)
