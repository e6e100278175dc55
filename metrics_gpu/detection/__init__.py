"""Scores of boxes: counts of unions, matched boxes, average precision, kinds of errors, published scorers, parts."""
