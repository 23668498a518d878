"""Shared fixtures. Nothing here or in any test uses a network."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# Before anything imports transformers or fastpipe: offline, and never the user's own cache.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("FASTPIPE_BACKEND", None)
os.environ["FASTPIPE_PRECISION"] = "fp32"  # parity is about fp32; the tests of the accuracy check say "auto"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# One cache for all processes of a run: what one has built, the others find.
if "FASTPIPE_TESTS_CACHE" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="fastpipe-tests-")
    os.environ["FASTPIPE_TESTS_CACHE"] = _CACHE.name
os.environ["FASTPIPE_CACHE"] = os.environ["FASTPIPE_TESTS_CACHE"]
_HUB = tempfile.TemporaryDirectory(prefix="fastpipe-tests-hub-")
for _name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "HF_TOKEN"):
    os.environ.pop(_name, None)
os.environ["HF_HOME"] = _HUB.name

import torch  # noqa: E402
import transformers  # noqa: E402

import fastpipe  # noqa: E402
from fastpipe.pipelines import restored  # noqa: E402
from fastpipe.pipelines.generators.model import GeneratorModel  # noqa: E402
from tests import tasks  # noqa: E402
from tests.models import Models  # noqa: E402
from tests.torch_models import TorchModels  # noqa: E402

V5 = int(transformers.__version__.partition(".")[0]) >= 5
ENGINES = ("openvino", "onnxruntime")
BACKENDS = (*ENGINES, "torch")

torch.set_num_threads(1)  # torch's default threading is sometimes far slower than one thread


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Folders of tiny models by name."""
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def torch_models(tmp_path_factory: pytest.TempPathFactory) -> TorchModels:
    """Folders of tiny models for tasks that no engine takes, by name."""
    return TorchModels(tmp_path_factory.mktemp("torch-models"))


@pytest.fixture
def generations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many recordings each call of a model on an engine hears."""
    heard: list[int] = []
    generate = GeneratorModel.generate

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        heard.append(len(kwargs["input_features"]))
        return generate(self, *args, **kwargs)

    monkeypatch.setattr(GeneratorModel, "generate", counted)
    return heard


@pytest.fixture(scope="session")
def fp(models: Models) -> Callable[..., Any]:
    """`fastpipe.pipeline` on a tiny model by name; pipelines with equal arguments are made once."""

    @cache
    def make(task: str, name: str, backend: str = "auto", **options: Any) -> Any:
        return fastpipe.pipeline(task, model=models[name], backend=backend, **options)

    return lambda *args, **options: tasks.noted(make(*args, **options))


@pytest.fixture(scope="session")
def ref(models: Models) -> Callable[..., Any]:
    """The installed `transformers.pipeline` on a tiny model by name, or our class without our call path."""

    @cache
    def make(task: str, name: str, **options: Any) -> Any:
        dropped = restored.find(task)
        asked: dict[str, Any] = {"task": task}
        if dropped:
            asked = {**dropped.loading(task, None), "pipeline_class": dropped.pipeline_class}
        return transformers.pipeline(model=models[name], device="cpu", **asked, **options)

    return make


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artifact cache of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FASTPIPE_CACHE", str(folder))
    return folder


# docs/tasks.md: what runs where, from the tests that passed (`pytest --tasks FOLDER`).

_passed: dict[str, dict[str, str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tasks", help="folder to write what pipelines ran in tests that passed")


def pytest_runtest_setup() -> None:
    tasks.used.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Any:
    """Keep the pipelines that a test took from `fp`, once it passed."""
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.passed:
        return
    for pipe in tasks.used:
        plan = pipe.plan
        rejected = [choice.reason for choice in plan.rejected if choice.what == "backend" and choice.value != "torch"]
        asked = any("was asked for" in reason for reason in rejected)
        entry = {
            "transformers": transformers.__version__,
            "task": plan.task,
            "architecture": str((pipe.model.config.architectures or [type(pipe.model).__name__])[0]),
            "backend": plan.backend,
            "precision": plan.precision,
            "reason": "" if plan.backend != "torch" or asked else "; ".join(dict.fromkeys(rejected)),
        }
        _passed["".join(entry.values())] = entry


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (folder := session.config.getoption("--tasks")) and _passed:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{transformers.__version__}-{worker}.json").write_text(json.dumps(list(_passed.values())))
