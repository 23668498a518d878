"""What looks at pictures in W8, inside its worker: a model of ViT-base's size in each library, and seeded pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NAME = "vit-base"
WEIGHTS = "random (ViT-base's size, seeded)"
TASK = "image-classification"
_MODES = ("RGB", "RGB", "L", "RGBA")
_SIDES = (96, 800)
_CELLS = 8
_BATCH = 8
_CLASSES = 1000

Setting = Mapping[str, int]


def pictures(count: int) -> list[Any]:
    """Draw pictures of mixed sizes and modes: coarse patches of colour with noise on them, the same in every run."""
    from PIL import Image

    chance = np.random.default_rng(0)
    drawn = []
    for number in range(count):
        width, height = (int(side) for side in chance.integers(*_SIDES, size=2))
        coarse = Image.fromarray(chance.integers(0, 256, (_CELLS, _CELLS, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = np.clip(smooth + chance.integers(-20, 21, smooth.shape), 0, 255).astype(np.uint8)
        drawn.append(Image.fromarray(noisy).convert(_MODES[number % len(_MODES)]))
    return drawn


def folder_in(workspace: Path) -> Path:
    """Give the folder that the model has, or will have."""
    return workspace / "models" / NAME


def save(workspace: Path) -> str:
    """Write the model with random weights and its image processor, unless the folder is there; give the folder."""
    folder = folder_in(workspace)
    if not (folder / "preprocessor_config.json").is_file():
        import torch
        import transformers

        torch.manual_seed(0)
        config = transformers.ViTConfig(num_labels=_CLASSES)
        transformers.ViTForImageClassification(config).save_pretrained(folder)
        transformers.ViTImageProcessor().save_pretrained(folder)
    return str(folder)


def _processor(folder: str) -> Any:
    from transformers import ViTImageProcessor

    return ViTImageProcessor.from_pretrained(folder)  # the one that needs no torchvision


def _fastpipe(folder: str, workspace: Path, backend: str, precision: str) -> tuple[Any, str]:
    import fastpipe

    said: dict[str, Any] = {} if precision == "auto" else {"precision": precision, "accuracy": None}
    pipe = fastpipe.pipeline(TASK, model=folder, image_processor=_processor(folder), backend=backend, **said)
    if pipe.plan.backend != backend or (said and pipe.plan.precision != precision):
        raise RuntimeError(f"{backend} at {precision} was asked for, and something else runs:\n{pipe.plan}")
    return pipe, f"{backend}, {pipe.plan.precision}"


def _transformers(folder: str, workspace: Path) -> tuple[Any, str]:
    import torch
    import transformers

    given = {"model": folder, "image_processor": _processor(folder), "device": "cpu", "dtype": torch.float32}
    return transformers.pipeline(TASK, **given), "weights and activations fp32, torch eager"


def _optimum_openvino(folder: str, workspace: Path, quantized: bool) -> tuple[Any, str]:
    from optimum.intel import OVModelForImageClassification

    exported = workspace / "optimum" / f"{NAME}-openvino-{'int8' if quantized else 'fp32'}"
    if not (exported / "openvino_model.xml").is_file():
        made = OVModelForImageClassification.from_pretrained(folder, export=True, compile=False, load_in_8bit=quantized)
        made.save_pretrained(exported)
    # The engine's default would run fp32 weights in bf16 where the CPU has it, which is another precision.
    hints = {} if quantized else {"INFERENCE_PRECISION_HINT": "f32"}
    engine = OVModelForImageClassification.from_pretrained(exported, ov_config=hints)
    return _around(engine, folder), "weights int8, the rest the engine's own choice" if quantized else "fp32"


def _optimum_onnxruntime(folder: str, workspace: Path) -> tuple[Any, str]:
    from optimum.onnxruntime import ORTModelForImageClassification

    exported = workspace / "optimum" / f"{NAME}-onnx"
    if not (exported / "model.onnx").is_file():
        ORTModelForImageClassification.from_pretrained(folder, export=True).save_pretrained(exported)
    return _around(ORTModelForImageClassification.from_pretrained(exported), folder), "weights and activations fp32"


def _around(engine: Any, folder: str) -> Any:
    from transformers import pipeline

    return pipeline(TASK, model=engine, image_processor=_processor(folder), device="cpu")


Loader = Callable[..., tuple[Any, str]]

# By contender: who loads it, and with what.
LOADERS: Mapping[str, tuple[Loader, Mapping[str, Any]]] = {
    **{
        f"fastpipe-{backend}-{precision}": (_fastpipe, {"backend": backend, "precision": precision})
        for backend in ("openvino", "onnxruntime")
        for precision in ("auto", "fp32")
    },
    "transformers-fp32": (_transformers, {}),
    "optimum-onnxruntime-fp32": (_optimum_onnxruntime, {}),
    "optimum-openvino-fp32": (_optimum_openvino, {"quantized": False}),
    "optimum-openvino-int8": (_optimum_openvino, {"quantized": True}),
}


def settings(contender: str, cores: int) -> list[dict[str, int]]:
    """Give what is probed; fastpipe chooses by itself, Optimum's engines take all cores."""
    if contender.startswith("fastpipe"):
        return [{}]
    threads = [{"threads": number} for number in dict.fromkeys((cores, 1))] if contender.startswith("trans") else [{}]
    return [{**each, "batch_size": batch} for batch in (1, _BATCH) for each in threads]


class Loaded:
    """A contender that is ready, with the pictures.

    Args:
        workspace: Folder for everything that a run makes.
        contender: One of `LOADERS`.
        count: How many pictures there are.
    """

    def __init__(self, workspace: str, contender: str, count: int) -> None:
        load, given = LOADERS[contender]
        self._pipe, self.detail = load(save(Path(workspace)), Path(workspace), **given)
        self.pictures = pictures(count)

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know."""
        return {"detail": self.detail}

    def __call__(self, shown: Sequence[Any], setting: Setting) -> list[dict[str, float]]:
        """Classify pictures; give the score of every class for each."""
        given = dict(setting)
        if "threads" in given:
            import torch

            torch.set_num_threads(given.pop("threads"))
        answers = self._pipe(list(shown), top_k=_CLASSES, **given)
        return [{each["label"]: float(each["score"]) for each in answer} for answer in answers]
