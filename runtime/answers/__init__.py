"""Predicted boxes from files: what a model answered for the pairs of a dataset.

answered        the result: boxes, states and counters per pair, in the dataset's order
"""
