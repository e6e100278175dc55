"""Evaluation protocols by name, as data (docs/metrics.md §11 and §14).

A protocol says how maps are swept and how counts are scored. The notes say which parts of a source this benchmark
cannot reproduce; they must be shown with every number of that protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..sweep.sweep_options import Mode, Normalise, Sweeping
from ..sweep.thresholds import Comparison
from .grounding_options import GroundingOptions

__all__ = ["NOT_EQUALISED", "PROTOCOLS", "Protocol", "protocol"]


_DEFAULTS: Final = GroundingOptions()
NOT_EQUALISED: Final = (
    "The RSNA scripts of MedKLIP and MAVL equalise the histogram of every image before the resize; this protocol does "
    "not, --protocol medklip and mavl do."
)


@dataclass(frozen=True)
class Protocol:
    """How one source evaluates.

    source: whose protocol it is.
    upsample, normalise, comparison, tau_scale: as `Sweeping` has them; threshold k is tau_scale * k/100, so that a
        `best_tau` of the scores, times tau_scale, is in the source's unit.
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
    upsample: Mode = "bilinear"
    normalise: Normalise = "minmax"
    comparison: Comparison = ">="
    tau_scale: float = 1.0
    fixed_tau: float | None = 0.5
    options: GroundingOptions = _DEFAULTS
    pointing_from_default: bool = False
    true_positives_only: bool = False
    native_size: bool = False
    equalises: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sweeping(self) -> Sweeping:
        """How `sweep.sweep` reads maps."""
        return Sweeping(self.upsample, self.normalise, self.comparison, self.tau_scale)


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
        comparison=">",
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
        upsample="nearest",
        normalise="none",
        comparison=">",
        tau_scale=0.016,
        fixed_tau=0.008,
        options=GroundingOptions(ties="any"),
        pointing_from_default=True,
        equalises=("rsna",),
        notes=("Raw attention above 0.008; the search over 0 to 0.016 is ours, the source has none.",),
    ),
    Protocol(
        name="mavl",
        source="MAVL, test.py",
        upsample="align_corners",
        normalise="none",
        comparison=">",
        tau_scale=0.1,
        fixed_tau=None,
        options=GroundingOptions(tau_from=0.01, ties="any", unit="per_dataset"),
        pointing_from_default=True,
        equalises=("rsna",),
        notes=(
            "Raw attention above t = 0.001, 0.002, ..., 0.1; the source steps by 0.00001 from 0.0001, so its best mean "
            "Dice over the test set can be slightly higher.",
            "The source means over all pairs of a dataset; the search here is by the mean over classes.",
        ),
    ),
)

PROTOCOLS: Final[tuple[str, ...]] = tuple(item.name for item in _ALL)


def protocol(name: str) -> Protocol:
    """The protocol of that name, one of `PROTOCOLS`; an unknown name raises ValueError."""
    for item in _ALL:
        if item.name == name:
            return item
    raise ValueError(f"unknown protocol {name!r}; known: {', '.join(PROTOCOLS)}")
