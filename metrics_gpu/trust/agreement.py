"""Agreement between readers: who names a finding, and how similar their regions are (docs/subgroups.md §6.3).

Whether a reader names a finding in an image is a rating of 1 or 0. Chance-corrected coefficients are those for two or
more readers who can differ by image and can be missing: AC1 (K. L. Gwet, Br J Math Stat Psychol 61, 2008), kappa
(J. L. Fleiss, Psychol Bull 76, 1971) and alpha (K. Krippendorff, 1970). AC1 is stable where a finding is rare; kappa
and alpha are not, and are given for comparison.

Every number is computed for the patients as they are and for each bootstrap draw of them, by one function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws, drawn_or_not
from ..statistics.exact_sums import ratio

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Presence:
    """Agreement about one finding: float64 [1 + B] each, the value and its replicates, NaN where undefined.

    prevalence: the mean share of an image's readers who name the finding. observed: the share of agreeing pairs of
    readers. kappa and alpha are undefined where all ratings are equal.
    """

    prevalence: Float
    observed: Float
    gwet_ac1: Float
    fleiss_kappa: Float
    krippendorff_alpha: Float


def presence_agreement(
    named: NDArray[np.integer],
    readers: NDArray[np.integer],
    draws: Draws | None = None,
    patient_of: NDArray[np.intp] | None = None,
) -> Presence:
    """Agreement of the readers of N images about one finding.

    named: integers [N], how many name it, of `readers` [N] who read the image. An image with one reader counts for the
    prevalence of AC1 and kappa only, one without readers not at all. Raises ValueError for counts that are not in
    0..readers.
    """
    if named.shape != readers.shape or named.ndim != 1 or (named < 0).any() or (named > readers).any():
        raise ValueError(f"{named.shape} counts of readers do not lie between 0 and the number of readers")
    draws, patient_of = drawn_or_not(draws, patient_of, len(named))
    read, several = readers >= 1, readers >= 2
    yes, n = named.astype(np.float64), readers.astype(np.float64)
    no = n - yes
    alike = yes * (yes - 1) + no * (no - 1)
    of_pairs = np.where(several, alike / np.maximum(n * (n - 1), 1), 0.0)
    of_ratings = np.where(several, alike / np.maximum(n - 1, 1), 0.0)
    columns = [
        read, np.where(read, yes / np.maximum(n, 1), 0.0), several, of_pairs,
        np.where(several, n, 0.0), np.where(several, yes, 0.0), of_ratings,
    ]  # fmt: skip
    sums = draws.sums(patient_of, np.column_stack(columns).astype(np.float64))
    images, share, pairs, agreeing, ratings, positive, weighted = sums.T
    prevalence, observed = ratio(share, images), ratio(agreeing, pairs)
    spread = 2 * prevalence * (1 - prevalence)
    # Alpha counts chance over the ratings of images with two readers or more, and corrects for a finite sample.
    part = ratio(positive, ratings)
    by_alpha = 1 - 2 * part * (1 - part)
    finite = ratio(np.ones_like(ratings), ratings)
    finite_agreement = (1 - finite) * ratio(weighted, ratings) + finite
    return Presence(
        prevalence=prevalence,
        observed=observed,
        gwet_ac1=_beyond(observed, spread),
        fleiss_kappa=_beyond(observed, 1 - spread),
        krippendorff_alpha=_beyond(finite_agreement, by_alpha),
    )


def _beyond(observed: Float, chance: Float) -> Float:
    """The agreement beyond chance, as a share of what is possible."""
    left = 1 - chance
    beyond: Float = np.divide(observed - chance, left, out=np.full(len(left), np.nan), where=left > 1e-12)
    return beyond
