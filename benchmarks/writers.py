"""What writes text in W6, inside its worker: SmolLM2 in each library, behind one call."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from benchmarks import smollm2

_TASK = "text-generation"
_BATCH = 8

Setting = Mapping[str, int]


class Writer(Protocol):
    """A library with the model in it."""

    detail: str

    def write(self, prompts: Sequence[str], tokens: int, setting: Setting) -> list[list[int]]:
        """Go on with prompts greedily, and give the ids of exactly so many new tokens for each."""

    def first(self, prompt: str, tokens: int, setting: Setting) -> float:
        """Do the same with one prompt, and give the seconds until its first new token."""


class Clock:
    """A streamer that notes when the first new token comes: the prompt comes before it."""

    def __init__(self) -> None:
        self._came: list[float] = []
        self._started = time.perf_counter()

    def put(self, value: Any) -> None:
        """Take the prompt, or new tokens."""
        self._came.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing."""

    @property
    def seconds(self) -> float:
        """How long the first new token took."""
        return self._came[1] - self._started


class Pipe:
    """A pipeline in the manner of transformers.

    Args:
        pipe: The pipeline.
        detail: What runs.
    """

    def __init__(self, pipe: Any, detail: str) -> None:
        self.pipe = pipe
        self.detail = detail

    def write(self, prompts: Sequence[str], tokens: int, setting: Setting) -> list[list[int]]:
        """As `Writer`."""
        answers = self._call(list(prompts), tokens, setting)
        return [list(map(int, answer[0]["generated_token_ids"][-tokens:])) for answer in answers]

    def first(self, prompt: str, tokens: int, setting: Setting) -> float:
        """As `Writer`."""
        clock = Clock()
        self._call(prompt, tokens, setting, streamer=clock)
        return clock.seconds

    def _call(self, prompts: Any, tokens: int, setting: Setting, **more: Any) -> Any:
        given = {**setting, **more}
        if "threads" in given:
            import torch

            torch.set_num_threads(given.pop("threads"))
        counts = {"max_new_tokens": tokens, "min_new_tokens": tokens}
        return self.pipe(prompts, return_tensors=True, do_sample=False, **counts, **given)


class GenAI:
    """openvino-genai, which batches by itself.

    Args:
        folder: The model in OpenVINO's format.
        tokenizer: transformers' own.
    """

    detail = "weights int8, the rest the engine's own choice"

    def __init__(self, folder: Path, tokenizer: Any) -> None:
        self._library = importlib.import_module("openvino_genai")
        self._tokenizer = tokenizer
        self._pipe = self._library.LLMPipeline(str(folder), "CPU")

    def write(self, prompts: Sequence[str], tokens: int, setting: Setting) -> list[list[int]]:
        """As `Writer`."""
        return [list(ids) for ids in self._pipe.generate(self._encoded(prompts), self._config(tokens)).tokens]

    def first(self, prompt: str, tokens: int, setting: Setting) -> float:
        """As `Writer`."""
        result = self._pipe.generate(self._encoded([prompt]), self._config(tokens))
        return float(result.perf_metrics.get_ttft().mean) / 1000

    def _encoded(self, prompts: Sequence[str]) -> Any:
        import openvino

        encoded = self._tokenizer(list(prompts), return_tensors="np", padding=True)
        names = ("input_ids", "attention_mask")
        return self._library.TokenizedInputs(*(openvino.Tensor(encoded[name].astype("int64")) for name in names))

    def _config(self, tokens: int) -> Any:
        config = self._pipe.get_generation_config()
        config.max_new_tokens = config.min_new_tokens = tokens
        config.do_sample = False
        return config


class LlamaCpp:
    """llama.cpp through its Python bindings, on the package's own file: one prompt after the other.

    Args:
        tokenizer: transformers' own.
    """

    detail = "weights Q4_1 as they are stored, activations int8 in blocks of 32"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._models: dict[int, Any] = {}  # threads are chosen when it loads

    def write(self, prompts: Sequence[str], tokens: int, setting: Setting) -> list[list[int]]:
        """As `Writer`."""
        return [list(islice(self._ids(prompt, setting), tokens)) for prompt in prompts]

    def first(self, prompt: str, tokens: int, setting: Setting) -> float:
        """As `Writer`."""
        started = time.perf_counter()
        next(iter(self._ids(prompt, setting)))
        return time.perf_counter() - started

    def _ids(self, prompt: str, setting: Setting) -> Any:
        library = importlib.import_module("llama_cpp")
        threads = setting["threads"]
        if threads not in self._models:
            given = {"n_threads": threads, "n_threads_batch": threads, "n_ctx": 1024, "verbose": False}
            self._models[threads] = library.Llama(str(smollm2.packaged()), **given)
        model, end = self._models[threads], self._tokenizer.eos_token_id

        def on(ids: Any, scores: Any) -> Any:
            scores[end] = -float("inf")
            return scores

        model.reset()  # what an earlier call has left is not to be used again
        ids = self._tokenizer(prompt)["input_ids"]
        return model.generate(ids, temp=0, logits_processor=library.LogitsProcessorList([on]))


