"""How wording changes the numbers: the tests and tables of `study prompts` (docs/metrics.md §8.4)."""
