"""The study of findings that are recognised but not grounded, and the reverse (docs/metrics.md §17)."""
