"""The study of groups of models, which the configuration names (docs/metrics.md §18)."""
