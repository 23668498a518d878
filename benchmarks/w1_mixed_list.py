"""W1: a list of 1,000 texts of mixed lengths, classified in one call by a DistilBERT of the base size.

Word counts are lognormal (median 25, sigma 0.9, from 2 to 380).
"""

from __future__ import annotations

from benchmarks import data, lists
from benchmarks.field import Bench
from benchmarks.report import Result

SCENARIO = lists.ListScenario(
    name="W1",
    title="texts of mixed lengths, text-classification, DistilBERT-base size",
    model="distilbert-base",
    texts=data.mixed_texts,
    count=1000,
    parts=2,
    part=32,
    targets="7 x transformers' best, 2 x the best peer, 75 % of the int8 product",
    overhead=True,
)


def run(bench: Bench) -> Result:
    """Run the scenario."""
    return lists.run(bench, SCENARIO)
