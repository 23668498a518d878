"""Precisions: which recipes exist, as data."""
