"""Checkpoint files, read without running their content and matched with a network; and stand-in weights."""
