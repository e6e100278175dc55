"""Scores of boxes: counts of unions, matched boxes, average precision, kinds of errors, parts of masks, published ones."""
