"""The study of answers that `ask` asked for: refusals, tokens, latency and cost (docs/studies.md §2)."""
