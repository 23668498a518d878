"""Pipelines: their classes, their call path, and how transformers is asked to make them."""

from fastpipe.pipelines import imports

imports.put_off()  # before any module here imports transformers
