"""Pipelines that generate: the model on an engine, the choice of its recipe, and lists in batches of like lengths."""
