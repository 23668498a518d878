"""What no pipeline on the same engine or chip can beat, measured in the same rounds."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.loaders import Loaded
from fastpipe.batching.streams import in_order

_SIDE = 2048
_PRODUCTS = 24


# For the texts of the last question, since a round asks what the round before did: the batches that fastpipe made of
# them, and a tokenizer of its own, whose settings nobody else relies on.
_prepared: dict[tuple[str, ...], tuple[tuple[list[dict[str, Any]], int], Any]] = {}


def bare_batches(loaded: Loaded, texts: list[str]) -> dict[str, Any]:
    """Time the engine alone, with fastpipe's runner, on the batches that fastpipe makes of the texts.

    Tokenizing, sorting and padding are done before the clock starts, and nothing is done with the outputs. Beside it
    stands what the tokenizer alone takes for all texts in one `encode_batch`, which makes no arrays of them.
    """
    key = tuple(texts)
    if key not in _prepared:
        _prepared.clear()
        _prepared[key] = _batches_of(loaded, texts), _tokenizer_of(loaded)
    (batches, streams), tokenizer = _prepared[key]
    runner = loaded.pipe._batching.runner
    run = runner.run if streams == 1 else runner.beside(streams)
    started = time.perf_counter()
    for _ in in_order(run, batches, streams):
        pass
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    tokenizer.encode_batch(texts)
    return {
        "seconds": [seconds],
        "encode_batch_s": time.perf_counter() - started,
        "batches": len(batches),
        "tokens": sum(int(batch["attention_mask"].sum()) for batch in batches),
        "padded_tokens": sum(batch["input_ids"].size for batch in batches),
    }


def _batches_of(loaded: Loaded, texts: list[str]) -> tuple[list[dict[str, Any]], int]:
    """Let the pipeline run the texts; give copies of what its engine is given, and how many batches ran at once."""
    batching, batches = loaded.pipe._batching, []
    runner, at_once = batching.runner, [1]

    def listening(run: Any) -> Any:
        def heard(batch: Any) -> Any:
            batches.append({name: np.array(values) for name, values in batch.items()})
            return run(batch)

        return heard

    def beside(streams: int) -> Any:
        at_once.append(streams)
        return listening(type(runner).beside(runner, streams))

    runner.run, runner.beside = listening(runner.run), beside
    try:
        loaded(texts)
    finally:
        del runner.run, runner.beside
    return batches, at_once[-1]


def _tokenizer_of(loaded: Loaded) -> Any:
    """Copy the pipeline's tokenizer: it truncates, and does not pad."""
    shared = loaded.pipe.tokenizer.backend_tokenizer
    tokenizer = type(shared).from_str(shared.to_str())
    tokenizer.enable_truncation(max_length=loaded.pipe.tokenizer.model_max_length)
    tokenizer.no_padding()
    return tokenizer


def bare_one_by_one(loaded: Loaded, texts: list[str]) -> dict[str, Any]:
    """Time the tokenizer and the engine, with nothing between and after them, for each text."""
    tokenizer, run = loaded.pipe.tokenizer, loaded.pipe._batching.runner.run
    seconds = []
    for text in texts:
        started = time.perf_counter()
        run(dict(tokenizer(text, truncation=True, return_tensors="np")))
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


class Product:
    """A large int8 matrix product on all cores."""

    def __init__(self, workspace: str, model: str, cores: int) -> None:
        import torch
        from transformers import AutoConfig, AutoTokenizer

        folder = data.save_model(workspace, model)
        self.config = AutoConfig.from_pretrained(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        torch.set_num_threads(cores)
        torch.manual_seed(0)
        self.factors = [torch.randint(-127, 127, (_SIDE, _SIDE), dtype=torch.int8) for _ in range(2)]

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know."""
        return {"detail": f"torch._int_mm of {_SIDE} x {_SIDE} x {_SIDE}"}


def int8_product(product: Product, texts: list[str]) -> dict[str, Any]:
    """Give the time in which this chip could do a model's operations on texts, were they all one int8 product.

    seconds = operations / rate, where operations are those of `data.model_operations` on the texts without padding,
    and rate = 2 n³ / (time of the fastest of several `torch._int_mm` of two n x n matrices), n = 2048: a product of
    n x n matrices has n³ multiply-adds (Golub and Van Loan, "Matrix Computations", 4th edition, section 1.1.15).
    No encoder reaches it: part of its operations are not int8 products, and its products are smaller.
    """
    import torch

    lengths = [len(ids) for ids in product.tokenizer(texts, truncation=True)["input_ids"]]
    fastest = float("inf")
    for _ in range(_PRODUCTS):
        started = time.perf_counter()
        torch._int_mm(*product.factors)
        fastest = min(fastest, time.perf_counter() - started)
    rate = 2 * _SIDE**3 / fastest
    operations = data.model_operations(product.config, lengths)
    return {"seconds": [operations / rate], "operations": operations, "operations_per_s": rate}
