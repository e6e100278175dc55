"""Whether a map can be trusted: what is measured, what is asked of it, and one page that says it.

probes     forward passes on changed images or weights -> rows
questions  rows of probes -> answers with intervals, as a study
card       a model's answers on one page
"""
