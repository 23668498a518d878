"""Tiny seeded encoders of texts of other families than BERT's own, all with BERT's vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import transformers

_SMALL: Mapping[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 130,  # two families count positions from behind the padding's number
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "id2label": {0: "neg", 1: "neu", 2: "pos"},
    "label2id": {"neg": 0, "neu": 1, "pos": 2},
}
# By name: the prefix of the classes, and what the config has besides.
_FAMILIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "deberta": ("DebertaV2", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}),
    "albert": ("Albert", {"embedding_size": 32}),
    "xlmr": ("XLMRoberta", {"type_vocab_size": 2}),
    "electra": ("Electra", {"embedding_size": 32}),
    "mpnet": ("MPNet", {}),
    "modernbert": ("ModernBert", {"local_attention": 8, "global_attn_every_n_layers": 2, "num_hidden_layers": 3}),
}


def _maker(prefix: str, more: Mapping[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        config = getattr(transformers, f"{prefix}Config")(**{**_SMALL, **more})
        return getattr(transformers, f"{prefix}ForSequenceClassification")(config)

    return make


MAKERS = {name: _maker(*family) for name, family in _FAMILIES.items()}
