"""Tiny seeded models for the tasks that only torch takes, with all that prepares their inputs. No network."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.pipelines import PIPELINE_REGISTRY

import fastpipe
from fastpipe.errors import FallbackWarning
from tests import tasks
from tests.media import SIDE, processor
from tests.models import Models, byte_pairs, without_token_types, wordpiece

_SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "initializer_range": 0.3,
}  # fmt: skip
_EYES = {**_SMALL, "image_size": SIDE, "patch_size": 8}
CHAT = (
    "{% for message in messages %}{{ message.role }}: {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ '<image>' if part.type == 'image' else part.text }}{% endfor %}"
    "{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


_LETTERS = "_ abcdefghijklmnopqrstuvwxyz'"


def _words(*symbols: str, limit: int = 64) -> Any:
    tokenizer = byte_pairs(limit)
    tokenizer.add_special_tokens({"pad_token": "<pad>", "additional_special_tokens": list(symbols)})
    return without_token_types(tokenizer)


def _vits() -> tuple[Any, ...]:
    """Speaks, letter by letter."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.json")
        vocabulary.write_text(json.dumps({letter: place for place, letter in enumerate(_LETTERS)}))
        tokenizer = transformers.VitsTokenizer(
            str(vocabulary), pad_token="_", unk_token="_", phonemize=False, is_uroman=False
        )
    config = transformers.VitsConfig(
        vocab_size=len(_LETTERS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=16, flow_size=16,
        spectrogram_bins=9, upsample_initial_channel=16, upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1]], prior_encoder_num_flows=1,
        prior_encoder_num_wavenet_layers=1, posterior_encoder_num_wavenet_layers=1, duration_predictor_num_flows=1,
        duration_predictor_flow_bins=3, duration_predictor_filter_channels=16, depth_separable_num_layers=1,
    )  # fmt: skip
    return transformers.VitsModel(config), tokenizer


def _musicgen() -> tuple[Any, ...]:
    """Writes codes of sounds, and makes sounds of them."""
    tokenizer = _words()
    pad = tokenizer.pad_token_id
    words = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, pad_token_id=pad,
        eos_token_id=0, decoder_start_token_id=pad,
    )  # fmt: skip
    sounds = transformers.EncodecConfig(
        target_bandwidths=[10.0], sampling_rate=16_000, audio_channels=1, num_filters=4, upsampling_ratios=[8, 4],
        hidden_size=8, codebook_size=16, codebook_dim=8, num_lstm_layers=1, use_causal_conv=False,
    )  # fmt: skip
    codes = transformers.MusicgenDecoderConfig(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=32, num_codebooks=2,
        max_position_embeddings=64, pad_token_id=16, bos_token_id=16, initializer_factor=0.3,
    )  # fmt: skip
    config = transformers.MusicgenConfig(
        text_encoder=words.to_dict(), audio_encoder=sounds.to_dict(), decoder=codes.to_dict()
    )
    model = transformers.MusicgenForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=16, pad_token_id=16, bos_token_id=16, do_sample=True, guidance_scale=3.0
    )
    return model, tokenizer, transformers.EncodecFeatureExtractor(feature_size=1, sampling_rate=16_000)


def _parakeet() -> tuple[Any, ...]:
    """Writes down speech as a transducer does: with each token, how many frames to go on by."""
    tokenizer = _words("<blank>")
    blank = tokenizer.convert_tokens_to_ids("<blank>")
    ears = transformers.ParakeetEncoderConfig(
        **_SMALL, conv_kernel_size=3, subsampling_conv_channels=8, subsampling_factor=4, num_mel_bins=16,
        max_position_embeddings=200,
    )  # fmt: skip
    config = transformers.ParakeetTDTConfig(
        encoder_config=ears, vocab_size=len(tokenizer), decoder_hidden_size=16, num_decoder_layers=1,
        pad_token_id=tokenizer.pad_token_id, blank_token_id=blank, durations=(0, 1, 2), max_symbols_per_step=2,
    )  # fmt: skip
    model = transformers.ParakeetForTDT(config)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=blank, bos_token_id=blank, pad_token_id=tokenizer.pad_token_id, max_new_tokens=8
    )
    sounds = transformers.ParakeetFeatureExtractor(feature_size=16)
    return model, transformers.ParakeetProcessor(sounds, tokenizer, decoder_type="tdt")


