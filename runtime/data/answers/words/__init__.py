"""Answers in words, read by a fixed grammar and drawn on a frame of the thorax (docs/words.md)."""
