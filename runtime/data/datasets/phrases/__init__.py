"""Datasets that ask each image the phrases of its report instead of one prompt set (docs/phrase-grounding.md §11)."""
