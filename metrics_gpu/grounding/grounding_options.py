"""The options of grounding scores, as one dataclass (docs/metrics.md §14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["GroundingOptions", "IouAt", "Ties", "Unit"]

Ties = Literal["first", "any", "expected"]
Unit = Literal["per_class", "per_dataset", "per_model", "per_image", "cross_fit"]
IouAt = Literal["joint", "independent"]


@dataclass(frozen=True)
class GroundingOptions:
    """Options with their defaults (docs/metrics.md §14).

    tau_from: first threshold of the search, 0.0 or 0.01 (parity with the paper's Table 1).
    ties: pointing at tied maxima: the `first` in row-major order; a hit if `any` lies in the region (MedKLIP, MAVL); or
        the `expected` hit, the share of them in the region. Maxima tie if they pass the last threshold, tau = 1.
    unit: what shares one best threshold: each class, the whole dataset (by the macro mean), all datasets of a model,
        each pair alone; or `cross_fit`, for each class on other patients than those it is applied to.
    iou_at: IoU at the threshold found for Dice (`joint`) or at its own (`independent`).
    """

    tau_from: float = 0.0
    ties: Ties = "first"
    unit: Unit = "per_class"
    iou_at: IouAt = "joint"

    def __post_init__(self) -> None:
        if self.tau_from not in (0.0, 0.01):
            raise ValueError(f"tau_from is 0.0 or 0.01, got {self.tau_from}")
        for name, kind in (("ties", Ties), ("unit", Unit), ("iou_at", IouAt)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} is one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")

    @property
    def label(self) -> str:
        """How the best threshold was chosen: `cross_fitted` if on other patients than it is scored on, `in_sample` if
        on the same."""
        return "cross_fitted" if self.unit == "cross_fit" else "in_sample"
