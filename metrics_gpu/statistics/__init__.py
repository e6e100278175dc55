"""Means over classes, bootstrap intervals, paired tests and correlation."""
