"""Scores of stored maps and of their baselines, the effects of a study of trust, and its rows and tables."""
