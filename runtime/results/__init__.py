"""Stored results: rows, run directory, keys, shards, loading, and what numbers rest on."""
