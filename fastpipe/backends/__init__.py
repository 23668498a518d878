"""Engines: each module here runs models on one of them, and none knows another."""
