"""Evaluation protocols by name, as data (docs/metrics.md §11 and §14).

A protocol says how maps are swept and how counts are scored. The notes say which parts of a source this benchmark
cannot reproduce; they must be shown with every number of that protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from ..sweep.pointing import Ties
from ..sweep.sweep_options import DEFAULT, Sweeping

Unit = Literal["per_class", "per_dataset", "per_model", "per_image", "cross_fit"]
IouAt = Literal["joint", "independent"]
Mean = Literal["macro", "micro"]


@dataclass(frozen=True)
class GroundingOptions:
    """Options with their defaults (docs/metrics.md §14).

    tau_from: first threshold of the search, 0.0 or 0.01 (parity with the paper's Table 1).
    ties: pointing at tied maxima: the `first` in row-major order; a hit if `any` lies in the region (MedKLIP, MAVL); or
        the `expected` hit, the share of them in the region. Maxima tie if they pass the last threshold, tau = 1.
    unit: what shares one best threshold: each class, the whole dataset, all datasets of a model, each pair alone; or
        `cross_fit`, for each class on other patients than those it is applied to.
    mean, mean_datasets: the mean over classes, and over datasets, for which a threshold that they share is best:
        unweighted (`macro`), or weighted by pairs (`micro`).
    iou_at: IoU at the threshold found for Dice (`joint`) or at its own (`independent`).
    """

    tau_from: float = 0.0
    ties: Ties = "first"
    unit: Unit = "per_class"
    iou_at: IouAt = "joint"
    mean: Mean = "macro"
    mean_datasets: Mean = "macro"

    def __post_init__(self) -> None:
        if self.tau_from not in (0.0, 0.01):
            raise ValueError(f"tau_from is 0.0 or 0.01, got {self.tau_from}")
        kinds = {"ties": Ties, "unit": Unit, "iou_at": IouAt, "mean": Mean, "mean_datasets": Mean}
        for name, choices in kinds.items():
            if getattr(self, name) not in get_args(choices):
                raise ValueError(f"{name} is one of {', '.join(get_args(choices))}, got {getattr(self, name)!r}")

    @property
    def label(self) -> str:
        """How the best threshold was chosen: `cross_fitted` if on other patients than it is scored on, `in_sample` if
        on the same."""
        return "cross_fitted" if self.unit == "cross_fit" else "in_sample"


_DEFAULTS: Final = GroundingOptions()
NOT_EQUALISED: Final = (
    "The RSNA scripts of MedKLIP and MAVL equalise the histogram of every image before the resize; this protocol does "
    "not, --protocol medklip and mavl do."
)


@dataclass(frozen=True)
class Protocol:
    """How one source evaluates.

    source: whose protocol it is.
    sweeping: how `sweep.sweep` reads maps; threshold k is tau_scale * k/100, so that a `best_tau` of the scores, times
        tau_scale, is in the source's unit.
    fixed_tau: the source's fixed threshold, which is level 50 of the sweep; None if it has none.
    options: of `grounding.grounding`, which also needs the grid's number of pixels where normalise or comparison differ
        from the default.
    pointing_from_default: only the default normalisation's counts show tied maxima, so pointing needs a second sweep:
        `grounding(..., hits=pointing_hits(default_counts, options.ties))`.
    true_positives_only: pairs count only if the model predicts the finding too.
    native_size: the source compares at the image's own size; see `chexlocalize`.
    equalises: names of the dataset readers whose images the source equalises (their histogram) before the resize.
    notes: what differs from the source, and why.
    """

    name: str
    source: str
    sweeping: Sweeping = DEFAULT
    fixed_tau: float | None = 0.5
    options: GroundingOptions = _DEFAULTS
    pointing_from_default: bool = False
    true_positives_only: bool = False
    native_size: bool = False
    equalises: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


_ALL: Final = (
    Protocol(
        name="default",
        source="this benchmark: the defaults of docs/metrics.md §14",
        notes=(NOT_EQUALISED,),
    ),
    Protocol(
        name="paper",
        source="XBench, arXiv 2510.19599, as far as its printed numbers establish it",
        options=GroundingOptions(tau_from=0.01),
        notes=(
            "The printed RSNA row of MAVL lies below the all-ones value, so the paper's sweep did not hold tau = 0; "
            "its text says 0 to 1.",
            NOT_EQUALISED,
        ),
    ),
    Protocol(
        name="chexlocalize",
        source="CheXlocalize, the benchmark's own evaluation code",
        sweeping=Sweeping(comparison=">"),
        fixed_tau=None,
        true_positives_only=True,
        native_size=True,
        notes=(
            "The source evaluates at native size and with thresholds per class tuned on its validation set, or Otsu's "
            "method with filled contours; that has a table of its own. All other tables are its comparison on the 224 "
            "grid, with 101 thresholds, where the source tunes over 0.2 to 0.8 in steps of 0.1.",
        ),
    ),
    Protocol(
        name="medklip",
        source="MedKLIP, test.py",
        sweeping=Sweeping("nearest", "none", ">", 0.016),
        fixed_tau=0.008,
        options=GroundingOptions(ties="any"),
        pointing_from_default=True,
        equalises=("rsna",),
        notes=("Raw attention above 0.008; the search over 0 to 0.016 is ours, the source has none.",),
    ),
    Protocol(
        name="mavl",
        source="MAVL, test.py",
        sweeping=Sweeping("align_corners", "none", ">", 0.1),
        fixed_tau=None,
        options=GroundingOptions(tau_from=0.01, ties="any", unit="per_dataset"),
        pointing_from_default=True,
        equalises=("rsna",),
        notes=(
            "Raw attention above t = 0.001, 0.002, ..., 0.1; the source steps by 0.00001 from 0.0001, so its best mean "
            "Dice over the test set can be slightly higher.",
            "The source means over all pairs of a dataset; the search here is by the mean over classes, or over pairs "
            "where --mean micro is given.",
        ),
    ),
    Protocol(
        name="biovil",
        source="BioViL's phrase grounding, as AFLoc re-implements it",
        notes=(
            "CNR and mIoU of smoothed maps, without the border that the model did not see, stand in a table of their "
            "own; all other tables are this benchmark's default. The source works at the image's own size, this table "
            "on the 224 grid.",
            NOT_EQUALISED,
        ),
    ),
)

_BY_NAME: Final = {item.name: item for item in _ALL}
PROTOCOLS: Final = tuple(_BY_NAME)


def protocol(name: str) -> Protocol:
    """The protocol of that name, one of `PROTOCOLS`; an unknown name raises ValueError."""
    if name not in _BY_NAME:
        raise ValueError(f"unknown protocol {name!r}; known: {', '.join(PROTOCOLS)}")
    return _BY_NAME[name]
