"""Stub."""

from pathlib import Path


def check(folder: Path) -> None:
    """Stub."""
