"""W3: a list of 200 long texts, of 256 to 512 tokens, whose tokens a BERT of the base size labels in one call."""

from __future__ import annotations

from functools import partial

from benchmarks import data, lists
from benchmarks.field import Bench
from benchmarks.report import Result

SCENARIO = lists.ListScenario(
    name="W3",
    title="texts of 256 to 512 tokens, token-classification, BERT-base size",
    model="bert-base-entities",
    texts=partial(data.ranged_texts, fewest=256, most=512),
    count=200,
    parts=1,  # these texts are long: more of them would take longer than the measurements
    part=32,
    targets="5 x transformers' best, 1.5 x the best peer",
)


def run(bench: Bench) -> Result:
    """Run the scenario."""
    return lists.run(bench, SCENARIO)