def _tapas() -> tuple[Any, ...]:
    """Picks cells, and says what is to be done with them.

    A table has more tokens than there are positions, which start again in every cell.
    """
    vocabulary = wordpiece().get_vocab()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "vocab.txt")
        file.write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)), encoding="utf-8")
        tokenizer = transformers.TapasTokenizer(str(file), model_max_length=64, drop_rows_to_fit=True)
    config = transformers.TapasConfig(
        **_SMALL, vocab_size=len(vocabulary), max_position_embeddings=12, num_aggregation_labels=3,
        aggregation_labels={0: "NONE", 1: "SUM", 2: "COUNT"}, no_aggregation_label_index=0,
    )  # fmt: skip
    model = transformers.TapasForQuestionAnswering(config)
    with torch.no_grad():
        model.output_bias += 9  # so that it picks some cells
    return model, tokenizer


def _layoutlm() -> tuple[Any, ...]:
    config = transformers.LayoutLMConfig(**_SMALL, vocab_size=30522, max_position_embeddings=64)
    return transformers.LayoutLMForQuestionAnswering(config), wordpiece(limit=64)


def _donut() -> tuple[Any, ...]:
    """Reads the words off the picture itself."""
    tokenizer = _words("<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>")
    eyes = transformers.DonutSwinConfig(
        image_size=SIDE, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4,
        initializer_range=0.3,
    )  # fmt: skip
    words = transformers.MBartConfig(
        vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64, init_std=0.3,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=0, eos_token_id=0, is_decoder=True, add_cross_attention=True,
    )  # fmt: skip
    marks = {"decoder_start_token_id": 0, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": 0}
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(eyes, words, **marks)
    model = transformers.VisionEncoderDecoderModel(config)
    # An answer is what comes before this mark, which random weights would never write.
    end = tokenizer.convert_tokens_to_ids("</s_answer>")
    model.generation_config = transformers.GenerationConfig(
        **{**marks, "eos_token_id": end}, exponential_decay_length_penalty=(6, 9.0)
    )
    return model, tokenizer, processor("Donut", size={"height": SIDE, "width": SIDE})


def _clap() -> tuple[Any, ...]:
    tokenizer = without_token_types(wordpiece(limit=64))
    ears = {
        "spec_size": 64, "num_mel_bins": 16, "patch_size": 4, "patch_stride": [4, 4], "patch_embeds_hidden_size": 16,
        "hidden_size": 32, "depths": [1, 1], "num_attention_heads": [2, 4], "window_size": 4, "num_classes": 4,
        "projection_dim": 16, "initializer_range": 0.3,
    }  # fmt: skip
    words = {
        **_SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 66, "projection_dim": 16, "pad_token_id": 0,
    }  # fmt: skip
    config = transformers.ClapConfig(text_config=words, audio_config=ears, projection_dim=16)
    sounds = transformers.ClapFeatureExtractor(
        feature_size=16, sampling_rate=16_000, max_length_s=1, fft_window_size=256, hop_length=64,
        truncation="rand_trunc", padding="repeatpad",
    )  # fmt: skip
    return transformers.ClapModel(config), tokenizer, sounds


def _owlvit() -> tuple[Any, ...]:
    tokenizer = _words(limit=16)
    words = {
        **_SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 0,
        "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    config = transformers.OwlViTConfig(text_config=words, vision_config=_EYES, projection_dim=32)
    images = processor("OwlViT", size={"height": SIDE, "width": SIDE}, do_center_crop=False)
    return transformers.OwlViTForObjectDetection(config), tokenizer, images


def _sam() -> tuple[Any, ...]:
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 64,
            "image_size": SIDE, "patch_size": 8, "global_attn_indexes": [1], "window_size": 2, "num_pos_feats": 8,
            "initializer_range": 0.3,
        },
        prompt_encoder_config={"hidden_size": 16, "image_size": SIDE, "patch_size": 8, "mask_input_channels": 4},
        mask_decoder_config={
            "hidden_size": 16, "mlp_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
        },
        initializer_range=0.3,
    )  # fmt: skip
    images = processor("Sam", size={"longest_edge": SIDE}, pad_size={"height": SIDE, "width": SIDE})
    return transformers.SamModel(config), images


