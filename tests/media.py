"""Tiny seeded models of pictures and sounds, with their processors, and what to show them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

from fastpipe.precision import synthetic

SIDE = 32
_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_WIDE = {"initializer_range": 0.3}


def pictures() -> list[Image.Image]:
    """Pictures of several modes and sizes, with one twice."""
    red = [Image.fromarray(p).resize((p.shape[1] // 3, p.shape[0] // 3)) for p in synthetic.pictures(7)]
    return [*red, red[1].convert("L"), red[2].convert("RGBA").resize((40, 80)), red[3].convert("P"), red[0]]


def clips() -> list[np.ndarray[Any, Any]]:
    """Waveforms of a quarter of a second and more, some of equal length, with one twice."""
    sounds = [wave[: 4000 + 800 * (n % 3)] for n, wave in enumerate(synthetic.sounds(6))]
    return [*sounds, sounds[1].copy()]


def labels(*names: str) -> dict[str, Any]:
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {n: i for i, n in enumerate(names)},
    }


COLOURS = labels("red", "green", "blue", "grey")


def processor(name: str, **options: Any) -> Any:
    """An image processor that needs no torchvision: transformers 5 has one per image library."""
    found = getattr(transformers, f"{name}ImageProcessorPil", None) or getattr(transformers, f"{name}ImageProcessor")
    return found(**options)


class Together:
    """Several components that are saved into one folder."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def save_pretrained(self, folder: Any) -> None:
        for part in self.parts:
            part.save_pretrained(folder)


def _square(name: str, side: int = SIDE, **options: Any) -> Any:
    return processor(name, size={"height": side, "width": side}, **options)


def _swin() -> Any:
    config = transformers.SwinConfig(
        image_size=SIDE, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, **_WIDE, **COLOURS
    )
    return transformers.SwinForImageClassification(config), _square("ViT")


def _convnext() -> Any:
    config = transformers.ConvNextConfig(
        num_stages=2,
        hidden_sizes=[8, 16],
        depths=[1, 2],
        image_size=SIDE,
        layer_scale_init_value=1.0,
        **_WIDE,
        **COLOURS,
    )
    return transformers.ConvNextForImageClassification(config), processor("ConvNext", size={"shortest_edge": SIDE})


def _dinov2() -> Any:
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=SIDE, patch_size=8, **_WIDE
    )
    return transformers.Dinov2Model(config), processor(
        "Bit", size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, do_center_crop=True
    )


def _yolos() -> Any:
    config = transformers.YolosConfig(
        **_SMALL, **_WIDE, image_size=[32, 48], patch_size=8, num_detection_tokens=6, use_mid_position_embeddings=False,
        **COLOURS,
    )  # fmt: skip
    return transformers.YolosForObjectDetection(config), processor(
        "Yolos", size={"shortest_edge": 32, "longest_edge": 64}
    )


def _detr() -> Any:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, num_queries=5,
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32,
        encoder_attention_heads=4, decoder_attention_heads=4, init_std=0.3, **COLOURS,
    )  # fmt: skip
    return transformers.DetrForObjectDetection(config), processor(
        "Detr", size={"shortest_edge": 64, "longest_edge": 96}
    )


def _segformer() -> Any:
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16,
        **_WIDE, **COLOURS,
    )  # fmt: skip
    return transformers.SegformerForSemanticSegmentation(config), _square("Segformer", 64)


def _dpt() -> Any:
    config = transformers.DPTConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64, image_size=SIDE, patch_size=8,
        backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=8, is_hybrid=False,
        initializer_range=0.1,
    )  # fmt: skip
    return transformers.DPTForDepthEstimation(config), _square("DPT")


def _clip() -> Any:
    from tests.models import byte_pairs

    tokenizer = byte_pairs(limit=40)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
    small = {**_SMALL, "projection_dim": 16, "initializer_range": 0.3}
    config = transformers.CLIPConfig(
        text_config={**small, "vocab_size": len(tokenizer), "max_position_embeddings": 40, "eos_token_id": 2,
                     "bos_token_id": 0, "pad_token_id": tokenizer.pad_token_id},
        vision_config={**small, "image_size": SIDE, "patch_size": 8}, projection_dim=16,
    )  # fmt: skip
    images = processor("CLIP", size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return transformers.CLIPModel(config), Together(images, tokenizer)


_SPEECH = {
    **_SMALL, **_WIDE, "conv_dim": (16, 16, 16), "conv_kernel": (10, 8, 4), "conv_stride": (8, 8, 5),
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 3,
}  # fmt: skip
_SYMBOLS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrst"]


def _listener() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.json")
        vocabulary.write_text(json.dumps({symbol: number for number, symbol in enumerate(_SYMBOLS)}))
        tokenizer = transformers.Wav2Vec2CTCTokenizer(str(vocabulary))
    return transformers.Wav2Vec2Processor(transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True), tokenizer)


def _hubert() -> Any:
    """Normalizes layer by layer, and takes a mask."""
    config = transformers.HubertConfig(**_SPEECH, feat_extract_norm="layer", vocab_size=len(_SYMBOLS), pad_token_id=0)
    return transformers.HubertForCTC(config), _listener()


def _wav2vec2_classifier() -> Any:
    config = transformers.Wav2Vec2Config(**_SPEECH, feat_extract_norm="group", **labels("yes", "no", "stop"))
    features = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=False)
    return transformers.Wav2Vec2ForSequenceClassification(config), features


def _ast() -> Any:
    config = transformers.ASTConfig(
        **_SMALL, **_WIDE, patch_size=8, max_length=64, num_mel_bins=32, frequency_stride=8, time_stride=8,
        **labels("yes", "no", "stop"),
    )  # fmt: skip
    features = transformers.ASTFeatureExtractor(max_length=64, num_mel_bins=32)
    return transformers.ASTForAudioClassification(config), features


def _trained(make: Callable[[], Any]) -> Callable[[], Any]:
    """Give batch norms statistics that matter, as training would."""

    def made() -> Any:
        model, prepare = make()
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
                torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
        return model, prepare

    return made


MAKERS: dict[str, Callable[[], Any]] = {
    "swin": _swin,
    "convnext": _convnext,
    "dinov2": _dinov2,
    "yolos": _yolos,
    "detr": _trained(_detr),
    "segformer": _trained(_segformer),
    "dpt": _trained(_dpt),
    "clip": _clip,
    "hubert": _hubert,
    "wav2vec2cls": _wav2vec2_classifier,
    "ast": _ast,
}
