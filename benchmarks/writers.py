"""What writes text in W6, inside its worker: SmolLM2 in each library, behind one call."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarks import smollm2

_TASK = "text-generation"
_BATCH = 8
_CONTEXT = 1024  # tokens of a chat and its answer
_NO_TOKEN = -1

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
        return self.pipe(prompts, return_tensors=True, do_sample=False, max_new_tokens=tokens, **given)


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
        config.max_new_tokens, config.ignore_eos, config.do_sample = tokens, True, False
        return config


class LlamaCpp:
    """llama.cpp as a server inside this process, through the bindings of xllamacpp; chats run side by side.

    Args:
        file: The model in GGUF.
        detail: What its weights are.
        tokenizer: transformers' own.
    """

    def __init__(self, file: Path, detail: str, tokenizer: Any) -> None:
        self.detail = f"{detail}, activations int8 in blocks of 32"
        self._file, self._tokenizer = file, tokenizer
        self._servers: dict[tuple[int, int], Any] = {}  # threads are chosen when it loads

    def write(self, prompts: Sequence[str], tokens: int, setting: Setting) -> list[list[int]]:
        """As `Writer`; the library gives text, which is tokenized again, and may then have other tokens."""
        complete = partial(self._complete, tokens=tokens, setting=setting)
        with ThreadPoolExecutor(setting.get("batch_size", 1)) as callers:
            answers = list(callers.map(complete, prompts))
        if any(answer["usage"]["completion_tokens"] != tokens for answer in answers):
            raise RuntimeError(f"{tokens} new tokens were asked for, and llama.cpp gave others")
        texts = [answer["choices"][0]["text"] for answer in answers]
        ids = [self._tokenizer(text, add_special_tokens=False)["input_ids"][:tokens] for text in texts]
        return [each + [_NO_TOKEN] * (tokens - len(each)) for each in ids]

    def first(self, prompt: str, tokens: int, setting: Setting) -> float:
        """As `Writer`."""
        started = time.perf_counter()
        self._complete(prompt, tokens=1, setting=setting)
        return time.perf_counter() - started

    def _complete(self, prompt: str, *, tokens: int, setting: Setting) -> Any:
        asked = {"n_predict": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        ids = self._tokenizer(prompt)["input_ids"]
        return self._server(setting["threads"], setting.get("batch_size", 1)).handle_completions(
            {"prompt": ids, **asked}
        )

    def _server(self, threads: int, chats: int) -> Any:
        library = importlib.import_module("xllamacpp")
        if (threads, chats) not in self._servers:
            params = library.CommonParams()
            params.model.path = str(self._file)
            params.n_ctx, params.n_parallel, params.verbosity = _CONTEXT * chats, chats, 0
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
            self._servers[threads, chats] = library.Server(params)
        return self._servers[threads, chats]


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
    if not (exported / "openvino_tokenizer.xml").is_file():  # of this tokenizer, no detokenizer can be made
        convert = importlib.import_module("openvino_tokenizers").convert_tokenizer
        openvino.save_model(convert(tokenizer), exported / "openvino_tokenizer.xml")
    return GenAI(exported, tokenizer)


def _llama_cpp_q4_1(folder: str, workspace: Path) -> Writer:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return LlamaCpp(smollm2.packaged(), "weights Q4_1 as they are stored, embeddings Q8_0", tokenizer)


def _llama_cpp_q8_0(folder: str, workspace: Path) -> Writer:
    from transformers import AutoTokenizer

    return LlamaCpp(smollm2.save_q8_0(workspace), "weights Q8_0", AutoTokenizer.from_pretrained(folder))


# By contender.
LOADERS: Mapping[str, Callable[[str, Path], Writer]] = {
    "fastpipe-auto": _fastpipe,
    "fastpipe-fp32": _fastpipe_fp32,
    "fastpipe-int4": _fastpipe_int4,
    "transformers-fp32": _transformers,
    "transformers-bf16": _transformers_bf16,
    "optimum-openvino-int8": _optimum_int8,
    "openvino-genai-int8": _genai,
    "llama-cpp-q8_0": _llama_cpp_q8_0,
    "llama-cpp-q4_1": _llama_cpp_q4_1,
}


def settings(contender: str, cores: int, prompts: int) -> list[dict[str, int]]:
    """Give what is probed; fastpipe and openvino-genai choose by themselves, and one prompt needs no batches."""
    threads = dict.fromkeys((cores, 1)) if contender.startswith(("transformers", "llama")) else (0,)
    batched = contender.startswith(("transformers", "optimum", "llama")) and prompts > 1
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
