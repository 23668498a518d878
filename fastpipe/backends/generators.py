"""What an engine that generates is to the rest of fastpipe, and how a generator is made to say given words."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastpipe.backends.base import Batch, Outputs
from fastpipe.hardware import Hardware
from fastpipe.precision.recipes import CAUSAL, SEQ2SEQ, SPEECH, Recipe, Weights

# Optimum's names of the tasks, for both of its exporters.
EXPORTS = {
    CAUSAL: "text-generation-with-past",
    SEQ2SEQ: "text2text-generation-with-past",
    SPEECH: "automatic-speech-recognition-with-past",
}
_AGAIN = 12  # tokens of an answer that is asked for twice

_ENGINES = {
    "openvino": "fastpipe.backends.openvino_generators:OpenVINOGenerators",
    "onnxruntime": "fastpipe.backends.onnxruntime_generators:ONNXRuntimeGenerators",
}


class Generators(Protocol):
    """An engine's models with a `generate()` that is transformers' own. `kind` is `CAUSAL`, `SEQ2SEQ` or `SPEECH`."""

    name: str
    libraries: tuple[str, ...]  # distributions, any of which brings the engine
    exporter: str  # the distribution that exports, and whose classes run

    def recipes(self, hardware: Hardware, kind: str) -> tuple[Recipe, ...]:
        """Tell how it runs generators on this hardware: fastest first and ever safer, with fp32 last."""
        ...

    def export(self, model: Any, folder: Path, kind: str) -> None:
        """Write a torch model's fp32 graphs into a folder."""
        ...

    def quantize(self, source: Path, folder: Path, weights: Weights) -> None:
        """Write quantized graphs: those in `source` stay as they are."""
        ...

    def load(self, folder: Path, kind: str, recipe: Recipe, threads: int, config: Any, generation_config: Any) -> Any:
        """Load the graphs in a folder as a model that generates."""
        ...

    def twin(self, model: Any) -> Any:
        """Give a second model over the same weights, for another generation at the same time."""
        ...


@cache
def load(name: str) -> Generators | None:
    """Make an engine's generators; `None` where it has none."""
    if name not in _ENGINES:
        return None
    module, _, attribute = _ENGINES[name].partition(":")
    generators: Generators = getattr(importlib.import_module(module), attribute)()
    return generators


def says_the_same_again(model: Any, twin: Any, feeds: Sequence[Batch], kind: str) -> bool:
    """Tell whether what a model generates depends on its input alone, and not on what was generated before.

    With whisper-tiny.en in bf16 on OpenVINO 2026.4 the twin of a stateful decoder hears what the model heard last,
    while each step on its own is right.

    Args:
        model: What `Generators.load` gives.
        twin: What `Generators.twin` gives of it, which is what serves.
        feeds: Rows as `forced` takes them, two or more that differ.
        kind: `CAUSAL`, `SEQ2SEQ` or `SPEECH`.
    """
    import torch

    def said(who: Any, feed: Batch) -> list[int]:
        if kind == CAUSAL:
            ids = feed["input_ids"][:, : max(feed["input_ids"].shape[1] // 2, 1)]
            given = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.ones(ids.shape, dtype=torch.int64)}
        else:
            given = {name: torch.from_numpy(feed[name]) for name in feed if name != "decoder_input_ids"}
        tokens = who.generate(**given, do_sample=False, num_beams=1, max_new_tokens=_AGAIN)
        return list(map(int, tokens.flatten()))

    first = [said(model, feed) for feed in feeds]
    return all(first == [said(twin, feed) for feed in feeds] for _ in range(2))


def forced(model: Any, feed: Batch, kind: str) -> Outputs:
    """Make a generator say given tokens, one at a time as it does when it generates, and listen to what it would say.

    Args:
        model: A torch model, or what `Generators.load` gives.
        feed: Of one row. For `CAUSAL` "input_ids", int64 (1, tokens): the first half is the prompt. For the others what
            the encoder takes, by its name, and "decoder_input_ids", int64 (1, tokens): the first starts the decoder.
        kind: `CAUSAL`, `SEQ2SEQ` or `SPEECH`.

    Returns:
        "logits": float32 (1, steps, vocabulary), after the prompt and after each token behind it.
    """
    import torch

    with torch.no_grad():
        if kind == CAUSAL:
            ids = torch.from_numpy(feed["input_ids"])
            first = max(ids.shape[1] // 2, 1)
            same: dict[str, Any] = {}
        else:
            ids, first = torch.from_numpy(feed["decoder_input_ids"]), 1
            name = model.main_input_name
            read = torch.from_numpy(feed[name])
            encoded = {name: read.to(model.dtype) if read.is_floating_point() else read}
            mask = {"attention_mask": torch.from_numpy(feed["attention_mask"])} if "attention_mask" in feed else {}
            same = {"encoder_outputs": model.get_encoder()(**encoded, **mask), **mask}
        logits, cache = [], None
        for start, end in pairwise([0, *range(first, ids.shape[1] + 1)]):
            new = ids[:, start:end]
            if kind == CAUSAL:
                said = {"input_ids": new, "attention_mask": torch.ones(1, end, dtype=torch.int64)}
            else:
                said = {"decoder_input_ids": new, **same}
            outputs = model(**said, past_key_values=cache, use_cache=True)
            cache = outputs.past_key_values
            logits.append(outputs.logits[:, -1].float().numpy().copy())
    return {"logits": np.stack(logits, axis=1)}
