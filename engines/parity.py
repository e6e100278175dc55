"""What a bundle says of its authors' model: which saliency map it exports, and the parity report in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OFFICIAL_MAP = "official"
"""Value of `saliency["choice"]` in bundle.json for the map of a model's authors."""


def parity_summary(parity: Mapping[str, Any]) -> str:
    """A parity report in a few words: what was compared, the largest error and the allowed error."""
    if not {"compared", "needed", "tolerance", "passed"} <= parity.keys():
        return "none recorded"
    verdict = "passed" if parity["passed"] is True else "failed"
    limit = f"{parity['needed']:.1e} of {parity['tolerance']:.0e} allowed"
    return f"{verdict}: {parity['compared']} comparisons, error {limit}"
