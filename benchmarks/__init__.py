"""Benchmarks: one scenario a file, peers beside fastpipe, each contender in a process of its own.

    python -m benchmarks W1 W2 W3 --json results.json
    python -m benchmarks page results.json

Nothing here is imported by fastpipe, and nothing here asserts a speed.
"""