def _superglue() -> tuple[Any, ...]:
    finder = transformers.SuperPointConfig(
        encoder_hidden_sizes=[8, 8, 8, 8], decoder_hidden_size=16, keypoint_decoder_dim=65, descriptor_decoder_dim=16,
        keypoint_threshold=0.0, max_keypoints=12, initializer_range=0.3,
    )  # fmt: skip
    config = transformers.SuperGlueConfig(
        keypoint_detector_config=finder, hidden_size=16, keypoint_encoder_sizes=[8, 16],
        gnn_layers_types=["self", "cross"], num_attention_heads=2, sinkhorn_iterations=5, matching_threshold=0.0,
        initializer_range=0.3,
    )  # fmt: skip
    images = processor("SuperGlue", size={"height": 48, "width": 64})
    return transformers.SuperGlueForKeypointMatching(config), images


def _llava() -> tuple[Any, ...]:
    """Its texts have more tokens than its pictures have patches: each patch is one of them."""
    tokenizer = _words("<image>", limit=256)
    words = transformers.LlamaConfig(
        **_SMALL, vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0,
        eos_token_id=0, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    image = tokenizer.convert_tokens_to_ids("<image>")
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_EYES), text_config=words, image_token_index=image,
        image_seq_length=16,
    )  # fmt: skip
    images = processor("CLIP", size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    whole = transformers.LlavaProcessor(
        images, tokenizer, patch_size=8, vision_feature_select_strategy="default", chat_template=CHAT,
        image_token="<image>", num_additional_image_tokens=1,
    )  # fmt: skip
    return transformers.LlavaForConditionalGeneration(config), whole


def _videomae() -> tuple[Any, ...]:
    config = transformers.VideoMAEConfig(**_EYES, num_frames=2, tubelet_size=2, num_labels=3)
    return transformers.VideoMAEForVideoClassification(config), processor("VideoMAE", size={"shortest_edge": SIDE})


def _listener() -> tuple[Any, ...]:
    """Takes sound and text, and writes text."""
    tokenizer = _words("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", limit=256)
    words = transformers.Qwen2Config(
        **_SMALL, vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0,
        eos_token_id=0, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    ears = transformers.Qwen2AudioEncoderConfig(
        num_mel_bins=16, encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=64, d_model=32,
        max_source_positions=50, init_std=0.3,
    )  # fmt: skip
    config = transformers.Qwen2AudioConfig(
        audio_config=ears, text_config=words, audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>")
    )
    sounds = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    whole = transformers.Qwen2AudioProcessor(sounds, tokenizer, chat_template=CHAT)
    return transformers.Qwen2AudioForConditionalGeneration(config), whole


def _chooser() -> tuple[Any, ...]:
    """A chat model: what it thinks of each of several answers is asked of its next token."""
    from transformers.decision import DecisionConfig

    tokenizer = _words(limit=256)
    tokenizer.chat_template = CHAT
    config = transformers.LlamaConfig(
        **_SMALL, vocab_size=len(tokenizer), num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0,
        eos_token_id=0, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), tokenizer, DecisionConfig(labels={"noul": ["Y", "N"]})


MAKERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "vits": _vits,
    "musicgen": _musicgen,
    "parakeet": _parakeet,
    "tapas": _tapas,
    "layoutlm": _layoutlm,
    "donut": _donut,
    "clap": _clap,
    "owlvit": _owlvit,
    "sam": _sam,
    "superglue": _superglue,
    "llava": _llava,
    "videomae": _videomae,
    "listener": _listener,
    "chooser": _chooser,
}


class TorchModels(Models):
    """Folders of these models, each made when first asked for."""

    def save(self, name: str, folder: Path, seed: int = 0) -> Path:
        """Save one with all that prepares its inputs."""
        if name not in MAKERS:
            return super().save(name, folder, seed)
        torch.manual_seed(seed)
        model, *others = MAKERS[name]()
        for part in (model.eval(), *others):
            part.save_pretrained(folder)
        return folder


def both(models: TorchModels, task: str, model: str) -> tuple[Any, Any]:
    """The pipelines of fastpipe, which says why it runs on torch, and of transformers."""
    if task not in PIPELINE_REGISTRY.supported_tasks:
        pytest.skip(f"transformers {transformers.__version__} has no {task}")
    with pytest.warns(FallbackWarning, match=f"{task} has no engine path yet") as caught:
        pipe = fastpipe.pipeline(task, model=models[model])
    assert len([one for one in caught if one.category is FallbackWarning]) == 1
    return tasks.noted(pipe), transformers.pipeline(task, model=models[model], device="cpu")
