"""Datasets whose images are asked phrases of their own reports instead of one prompt set (docs/datasets.md §11)."""
