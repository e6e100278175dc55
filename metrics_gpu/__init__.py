"""Turns saliency and regions into counts, and counts into metrics. Imports numba and scikit-learn only when needed."""
