"""W2: a list of 5,000 short texts, of 3 to 15 tokens, embedded in one call by all-MiniLM-L6-v2 with its real weights.

Here the engine has little to do, and everything around it shows. Pipelines give the vectors of all tokens, as nested
lists unless they are asked for tensors; sentence-transformers gives a vector a text, which is less to hand over.
"""

from __future__ import annotations

from functools import partial

from benchmarks import data, lists
from benchmarks.field import Bench
from benchmarks.report import Result

SCENARIO = lists.ListScenario(
    name="W2",
    title="texts of 3 to 15 tokens, feature-extraction, all-MiniLM-L6-v2",
    model="all-MiniLM-L6-v2",
    texts=partial(data.ranged_texts, fewest=3, most=15),
    count=5000,
    parts=2,
    part=128,
    targets="10 x transformers' best, 2 x the best peer, 1.15 x encode + bare",
    tensors=True,
    overhead=True,
)


def run(bench: Bench) -> Result:
    """Run the scenario."""
    return lists.run(bench, SCENARIO)
