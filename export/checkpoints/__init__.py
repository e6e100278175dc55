"""Checkpoint files: reading without running their content, and matching with a network; and stand-in weights."""
