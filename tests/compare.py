"""Equality of pipeline results: numbers within a tolerance, everything else exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def assert_same(got: Any, wanted: Any, tolerance: float = 1e-4, where: str = "result") -> None:
    """Compare two results of pipelines, of any nesting."""
    if isinstance(wanted, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{where}: {type(got)}"
        assert got.shape == wanted.shape, f"{where}: shape {got.shape} != {wanted.shape}"
        assert got.dtype == wanted.dtype, f"{where}: {got.dtype} != {wanted.dtype}"
        torch.testing.assert_close(got, wanted, atol=tolerance, rtol=0)
    elif isinstance(wanted, np.ndarray):
        assert isinstance(got, np.ndarray), f"{where}: {type(got)}"
        assert got.dtype == wanted.dtype, f"{where}: {got.dtype} != {wanted.dtype}"
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance, err_msg=where)
    elif isinstance(wanted, dict):
        assert isinstance(got, dict), f"{where}: {type(got)}"
        assert list(got) == list(wanted), f"{where}: keys {list(got)} != {list(wanted)}"
        for key in wanted:
            assert_same(got[key], wanted[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(wanted, (list, tuple)):
        assert type(got) is type(wanted), f"{where}: {type(got)} != {type(wanted)}"
        assert len(got) == len(wanted), f"{where}: length {len(got)} != {len(wanted)}"
        for position, (one, other) in enumerate(zip(got, wanted, strict=True)):
            assert_same(one, other, tolerance, f"{where}[{position}]")
    elif isinstance(wanted, (float, np.floating)):
        assert isinstance(got, type(wanted)), f"{where}: {type(got)} != {type(wanted)}"
        assert abs(float(got) - float(wanted)) <= tolerance, f"{where}: {got} != {wanted}"
    else:
        assert got == wanted, f"{where}: {got!r} != {wanted!r}"