def _transformers(folder: str, workspace: Path, bits: str = "float32") -> Writer:
    import torch
    import transformers

    pipe = transformers.pipeline(_TASK, model=folder, device="cpu", dtype=getattr(torch, bits))
    return Pipe(pipe, f"weights and activations {bits}, torch eager")


def _transformers_bf16(folder: str, workspace: Path) -> Writer:
    return _transformers(folder, workspace, "bfloat16")


def _fastpipe(folder: str, workspace: Path, **said: Any) -> Writer:
    import fastpipe

    pipe = fastpipe.pipeline(_TASK, model=folder, **said)
    wanted = said.get("precision", pipe.plan.precision)
    if pipe.plan.precision != wanted:
        raise RuntimeError(f"{wanted} was asked for, and something else runs:\n{pipe.plan}")
    return Pipe(pipe, f"{pipe.plan.backend}, {pipe.plan.precision}")


def _fastpipe_fp32(folder: str, workspace: Path) -> Writer:
    return _fastpipe(folder, workspace, precision="fp32")


def _fastpipe_int4(folder: str, workspace: Path) -> Writer:
    return _fastpipe(folder, workspace, precision="int4", accuracy=None)


def _exported(folder: str, workspace: Path) -> Path:
    from optimum.intel import OVModelForCausalLM

    exported = workspace / "optimum" / f"{smollm2.NAME}-openvino-int8"
    if not exported.is_dir():
        OVModelForCausalLM.from_pretrained(folder, export=True, compile=False, load_in_8bit=True).save_pretrained(
            exported
        )
    return exported


def _optimum_int8(folder: str, workspace: Path) -> Writer:
    from optimum.intel import OVModelForCausalLM
    from transformers import AutoTokenizer, pipeline

    model = OVModelForCausalLM.from_pretrained(_exported(folder, workspace))
    pipe = pipeline(_TASK, model=model, tokenizer=AutoTokenizer.from_pretrained(folder), device="cpu")
    return Pipe(pipe, "weights int8, the rest the engine's own choice")


def _genai(folder: str, workspace: Path) -> Writer:
    import openvino
    from transformers import AutoTokenizer

    tokenizer, exported = AutoTokenizer.from_pretrained(folder), _exported(folder, workspace)
    if not (exported / "openvino_tokenizer.xml").is_file():
        convert = importlib.import_module("openvino_tokenizers").convert_tokenizer
        for part, name in zip(convert(tokenizer, with_detokenizer=True), ("tokenizer", "detokenizer"), strict=True):
            openvino.save_model(part, exported / f"openvino_{name}.xml")
    return GenAI(exported, tokenizer)


def _llama_cpp(folder: str, workspace: Path) -> Writer:
    from transformers import AutoTokenizer

    return LlamaCpp(AutoTokenizer.from_pretrained(folder))


# By contender.
LOADERS: Mapping[str, Callable[[str, Path], Writer]] = {
    "fastpipe-auto": _fastpipe,
    "fastpipe-fp32": _fastpipe_fp32,
    "fastpipe-int4": _fastpipe_int4,
    "transformers-fp32": _transformers,
    "transformers-bf16": _transformers_bf16,
    "optimum-openvino-int8": _optimum_int8,
    "openvino-genai-int8": _genai,
    "llama-cpp-q4_1": _llama_cpp,
}


def settings(contender: str, cores: int, prompts: int) -> list[dict[str, int]]:
    """Give what is probed; fastpipe and openvino-genai choose by themselves, and one prompt needs no batches."""
    threads = dict.fromkeys((cores, 1)) if contender.startswith(("transformers", "llama")) else (0,)
    batched = contender.startswith(("transformers", "optimum")) and prompts > 1
    every = [
        {"threads": thread, "batch_size": batch} for batch in ((1, _BATCH) if batched else (0,)) for thread in threads
    ]
    return [{name: value for name, value in each.items() if value} for each in every]


class Loaded:
    """A contender that is ready.

    Args:
        workspace: Folder for everything that a run makes.
        contender: One of `LOADERS`.
    """

    def __init__(self, workspace: str, contender: str) -> None:
        from transformers import AutoTokenizer

        folder = smollm2.save(Path(workspace))
        self.writer = LOADERS[contender](folder, Path(workspace))
        self._tokenizer = AutoTokenizer.from_pretrained(folder)

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know."""
        return {"detail": self.writer.detail}

    def chat(self, text: str) -> str:
        """Give what the model reads of a chat that begins with a text."""
        messages = [{"role": "user", "content": text}]
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
