"""Scores of boxes: counts of their union, matched boxes, average precision, kinds of errors, published protocols."""
