"""Generators on torch: bf16 where the accuracy check passes it and it is faster, else fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import fastpipe
from fastpipe.hardware import Hardware
from fastpipe.precision import gate
from tests.conftest import V5

pytestmark = pytest.mark.skipif(not V5, reason="an engine generates next to transformers 4")
KINDS = [("text-generation", "llama"), ("summarization", "bart"), ("automatic-speech-recognition", "whisper")]
LOOSE = fastpipe.Accuracy(agreement=0.0, drift=1e9)
STRICT = fastpipe.Accuracy(agreement=1.0, drift=1e-9)


@pytest.fixture(autouse=True)
def any_speed_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model is not faster in bf16, and not every machine multiplies it."""
    monkeypatch.delenv("FASTPIPE_PRECISION", raising=False)
    monkeypatch.setattr(gate, "_FASTER", 0.0)
    monkeypatch.setattr(Hardware, "has_bf16", True)


def answer(pipe: Any, task: str) -> Any:
    if task == "automatic-speech-recognition":
        return pipe({"raw": torch.linspace(-0.5, 0.5, 16000).sin().numpy(), "sampling_rate": 16000})
    return pipe("a small river runs past the old mill", max_new_tokens=6, do_sample=False)


@pytest.mark.filterwarnings("ignore::fastpipe.errors.FallbackWarning")
@pytest.mark.parametrize(("task", "name"), KINDS)
def test_what_passes_runs_in_bf16(models: Any, tmp_path: Any, task: str, name: str) -> None:
    pipe = fastpipe.pipeline(task, model=models[name], accuracy=LOOSE, cache_dir=tmp_path)
    assert (pipe.plan.backend, pipe.plan.precision, pipe.dtype) == ("torch", "bf16", torch.bfloat16)
    assert pipe.report.chosen == "bf16"
    assert "accuracy check" in str(pipe.plan)
    by_dtype = fastpipe.pipeline(task, model=models[name], dtype=torch.bfloat16)
    assert answer(pipe, task) == answer(by_dtype, task)
    again = fastpipe.pipeline(task, model=models[name], accuracy=LOOSE, cache_dir=tmp_path)
    assert again.report == pipe.report  # remembered


@pytest.mark.filterwarnings("ignore::fastpipe.errors.FallbackWarning")
def test_what_does_not_pass_stays_in_fp32(models: Any, tmp_path: Any) -> None:
    pipe = fastpipe.pipeline("text-generation", model=models["llama"], accuracy=STRICT, cache_dir=tmp_path)
    assert (pipe.plan.precision, pipe.dtype) == ("fp32", torch.float32)
    assert list(pipe.report.refused) == ["bf16"]
    reference = transformers.pipeline("text-generation", model=models["llama"], dtype=torch.float32)
    assert answer(pipe, "text-generation") == answer(reference, "text-generation")


@pytest.mark.filterwarnings("ignore::fastpipe.errors.FallbackWarning")
@pytest.mark.parametrize(
    "said", [{"precision": "fp32"}, {"dtype": torch.float32}, {"accuracy": None}, {"backend": "torch"}], ids=str
)
def test_nothing_is_tried_where_the_user_said_what_to_run(models: Any, tmp_path: Any, said: dict[str, Any]) -> None:
    pipe = fastpipe.pipeline("text-generation", model=models["llama"], cache_dir=tmp_path, **said)
    assert pipe.dtype == torch.float32
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::fastpipe.errors.FallbackWarning")
def test_a_model_of_the_users_is_left_as_it_is(models: Any, tmp_path: Any) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(models["llama"], dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(models["llama"])
    pipe = fastpipe.pipeline("text-generation", model=model, tokenizer=tokenizer, accuracy=LOOSE, cache_dir=tmp_path)
    assert pipe.model is model
    assert model.dtype == torch.float32
