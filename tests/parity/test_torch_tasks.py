"""Tasks that no engine takes yet: torch runs them, the answers are transformers' own, and the plan says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import fastpipe
from fastpipe.errors import FallbackWarning
from tests import tasks

LETTERS = "_ abcdefghijklmnopqrstuvwxyz'"
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 16,
    "flow_size": 16,
    "spectrogram_bins": 9,
    "upsample_initial_channel": 16,
    "upsample_rates": [4, 4],
    "upsample_kernel_sizes": [8, 8],
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1]],
    "prior_encoder_num_flows": 1,
    "prior_encoder_num_wavenet_layers": 1,
    "posterior_encoder_num_wavenet_layers": 1,
    "duration_predictor_num_flows": 1,
    "duration_predictor_flow_bins": 3,
    "duration_predictor_filter_channels": 16,
    "depth_separable_num_layers": 1,
}


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voice")
    (folder / "vocab.json").write_text(json.dumps({letter: place for place, letter in enumerate(LETTERS)}))
    tokenizer = transformers.VitsTokenizer(
        str(folder / "vocab.json"), pad_token="_", unk_token="_", phonemize=False, is_uroman=False
    )
    torch.manual_seed(0)
    model = transformers.VitsModel(transformers.VitsConfig(vocab_size=len(LETTERS), **SIZES)).eval()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model"


@pytest.mark.parametrize("text", ["the old mill", ["a", "the river"]], ids=["one", "a list"])
def test_text_is_spoken_alike(voice: Path, text: Any) -> None:
    """The voice draws its rhythm by chance, and the numbers are drawn in the same order."""
    with pytest.warns(FallbackWarning, match="text-to-audio has no engine path yet"):
        pipe = tasks.noted(fastpipe.pipeline("text-to-audio", model=str(voice)))
    reference = transformers.pipeline("text-to-audio", model=str(voice), device="cpu")
    assert pipe.plan.backend == "torch"
    assert isinstance(pipe, type(reference))
    spoken = []
    for one in (pipe, reference):
        torch.manual_seed(3)
        answers = one(text)
        spoken.append(answers if isinstance(text, list) else [answers])
    for mine, theirs in zip(*spoken, strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["sampling_rate"] == theirs["sampling_rate"]
        np.testing.assert_array_equal(mine["audio"], theirs["audio"])
        assert mine["audio"].size > 50
