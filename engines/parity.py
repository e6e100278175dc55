"""Summarizes a bundle's parity report in words: the comparison of the exported graphs with the authors' model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["parity_summary"]


def parity_summary(parity: Mapping[str, Any]) -> str:
    """A parity report in a few words: what was compared, the largest error and the allowed error."""
    if not {"compared", "needed", "tolerance", "passed"} <= parity.keys():
        return "none recorded"
    verdict = "passed" if parity["passed"] is True else "failed"
    limit = f"{parity['needed']:.1e} of {parity['tolerance']:.0e} allowed"
    return f"{verdict}: {parity['compared']} comparisons, error {limit}"
