"""Benchmarks: one scenario a file, peers beside fastpipe, each contender in a process of its own.

    python -m benchmarks W1 W4 W5 W9 --json results.json

Nothing here is imported by fastpipe, and nothing here asserts a speed.
"""
