"""From a text to a text: summarization, translation, and whatever else an encoder-decoder was trained for."""

from __future__ import annotations

import enum
import logging
import warnings
from typing import Any, ClassVar

from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

from fastpipe.pipelines.restored.base import GeneratingPipeline, Steps, said

logger = logging.getLogger("fastpipe")


class ReturnType(enum.Enum):
    """What a result holds."""

    TENSORS = 0
    TEXT = 1


class Text2TextGenerationPipeline(GeneratingPipeline):
    """Generates a text for each text.

    A result is a list of `{"generated_text": str}`, one for each sequence asked for, or of
    `{"generated_token_ids": int64 (tokens,)}` with `return_tensors=True`. A list of texts, with one sequence for each,
    gives a flat list.

    Parameters of a call: `return_tensors`, `return_text`, `return_type`, `clean_up_tokenization_spaces`, `truncation`,
    `stop_sequence`, and all of `generate`. By default there are 256 new tokens at most, from 4 beams.
    """

    _load_tokenizer = True
    _usual: ClassVar[dict[str, Any]] = {"max_new_tokens": 256, "num_beams": 4}
    return_name = "generated"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_model_type(MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)

    def _sanitize_parameters(
        self,
        return_tensors: bool | None = None,
        return_text: bool | None = None,
        return_type: ReturnType | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        truncation: Any = None,
        stop_sequence: str | None = None,
        **generate: Any,
    ) -> Steps:
        if return_type is None and return_tensors is not None:
            return_type = ReturnType.TENSORS if return_tensors else ReturnType.TEXT
        if stop_sequence is not None:
            first, *others = self.tokenizer.encode(stop_sequence, add_special_tokens=False)
            if others:
                warnings.warn(
                    f"stop_sequence={stop_sequence!r} has several tokens: generation stops at the first of them"
                )
            generate["eos_token_id"] = first
        after = said(return_type=return_type, clean_up_tokenization_spaces=clean_up_tokenization_spaces)
        return said(truncation=truncation), generate, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Generate.

        Args:
            args: A text, a list of texts, or a generator or Dataset of them.
            kwargs: Parameters of the call.
        """
        results = super().__call__(*args, **kwargs)
        texts = args[0]
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return [result[0] for result in results] if all(len(result) == 1 for result in results) else results
        return results

    def check_inputs(self, input_length: int, min_length: int, max_length: int) -> bool:
        """Say what is unusual about the lengths; anything goes here.

        Args:
            input_length: Tokens of the input.
            min_length: Tokens of the shortest result.
            max_length: Tokens of the longest.
        """
        return True

    def preprocess(self, inputs: Any, truncation: Any = False) -> Any:
        """Tokenize one text, or several that are generated for together."""
        return self._parse_and_tokenize(inputs, truncation=truncation)

    def _parse_and_tokenize(self, inputs: Any, truncation: Any) -> Any:
        prefix = self.prefix or ""
        several = isinstance(inputs, list)
        if several:
            if self.tokenizer.pad_token_id is None:
                raise ValueError(
                    "texts of different lengths need a padding token, and the tokenizer has no pad_token_id"
                )
            inputs = [prefix + text for text in inputs]
        elif isinstance(inputs, str):
            inputs = prefix + inputs
        else:
            raise TypeError(f"{inputs!r} ({type(inputs).__name__}) is neither a text nor a list of texts")
        encoded = self.tokenizer(inputs, padding=several, truncation=truncation, return_tensors="pt")
        encoded.pop("token_type_ids", None)  # some tokenizers make them, no generator takes them
        return encoded

    def _forward(self, model_inputs: Any, **generate: Any) -> dict[str, Any]:
        rows, tokens = model_inputs["input_ids"].shape
        settings = self.generation_config
        lengths = [generate.get(name, getattr(settings, name, None)) for name in ("min_length", "max_length")]
        self.check_inputs(tokens, lengths[0] or 0, 20 if lengths[1] is None else lengths[1])
        ids = self._generate(generate, **model_inputs)
        return {"output_ids": ids.reshape(rows, len(ids) // rows, *ids.shape[1:])}

    def postprocess(
        self,
        model_outputs: Any,
        return_type: ReturnType = ReturnType.TEXT,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, Any]]:
        """Make the results of one input."""
        sequences = model_outputs["output_ids"][0]
        if return_type == ReturnType.TENSORS:
            return [{f"{self.return_name}_token_ids": ids} for ids in sequences]
        return [
            {
                f"{self.return_name}_text": self.tokenizer.decode(
                    ids, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
                )
            }
            for ids in sequences
        ]


class SummarizationPipeline(Text2TextGenerationPipeline):
    """Summarizes texts: results are named "summary_text" and "summary_token_ids"."""

    return_name = "summary"

    def check_inputs(self, input_length: int, min_length: int, max_length: int) -> bool:
        """Say when the lengths cannot be meant, or a summary may be longer than its text."""
        if max_length < min_length:
            logger.warning("min_length=%s is more than max_length=%s", min_length, max_length)
        if input_length < max_length:
            logger.warning(
                "the text has %s tokens, its summary may have %s: summaries are usually shorter, as with max_length=%s",
                input_length,
                max_length,
                input_length // 2,
            )
        return True


class TranslationPipeline(Text2TextGenerationPipeline):
    """Translates texts: results are named "translation_text" and "translation_token_ids".

    `src_lang` and `tgt_lang` say from what language to what for a model that knows several. They are given at
    construction, in a call, or by the name of the task, as in `translation_en_to_fr`.
    """

    return_name = "translation"

    def _sanitize_parameters(  # type: ignore[override]
        self, src_lang: str | None = None, tgt_lang: str | None = None, **kwargs: Any
    ) -> Steps:
        before, generate, after = super()._sanitize_parameters(**kwargs)
        if src_lang is None and tgt_lang is None:
            parts = str(kwargs.get("task", self.task)).split("_")
            if len(parts) == 4:
                _, src_lang, _, tgt_lang = parts
        return {**before, **said(src_lang=src_lang, tgt_lang=tgt_lang)}, generate, after

    def check_inputs(self, input_length: int, min_length: int, max_length: int) -> bool:
        """Say when a translation may be cut off."""
        if input_length > 0.9 * max_length:
            logger.warning(
                "the text has %s tokens, and its translation at most %s: a larger max_length leaves it more room",
                input_length,
                max_length,
            )
        return True

    def preprocess(
        self, inputs: Any, truncation: Any = False, src_lang: str | None = None, tgt_lang: str | None = None
    ) -> Any:
        """Tokenize one text as the tokenizer does for these languages, if it does so at all."""
        build = getattr(self.tokenizer, "_build_translation_inputs", None)
        if build is None:
            return self._parse_and_tokenize(inputs, truncation=truncation)
        return build(inputs, return_tensors="pt", truncation=truncation, src_lang=src_lang, tgt_lang=tgt_lang)
