"""The result of comparing an exported graph with the model it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ParityError

Floats = NDArray[np.float32]

TOLERANCE = 1e-4
"""Largest accepted error, as a fraction of the largest absolute value of the reference tensor."""

LOW_TOLERANCE = {"fp16": 3e-2, "bf16": 0.15, "int8": 1.0}
"""The same for a graph of lower precision, compared with the float32 graph. It detects failures such as values out
of range; the metrics show what the precision costs."""


@dataclass(frozen=True)
class Place:
    """What is compared in one run.

    compares: the reference; batch: images (or texts) in the run; slot: the position that is compared, None for
    all; findings: queries (or tokens, for the text graph).
    """

    compares: str
    batch: int
    slot: int | None
    findings: int


@dataclass(frozen=True)
class TensorCheck(Place):
    """One tensor of one run against its reference. False when it fails.

    output: the tensor; error: largest absolute difference; scale: largest absolute value of the reference (of logits:
    of all references); allowed: the tolerance, as a fraction of `scale`.
    """

    output: str
    error: float
    scale: float
    allowed: float

    @property
    def needed(self) -> float:
        """The tolerance this check would need, as a fraction of `scale` (infinite for a value that is not finite)."""
        if self.error == 0:
            return 0.0
        return self.error / self.scale if self.scale > 0 and np.isfinite(self.error) else float("inf")

    def __bool__(self) -> bool:
        return self.needed <= self.allowed

    def __str__(self) -> str:
        where = f"{self.batch} in the batch" + ("" if self.slot is None else f", slot {self.slot}")
        return (
            f"{self.output} ({self.compares}; {where}; {self.findings} findings or tokens) differs by "
            f"{self.error:.3g} where the largest value is {self.scale:.3g}: it needs a tolerance of {self.needed:.2g}, "
            f"allowed is {self.allowed:.2g}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; JSON has no infinity, so what is not finite becomes a string."""
        values = {**asdict(self), "needed": self.needed, "passed": bool(self)}
        return {key: str(v) if isinstance(v, float) and not np.isfinite(v) else v for key, v in values.items()}


def compare(
    output: str, position: Place, got: Floats, reference: Floats, tolerance: float = TOLERANCE, full_scale: float = 0.0
) -> TensorCheck:
    """Largest absolute difference of two arrays of one shape; different shapes and values that are not finite fail.

    `full_scale` is the largest value of this output elsewhere: the scale for a reference of a single score that
    happens to be near zero.
    """
    error, scale = float("inf"), 0.0
    if got.shape == reference.shape and got.dtype == reference.dtype and reference.size:
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(got.astype(np.float64) - reference.astype(np.float64)).max()
        scale = max(float(np.abs(reference).max()), full_scale)
        error = float(difference) if np.isfinite(difference) and np.isfinite(scale) else float("inf")
    scale = scale if np.isfinite(scale) else 0.0
    return TensorCheck(**vars(position), output=output, error=error, scale=scale, allowed=tolerance)


@dataclass
class ParityReport:
    """All checks of one export. False when one fails, or when nothing was compared.

    `conditions` holds the versions and threads of both sides; `metrics` the effect of lower precision on the metrics.
    """

    conditions: Mapping[str, Any]
    checks: list[TensorCheck] = field(default_factory=list)
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.checks) and all(self.checks)

    @property
    def needed(self) -> float:
        """The smallest tolerance under which every check would pass."""
        worst = self.worst()
        return float("inf") if worst is None else worst.needed

    def worst(self) -> TensorCheck | None:
        """The check that needs the largest tolerance."""
        return max(self.checks, key=attrgetter("needed"), default=None)

    def require(self) -> None:
        """Raises ParityError naming the worst check unless all passed."""
        if self:
            return
        worst = self.worst()
        if worst is None:
            raise ParityError("The exported graph was not compared with the model; nothing proves that they agree.")
        failed = sum(not check for check in self.checks)
        if "precision" in self.conditions:
            raise ParityError(
                f"In {self.conditions['precision']} the graph differs too much from the model ({failed} of "
                f"{len(self.checks)} checks failed): {worst}; no bundle was written. Use another --precision."
            )
        raise ParityError(
            f"The exported graph does not compute what the model computes ({failed} of {len(self.checks)} checks "
            f"failed): {worst}; no bundle was written. Report this with the versions of torch and onnxscript."
        )

    def to_json(self) -> dict[str, Any]:
        """The entry `parity` of bundle.json: conditions, the verdict and, per kind of run, the slot that was worst."""
        groups: dict[tuple[Any, ...], TensorCheck] = {}
        tolerance = 0.0
        for check in self.checks:
            tolerance = max(tolerance, check.allowed)
            key = (check.output, check.compares, check.batch, check.findings)
            if key not in groups or check.needed > groups[key].needed:
                groups[key] = check
        needed = self.needed
        return {
            **self.conditions,
            **({"metrics": dict(self.metrics)} if self.metrics else {}),
            "passed": bool(self),
            "tolerance": tolerance or TOLERANCE,
            "needed": needed if np.isfinite(needed) else str(needed),
            "compared": len(self.checks),
            "worst_per_kind": [check.to_json() for check in groups.values()],
        }
