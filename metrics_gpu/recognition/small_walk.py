"""`walk` for a few images, with NumPy: the same numbers to the bit, without loading compiled code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def small_walk(
    weights: NDArray[np.uint16],
    patient: NDArray[np.int64],
    truth: NDArray[np.bool_],
    last: NDArray[np.bool_],
    positive: NDArray[np.int64],
    cut: int,
) -> NDArray[np.float64]:
    """float64 [R, 9]: what `walk.walk` returns for these arguments, N > 0.

    Sums that are rounded are added in the order of the walk; the others are of integers and halves, so exact.
    """
    seen, hits = _running(weights[:, patient]), _running(weights[:, positive])
    before = np.concatenate([[0], np.cumsum(truth)])  # how many of the images above are true
    ends = np.flatnonzero(last) + 1
    starts = np.concatenate([[0], ends[:-1]])
    true = before[ends] > before[starts]  # recall changes at these scores alone
    starts, ends = starts[true], ends[true]
    hits_before, hits_here = hits[:, before[starts]], hits[:, before[ends]]
    seen_before, seen_here = seen[:, starts], seen[:, ends]
    new = hits_here - hits_before
    n, positives = seen[:, -1], hits[:, -1]
    alarms = n - positives
    marked_hits, marked = hits[:, before[cut]], seen[:, cut]
    right, both = 2.0 * marked_hits + alarms - marked, marked + positives
    out = np.zeros((len(weights), 9))
    with np.errstate(invalid="ignore", divide="ignore"):
        above = 0.5 * ((seen_before - hits_before) + (seen_here - hits_here))  # negatives, ties by half
        out[:, 0] = (new * (alarms[:, None] - above)).sum(axis=1) / (positives * alarms)
        precision = hits_here / seen_here
        precision_before = np.where(seen_before > 0, hits_before / seen_before, 1.0)
        for column, share in ((1, new * precision), (2, new * 0.5 * (precision + precision_before))):
            out[:, column] = _running(np.where(new > 0, share, 0.0))[:, -1] / positives
        out[:, 3] = np.where(both > 0, 2.0 * marked_hits / both, 0.0)
        if len(ends):
            f1 = np.where(new > 0, 2.0 * hits_here / (seen_here + positives[:, None]), 0.0)
            at = f1.argmax(axis=1)
            out[:, 4] = np.take_along_axis(f1, at[:, None], axis=1)[:, 0]
            out[:, 8] = np.where(out[:, 4] > 0, ends[at] - 1, 0)
        out[:, 5] = right / n
    out[n == 0, 3:5] = np.nan
    out[:, 6], out[:, 7] = right, n
    return out


def _running(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Sums float64 [R, 1 + N] of the first 0, 1, ... of `values` [R, N], each added to the sum before it."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums
