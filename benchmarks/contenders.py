"""Who takes part, as data. A new contender is one record here and one function in `loaders.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.util import find_spec
from typing import Any


class UnavailableError(RuntimeError):
    """A library has no way to run a model here: its contender is left out, which is no failure of the run."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One library on one engine at one precision.

    Attributes:
        name: What `--only` and the tables call it.
        precision: What its weights and large products are in; `facts` of the loaded contender says the rest.
        needs: Modules without which it does not take part.
        load: "module:function" that loads it in a worker.
        options: Arguments for `load`, besides the workspace and the model.
        batch_sizes: To probe; `None` stands for the library's own choice.
        threads: Whether torch's threads are to be probed, one against all.
        runner: Whether it has fastpipe's runner, so that the bare engine can be measured inside it.
        pipeline: Whether it is called as transformers' pipelines are, with their parameters.
        tasks: Those that it can do; none stands for every one.
    """

    name: str
    precision: str
    needs: tuple[str, ...]
    load: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_sizes: tuple[int | None, ...] = (None,)
    threads: bool = False
    runner: bool = False
    pipeline: bool = True
    tasks: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Give the modules that are not importable here."""
        return [module for module in self.needs if not _importable(module)]

    def settings(self, cores: int) -> list[dict[str, int]]:
        """Give every setting to probe, the likeliest first, so that worse ones can be given up early."""
        threads = dict.fromkeys((cores, 1)) if self.threads else (None,)
        return [
            {name: value for name, value in (("threads", t), ("batch_size", b)) if value is not None}
            for b in self.batch_sizes
            for t in threads
        ]


def _fastpipe(backend: str, precision: str, *needs: str) -> Contender:
    return Contender(
        name=f"fastpipe-{backend}-{precision}",
        precision=precision,
        needs=(backend, *needs),
        load="benchmarks.loaders:fastpipe",
        options={"backend": backend, "precision": precision},
        runner=True,
    )


def _optimum(engine: str, precision: str, *needs: str) -> Contender:
    return Contender(
        name=f"optimum-{engine}-{precision}",
        precision=precision,
        needs=needs,
        load=f"benchmarks.loaders:optimum_{engine}",
        options={"quantized": precision == "int8"},
        batch_sizes=(1, 8, 32),
    )


def _sentences(backend: str, precision: str, *needs: str) -> Contender:
    return Contender(
        name=f"sentence-transformers-{backend}-{precision}",
        precision=precision,
        needs=("sentence_transformers", *needs),
        load="benchmarks.peers:sentence_transformers",
        options={"backend": backend, "quantized": precision == "int8"},
        batch_sizes=(32, 8, 128),
        pipeline=False,
        tasks=("feature-extraction",),
    )


TRANSFORMERS = "transformers-fp32"

CONTENDERS = (
    _fastpipe("openvino", "auto", "nncf"),
    _fastpipe("openvino", "int8", "nncf"),
    _fastpipe("openvino", "fp32"),
    _fastpipe("onnxruntime", "auto", "onnx"),
    _fastpipe("onnxruntime", "int8", "onnx"),
    _fastpipe("onnxruntime", "fp32", "onnx"),
    Contender(
        name=TRANSFORMERS,
        precision="fp32",
        needs=("transformers",),
        load="benchmarks.loaders:transformers",
        batch_sizes=(1, 8, 32),
        threads=True,
    ),
    _optimum("onnxruntime", "int8", "optimum.onnxruntime"),
    _optimum("onnxruntime", "fp32", "optimum.onnxruntime"),
    _optimum("openvino", "int8", "optimum.intel", "openvino", "nncf"),
    _optimum("openvino", "fp32", "optimum.intel", "openvino"),
    _sentences("torch", "fp32"),
    _sentences("onnx", "int8", "optimum.onnxruntime"),
    _sentences("onnx", "fp32", "optimum.onnxruntime"),
    _sentences("openvino", "fp32", "optimum.intel", "openvino"),
    Contender(
        name="ctranslate2-int8",
        precision="int8",
        needs=("ctranslate2",),
        load="benchmarks.peers:ctranslate2",
        batch_sizes=(32, 8, 128),
        pipeline=False,
    ),
    # W7 loads its contenders by name, in `listeners.py`; these are in no other scenario.
    Contender(name="fastpipe-auto", precision="auto", needs=(), load="", tasks=("automatic-speech-recognition",)),
    Contender(
        name="faster-whisper-int8",
        precision="int8",
        needs=("faster_whisper",),
        load="",
        tasks=("automatic-speech-recognition",),
    ),
    # So does W6, in `writers.py`.
    *(
        Contender(name=name, precision=name.rpartition("-")[2], needs=needs, load="", tasks=("text-generation",))
        for name, needs in (
            ("fastpipe-fp32", ()),
            ("fastpipe-int4", ("openvino", "nncf")),
            ("transformers-bf16", ("transformers",)),
            ("openvino-genai-int8", ("openvino_genai", "openvino_tokenizers", "optimum.intel")),
            ("llama-cpp-q8_0", ("xllamacpp", "gguf")),
            ("llama-cpp-q4_1", ("xllamacpp",)),
        )
    ),
)


def choose(patterns: Sequence[str]) -> tuple[list[Contender], dict[str, str]]:
    """Choose who takes part.

    Args:
        patterns: Names, or patterns such as "fastpipe-*"; none stands for everybody.

    Returns:
        Those who take part, and for each other one the reason why not.

    Raises:
        ValueError: A pattern fits no contender.
    """
    for pattern in patterns:
        if not any(fnmatch(contender.name, pattern) for contender in CONTENDERS):
            known = ", ".join(contender.name for contender in CONTENDERS)
            raise ValueError(f"no contender is called {pattern!r}: there are {known}")
    chosen: list[Contender] = []
    left_out: dict[str, str] = {}
    for contender in CONTENDERS:
        missing = contender.missing()
        if patterns and not any(fnmatch(contender.name, pattern) for pattern in patterns):
            left_out[contender.name] = "not asked for"
        elif missing:
            left_out[contender.name] = f"not installed: {', '.join(missing)}"
        else:
            chosen.append(contender)
    return chosen, left_out


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
