"""What identifies an artifact: everything that changes its bytes, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig

from fastpipe.artifacts.spec import ArtifactSpec, digest_of_config, digest_of_folder, digest_of_model

SPEC = ArtifactSpec(
    weights="w" * 64,
    config="c" * 64,
    architecture="BertForSequenceClassification",
    task="text-classification",
    inputs=("input_ids", "attention_mask"),
    backend="openvino",
    versions={"openvino": "2026.1", "torch": "2.13"},
)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": "v" * 64},
        {"config": "d" * 64},
        {"architecture": "RobertaForSequenceClassification"},
        {"task": "token-classification"},
        {"inputs": ("input_ids", "attention_mask", "token_type_ids")},
        {"backend": "onnxruntime"},
        {"weights_as": {"method": "compressed", "bits": 8}},
        {"calibration": "e" * 64},
        {"choice": {"accuracy": 0.99}},
        {"versions": {"openvino": "2026.2", "torch": "2.13"}},
        {"versions": {"openvino": "2026.1"}},
    ],
)
def test_every_part_changes_the_key(change):
    assert dataclasses.replace(SPEC, **change).key != SPEC.key


def test_a_key_is_a_file_name_that_depends_on_content_alone():
    assert re.fullmatch("[0-9a-f]{32}", SPEC.key)
    again = dataclasses.replace(SPEC, versions=dict(reversed(SPEC.versions.items())))
    assert again.key == SPEC.key


@pytest.fixture
def folder(tmp_path) -> Path:
    """A model folder with all that such folders hold."""
    where = tmp_path / "model"
    where.mkdir()
    (where / "model.safetensors").write_bytes(b"weights" * 100)
    (where / "config.json").write_text("{}")
    (where / "tokenizer.json").write_text("{}")
    (where / "README.md").write_text("# a model")
    return where


def test_weights_of_equal_size_and_date_are_told_apart(folder):
    file = folder / "model.safetensors"
    before, stat = digest_of_folder(folder), file.stat()
    file.write_bytes(b"WEIGHTS" * 100)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert digest_of_folder(folder) != before


def test_a_folder_is_the_same_elsewhere_and_later(folder, tmp_path):
    before = digest_of_folder(folder)
    twin = Path(shutil.copytree(folder, tmp_path / "another" / "place"))
    os.utime(twin / "model.safetensors", (1, 1))
    (twin / "README.md").write_text("# the same model")
    (twin / "tokenizer.json").write_text('{"changed": true}')
    assert digest_of_folder(twin) == before


@pytest.mark.parametrize(
    "names",
    [
        ("model.safetensors",),
        ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        ("pytorch_model.bin",),
        ("weights.pt",),
    ],
)
def test_every_weight_file_counts(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b"1")
    before = digest_of_folder(tmp_path)
    for name in names:
        (tmp_path / name).write_bytes(b"2")
        changed = digest_of_folder(tmp_path)
        assert changed != before
        before = changed


def test_shards_that_swap_their_content_are_another_model(tmp_path):
    shards = [tmp_path / f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for shard, content in zip(shards, (b"1", b"2"), strict=True):
        shard.write_bytes(content)
    before = digest_of_folder(tmp_path)
    for shard, content in zip(shards, (b"2", b"1"), strict=True):
        shard.write_bytes(content)
    assert digest_of_folder(tmp_path) != before


def test_a_folder_without_weights_says_so(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=str(folder)):
        digest_of_folder(folder)


def _config(**changes: Any) -> BertConfig:
    return BertConfig(**{"num_labels": 2, "hidden_size": 64, "num_attention_heads": 4, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 128},
        {"num_labels": 3},
        {"problem_type": "multi_label_classification"},
        {"layer_norm_eps": 1e-3},
        {"hidden_act": "relu"},
    ],
)
def test_what_shapes_the_graph_changes_the_digest_of_a_config(change):
    assert digest_of_config(_config(**change)) != digest_of_config(_config())


@pytest.mark.parametrize(
    "change",
    [
        {"name_or_path": "/some/where/else"},
        {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}},
        {"task_specific_params": {"a": 1}},
    ],
)
def test_names_do_not_change_the_digest_of_a_config(change):
    assert digest_of_config(_config(**change)) == digest_of_config(_config())


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(2, 3, dtype=torch.bfloat16)
        self.register_buffer("scalar", torch.tensor(1.5))
        self.register_buffer("nothing", torch.zeros(0))


def test_a_loaded_model_is_its_weights_as_they_are_now():
    torch.manual_seed(0)
    model = Tiny()
    before = digest_of_model(model)
    twin = Tiny()
    twin.load_state_dict(model.state_dict())
    assert digest_of_model(twin.train()) == before
    with torch.no_grad():
        model.one.weight.mul_(-1)
    changed = digest_of_model(model)
    assert changed != before
    model.scalar += 1
    assert digest_of_model(model) not in (before, changed)
    assert digest_of_model(twin.float()) != before
