"""Published scorers of boxes, one file each, as their authors' code computes them (docs/detection.md §3)."""
