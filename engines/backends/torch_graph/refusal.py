"""What of a graph PyTorch does not run here; internal to this package."""

from __future__ import annotations


class UnsupportedNodeError(Exception):
    """An operator, attribute, type or shape that is not supported; the text names it, with its node."""
