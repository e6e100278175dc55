"""What an export found when it compared a bundle with the authors' model, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["parity_summary"]


def parity_summary(parity: Mapping[str, Any]) -> str:
    """A parity report in a few words: what was compared, and the largest error beside what is allowed."""
    if not {"compared", "needed", "tolerance", "passed"} <= parity.keys():
        return "none recorded"
    verdict = "passed" if parity["passed"] is True else "failed"
    limit = f"{parity['needed']:.1e} of {parity['tolerance']:.0e} allowed"
    return f"{verdict}: {parity['compared']} comparisons, error {limit}"
