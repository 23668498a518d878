"""Imports that are put off until something needs them, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest
import transformers

pytest.importorskip("sklearn", reason="there is nothing to put off")

BEGINNING = """
import sys
import fastpipe.pipelines
import transformers.pipelines
from transformers.generation import candidate_generator
from transformers.loss import loss_rt_detr
"""


def run(code: str) -> None:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr


def test_what_is_put_off_comes_when_it_is_called() -> None:
    run(
        BEGINNING
        + """
assert not {"sklearn", "sklearn.metrics", "scipy.stats", "scipy.optimize"} & set(sys.modules)
assert loss_rt_detr.linear_sum_assignment([[1, 2], [3, 1]])[1].tolist() == [0, 1]
import scipy.optimize
assert type(scipy.optimize.linear_sum_assignment([[1]])) is tuple
if transformers.__version__ < "5":
    from transformers.data import metrics
    assert metrics.f1_score([1, 0, 1], [1, 0, 1]) == 1
    assert abs(metrics.matthews_corrcoef([1, 0, 1], [1, 0, 1]) - 1) < 1e-9
    assert abs(metrics.pearsonr([1, 2, 3], [1, 2, 3]).statistic - 1) < 1e-9
    assert candidate_generator.roc_curve([0, 1], [0.1, 0.9])[1].tolist() == [0, 1, 1]
import sklearn.metrics, scipy.stats
from sklearn.metrics import accuracy_score, roc_curve
assert roc_curve is sklearn.metrics.roc_curve and roc_curve.__module__.startswith("sklearn.")
"""
    )


def test_what_is_there_stays_and_is_taken() -> None:
    check = "assert candidate_generator.roc_curve is roc_curve" if transformers.__version__ < "5" else ""
    run(f"from sklearn.metrics import roc_curve\n{BEGINNING}{check}")


def test_what_is_not_put_off_is_there_meanwhile() -> None:
    """As for another thread that imports the same module: it gets all of it, and the module itself from then on."""
    run(
        """
from fastpipe.pipelines import imports
with imports._put_off("sklearn.metrics", ("roc_curve",)):
    from sklearn.metrics import roc_curve as later
    from sklearn.metrics import accuracy_score
    import sklearn.metrics
    assert accuracy_score([1], [1]) == 1 and sklearn.metrics.roc_curve is not later
assert later([0, 1], [0.1, 0.9])[1].tolist() == sklearn.metrics.roc_curve([0, 1], [0.1, 0.9])[1].tolist()
"""
    )
