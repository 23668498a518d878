"""From an image: an answer to a question about it, a text, or another image."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers.image_utils import load_image
from transformers.models.auto import modeling_auto
from transformers.pipelines.pt_utils import KeyDataset

from fastpipe.pipelines.restored.base import GeneratingPipeline, RestoredPipeline, Steps, said

logger = logging.getLogger("fastpipe")


class VisualQuestionAnsweringPipeline(GeneratingPipeline):
    """Answers questions about images.

    A result is a list of `{"score": float, "answer": str}`, the best first, or of `{"answer": str}` where the model
    generates. Parameters of a call: `top_k` (5 by default), `padding`, `truncation`, `timeout` (s).
    """

    _load_tokenizer = True
    _load_image_processor = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_model_type(modeling_auto.MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING_NAMES)

    def _sanitize_parameters(
        self, top_k: int | None = None, padding: Any = None, truncation: Any = None, timeout: Any = None, **others: Any
    ) -> Steps:
        return said(padding=padding, truncation=truncation, timeout=timeout), {}, said(top_k=top_k)

    def __call__(self, image: Any, question: Any = None, **kwargs: Any) -> Any:
        """Answer questions about images: each of the questions about each of the images.

        Args:
            image: An image, path or URL; a list or `KeyDataset` of them; or a dict with an "image" and a "question", or
                a list, generator or Dataset of such dicts.
            question: A text or a list of texts.
            kwargs: Parameters of the call.
        """
        one_image, one_question = isinstance(image, (Image.Image, str)), isinstance(question, str)
        images = isinstance(image, KeyDataset) or _all_are(image, (Image.Image, str))
        if (one_image or images) and (one_question or _all_are(question, str)):
            pairs = [
                {"image": each, "question": asked}
                for asked in ([question] if one_question else question)
                for each in ([image] if one_image else image)
            ]
            return super().__call__(pairs[0] if one_image and one_question else pairs, **kwargs)
        return super().__call__(image, **kwargs)

    def preprocess(self, inputs: Any, padding: Any = False, truncation: Any = False, timeout: Any = None) -> Any:
        """Prepare one image and its question."""
        image = load_image(inputs["image"], timeout=timeout)
        prepared = self.tokenizer(inputs["question"], return_tensors="pt", padding=padding, truncation=truncation)
        prepared.update(self.image_processor(images=image, return_tensors="pt").to(self.dtype))
        return prepared

    def _forward(self, model_inputs: Any, **generate: Any) -> Any:
        return self._generate(generate, **model_inputs) if self.model.can_generate() else self.model(**model_inputs)

    def postprocess(self, model_outputs: Any, top_k: int = 5) -> list[dict[str, Any]]:
        """Make the answers to one question."""
        if self.model.can_generate():
            return [{"answer": self.tokenizer.decode(ids, skip_special_tokens=True).strip()} for ids in model_outputs]
        config = self.model.config
        best = model_outputs.logits[0].sigmoid().topk(min(top_k, config.num_labels))
        answers = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [{"score": score, "answer": config.id2label[label]} for score, label in answers]


def _all_are(items: Any, kind: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, kind) for item in items)


class ImageToTextPipeline(GeneratingPipeline):
    """Describes images: a result is a list of `{"generated_text": str}`.

    Parameters of a call: `max_new_tokens`, `generate_kwargs`, `prompt`, `timeout` (s).
    """

    _load_tokenizer = True
    _load_image_processor = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_model_type(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)

    def _sanitize_parameters(
        self,
        max_new_tokens: int | None = None,
        generate_kwargs: dict[str, Any] | None = None,
        prompt: str | None = None,
        timeout: float | None = None,
    ) -> Steps:
        generate = dict(generate_kwargs or {})
        if max_new_tokens is not None:
            if "max_new_tokens" in generate:
                raise ValueError("max_new_tokens is given twice: by itself and in generate_kwargs")
            generate["max_new_tokens"] = max_new_tokens
        return said(prompt=prompt, timeout=timeout), generate, {}

    def __call__(self, inputs: Any = None, **kwargs: Any) -> Any:
        """Describe images.

        Args:
            inputs: An image, path or URL, or a list, generator or Dataset of them. `images=` is another name.
            kwargs: Parameters of the call.

        Raises:
            ValueError: There is none.
        """
        inputs = kwargs.pop("images", inputs)
        if inputs is None:
            raise ValueError("there is no image to describe: give one as the first argument")
        return super().__call__(inputs, **kwargs)

    def preprocess(self, image: Any, prompt: str | None = None, timeout: Any = None) -> Any:
        """Prepare one image, and the prompt as its model takes it.

        Raises:
            ValueError: The prompt is no text, or the model takes none.
        """
        image = load_image(image, timeout=timeout)
        family = self.model.config.model_type
        if prompt is not None and not isinstance(prompt, str):
            raise ValueError(f"prompt={prompt!r} ({type(prompt).__name__}) is not a single text")
        if prompt is not None and family == "vision-encoder-decoder":
            raise ValueError(f"a model of type {family} takes no prompt")
        header = {"header_text": prompt} if prompt is not None and family == "pix2struct" else {}
        prepared = self.image_processor(images=image, return_tensors="pt", **header).to(self.dtype)
        if family == "git":
            prepared["input_ids"] = None if prompt is None else self._git_prompt(prompt)
        elif prompt is not None and not header:
            prepared.update(self.tokenizer(prompt, return_tensors="pt"))
        return prepared

    def _git_prompt(self, prompt: str) -> torch.Tensor:
        """Tokenize a prompt that the caption continues: it begins, and does not end."""
        ids = self.tokenizer(text=prompt, add_special_tokens=False).input_ids
        return torch.tensor([[self.tokenizer.cls_token_id, *ids]])

    def _forward(self, model_inputs: Any, **generate: Any) -> Any:
        inputs = dict(model_inputs)
        ids = inputs.get("input_ids")
        if isinstance(ids, list) and all(each is None for each in ids):  # a batch of images without prompts
            inputs["input_ids"] = None
        first = inputs.pop(self.model.main_input_name)  # models have several names for it
        return self._generate(generate, first, **inputs)

    def postprocess(self, model_outputs: Any) -> list[dict[str, Any]]:
        """Make the texts for one image."""
        return [{"generated_text": self.tokenizer.decode(ids, skip_special_tokens=True)} for ids in model_outputs]


class ImageToImagePipeline(RestoredPipeline):
    """Makes an image of an image, such as a larger one. Parameters of a call: `timeout` (s), `head_mask`."""

    _load_image_processor = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_model_type(modeling_auto.MODEL_FOR_IMAGE_TO_IMAGE_MAPPING_NAMES)

    def _sanitize_parameters(self, **kwargs: Any) -> Steps:
        return said(timeout=kwargs.get("timeout")), said(head_mask=kwargs.get("head_mask")), {}

    def __call__(self, images: Any, **kwargs: Any) -> Any:
        """Make an image of each image.

        Args:
            images: An image, path or URL, or a list, generator or Dataset of them.
            kwargs: Parameters of the call.
        """
        return super().__call__(images, **kwargs)

    def preprocess(self, image: Any, timeout: Any = None) -> Any:
        """Prepare one image."""
        return self.image_processor(images=[load_image(image, timeout=timeout)], return_tensors="pt").to(self.dtype)

    def _forward(self, model_inputs: Any, **options: Any) -> Any:
        return self.model(**model_inputs, **options)

    def postprocess(self, model_outputs: Any) -> Any:
        """Make the image: values from 0 to 1, channels first, become bytes, channels last."""
        made = [
            Image.fromarray(np.moveaxis((image.squeeze().float().clamp(0, 1) * 255).round().byte().numpy(), 0, -1))
            for image in model_outputs.reconstruction
        ]
        return made if len(made) > 1 else made[0]
