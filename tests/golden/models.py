"""Tiny models for the tasks that transformers 5 dropped, with the same weights next to transformers 4 and 5.

A seed is not enough for that: 5 initializes some models in another order, and has other names for some parameters. The
order in which a model has its parameters is the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertForQuestionAnswering,
    BertJapaneseTokenizer,
    BlipConfig,
    BlipForConditionalGeneration,
    BlipForQuestionAnswering,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    GitConfig,
    GitForCausalLM,
    GPT2Config,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    Swin2SRConfig,
    Swin2SRForImageSuperResolution,
    T5Config,
    T5ForConditionalGeneration,
    ViltConfig,
    ViltForQuestionAnswering,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

from tests.models import Models, bert_config, byte_pairs, without_token_types, wordpiece

RIVER = "A small river runs past the old mill in Lyon. Anna built it in 1895, and it turns when it rains."


def _tokenizer(limit: int = 64) -> PreTrainedTokenizerFast:
    tokenizer = byte_pairs(limit)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    return without_token_types(tokenizer)


def _processor(name: str) -> Any:
    """transformers 5 has one image processor per image library; the one without a suffix needs torchvision there."""
    return getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)


def _distilled() -> tuple[Any, ...]:
    """An extractive model that takes no token types."""
    config = DistilBertConfig(
        vocab_size=30522, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=128
    )
    return DistilBertForQuestionAnswering(config), without_token_types(wordpiece())


def _by_words() -> tuple[Any, ...]:
    """An extractive model whose tokenizer is a slow one."""
    words = [
        *RIVER.split(),
        *"abcdefghijklmnopqrstuvwxyzAWL0123456789.,?",
        *(f"##{c}" for c in "abcdefghilmnorstuvw589,.?"),
    ]
    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.txt")
        vocabulary.write_text("\n".join(symbols), encoding="utf-8")
        tokenizer = BertJapaneseTokenizer(str(vocabulary), word_tokenizer_type="basic", model_max_length=128)
    return BertForQuestionAnswering(bert_config(vocab_size=len(symbols))), without_token_types(tokenizer)


def _summarizer() -> tuple[Any, ...]:
    tokenizer = _tokenizer()
    pad = tokenizer.pad_token_id
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=128, init_std=0.4,
        pad_token_id=pad, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0, forced_eos_token_id=0,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    model.generation_config.update(max_length=30, min_length=4, no_repeat_ngram_size=3, num_beams=2)
    return model, tokenizer


def _translator() -> tuple[Any, ...]:
    tokenizer = _tokenizer()
    pad = tokenizer.pad_token_id
    config = MarianConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=128, init_std=0.4,
        pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0,
    )  # fmt: skip
    model = MarianMTModel(config)
    model.generation_config.update(bad_words_ids=[[pad]], num_beams=6, max_length=24)
    return model, tokenizer


def _prefixed() -> tuple[Any, ...]:
    """A T5, with prefixes and lengths of its own for some tasks, as the first ones had."""
    tokenizer = _tokenizer(limit=512)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, initializer_factor=2.0,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=0, decoder_start_token_id=tokenizer.pad_token_id,
        task_specific_params={
            "summarization": {"prefix": "summarize: ", "max_length": 40, "num_beams": 3, "early_stopping": True},
            "translation_en_to_fr": {"prefix": "translate English to French: ", "max_length": 20, "num_beams": 2},
        },
    )  # fmt: skip
    return T5ForConditionalGeneration(config), tokenizer


def _answerer() -> tuple[Any, ...]:
    answers = ("yes", "no", "red", "blue", "two", "a dog", "outside")
    config = ViltConfig(
        vocab_size=30522, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        image_size=32, patch_size=8, max_position_embeddings=40, initializer_range=0.3, num_labels=len(answers),
        id2label=dict(enumerate(answers)), label2id={answer: label for label, answer in enumerate(answers)},
    )  # fmt: skip
    images = _processor("ViltImageProcessor")(size={"shortest_edge": 32}, size_divisor=8)
    return ViltForQuestionAnswering(config), wordpiece(limit=40), images


def _captioner() -> tuple[Any, ...]:
    tokenizer = _tokenizer()
    eyes = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
        initializer_range=0.3,
    )  # fmt: skip
    words = GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        eyes, words, decoder_start_token_id=0, pad_token_id=tokenizer.pad_token_id, eos_token_id=0
    )
    model = VisionEncoderDecoderModel(config)
    model.generation_config.update(decoder_start_token_id=0, pad_token_id=tokenizer.pad_token_id, eos_token_id=0)
    return model, tokenizer, _processor("ViTImageProcessor")(size={"height": 32, "width": 32})


def _blip(kind: type) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        tokenizer = without_token_types(wordpiece(limit=40))
        words = {
            "vocab_size": len(tokenizer), "hidden_size": 16, "encoder_hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 60, "bos_token_id": 101,
            "sep_token_id": 102, "eos_token_id": 102, "pad_token_id": 0,
        }  # fmt: skip
        eyes = {
            "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
            "image_size": 32, "patch_size": 8,
        }  # fmt: skip
        images = _processor("BlipImageProcessor")(size={"height": 32, "width": 32})
        return kind(BlipConfig(text_config=words, vision_config=eyes)), tokenizer, images

    return make


def _git() -> tuple[Any, ...]:
    tokenizer = without_token_types(wordpiece(limit=40))
    eyes = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32,
        "patch_size": 8,
    }  # fmt: skip
    config = GitConfig(
        vision_config=eyes, vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=60,
    )  # fmt: skip
    images = _processor("CLIPImageProcessor")(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return GitForCausalLM(config), tokenizer, images


def _enlarger() -> tuple[Any, ...]:
    config = Swin2SRConfig(
        image_size=16, embed_dim=16, depths=[2], num_heads=[2], window_size=4, upscale=2, initializer_range=0.1
    )
    return Swin2SRForImageSuperResolution(config), _processor("Swin2SRImageProcessor")(size_divisor=4)


MAKERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "distilled": _distilled,
    "by words": _by_words,
    "summarizer": _summarizer,
    "translator": _translator,
    "prefixed": _prefixed,
    "answerer": _answerer,
    "captioner": _captioner,
    "blip": _blip(BlipForConditionalGeneration),
    "blip answers": _blip(BlipForQuestionAnswering),
    "git": _git,
    "enlarger": _enlarger,
}


SCALES = {"enlarger": 0.04}  # so that few values of its images are out of range


def _fill(model: torch.nn.Module, seed: int, scale: float) -> None:
    """Fill all matrices, in order; vectors start as zeros or ones in either version."""
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=numbers) * scale)


class GoldenModels(Models):
    """Folders of these models, and of those of `tests.models`."""

    def save(self, name: str, folder: Path, seed: int = 0) -> Path:
        """Save one with all that prepares its inputs."""
        if name not in MAKERS:
            return super().save(name, folder, seed)
        model, *others = MAKERS[name]()
        _fill(model, seed, SCALES.get(name, 0.3))
        for part in (model, *others):
            part.save_pretrained(folder)
        return folder
