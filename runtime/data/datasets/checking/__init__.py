"""Checks a dataset: counts of its content and of its problems."""
