"""Accepted images, from the limit on their number to the engine's batches."""
