"""Verdicts of trust tests: an effect with its interval and test, read against a criterion (docs/trust.md §0).

The statistic is the mean over classes of the mean over pairs. Its interval is the patient bootstrap of the report, its
test sign flips by patient, and Holm's correction is over the tests that are declared as one family.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws
from ..statistics.class_means import class_means
from ..statistics.intervals import LEAST, Interval, mean_interval, shares, wilson_interval
from ..statistics.measured_numbers import Measured, Parts
from ..statistics.multiple_tests import corrected

Float = NDArray[np.float64]
Word = Literal["pass", "fail", "cannot tell", "void"]

WORDS: Final[tuple[Word, ...]] = get_args(Word)
ALPHA: Final = 0.05
LEAST_PATIENTS: Final = 10
"""With pairs of fewer patients every verdict is `cannot tell`."""
MOST_DEGENERATE: Final = 0.05
"""The share of degenerate maps above which a test is void."""
MARGINS: Final = {"average_precision": 0.01, "roc_auc": 0.02, "probability": 0.01, "similarity": 0.05}
"""What an effect must exceed, in the unit of its score: any map follows the image a little."""


@dataclass(frozen=True)
class Criterion:
    """The effect lies above, or below, `bound` by more than `margin`.

    share: the effect is a share of something that either happens or not. Sign flips ask whether it is 0, which is not
    the question, so that it has no test, and the interval alone decides.
    """

    margin: float
    direction: Literal["above", "below"] = "above"
    bound: float = 0.0
    share: bool = False

    def __str__(self) -> str:
        return f"{self.direction} {self.bound:g}" + (f" by more than {self.margin:g}" if self.margin else "")


@dataclass(frozen=True, eq=False)
class PairGroups:
    """The class and the patient of P pairs of one dataset.

    class_of, patient_of: intp [P]. names: of the G patients, each with its dataset. draws: of these patients. level: of
    the intervals.
    """

    class_of: NDArray[np.intp]
    patient_of: NDArray[np.intp]
    names: tuple[str, ...]
    draws: Draws
    level: float = 0.95

    def take(self, pairs: NDArray[np.intp]) -> PairGroups:
        """The pairs at these positions."""
        return replace(self, class_of=self.class_of[pairs], patient_of=self.patient_of[pairs])


@dataclass(frozen=True)
class Judged(Measured):
    """A mean over pairs of one class, or the mean over classes of these means, and how it is read.

    n: the pairs. criterion: in words, empty without one. word: None before it is judged and without a criterion.
    left_out: why -> pairs without a score. degenerate: how many of the pairs have a degenerate map; where a pair has
    several maps, if one of them is.
    """

    criterion: str = ""
    word: Word | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    degenerate: int = 0

    @property
    def text(self) -> str:
        """The word, with the number that explains it."""
        if self.word == "cannot tell":
            return f"cannot tell ({self.patients} patient{'' if self.patients == 1 else 's'})"
        if self.word == "void":
            return f"void ({self.degenerate} of {self.n} maps are degenerate)"
        return self.word or ""


def effects_of(
    values: Float, groups: PairGroups, left_out: Sequence[Mapping[str, int]], degenerate: NDArray[np.bool_]
) -> list[list[Judged]]:
    """For each of K columns the effect over classes, then the effect of each class that has a pair, in their order.

    values: float64 [P, K], NaN where a pair has no score. left_out: for each column why -> pairs. degenerate: bool
    [P, K]. Raises ValueError if they do not fit.
    """
    if values.shape != degenerate.shape or values.ndim != 2 or len(left_out) != values.shape[1]:
        raise ValueError(f"values {values.shape}, degenerate {degenerate.shape} and {len(left_out)} counts do not fit")
    defined = ~np.isnan(values)
    by_column: list[list[Judged]] = [[] for _ in left_out]
    same: dict[bytes, list[int]] = {}
    for column in range(values.shape[1]):
        same.setdefault(defined[:, column].tobytes(), []).append(column)
    for columns in same.values():
        pairs = np.flatnonzero(defined[:, columns[0]])
        kept = groups.take(pairs)
        flags = degenerate[pairs][:, columns]
        for column, flag, effects in zip(columns, flags.T, _effects(values[pairs][:, columns], kept), strict=True):
            classes = [None, *np.unique(kept.class_of).tolist()]
            by_column[column] = [
                replace(
                    effect,
                    left_out=left_out[column] if name is None else {},
                    degenerate=int(flag.sum() if name is None else flag[kept.class_of == name].sum()),
                )
                for name, effect in zip(classes, effects, strict=True)
            ]
    return by_column


def _effects(values: Float, groups: PairGroups) -> list[list[Judged]]:
    """`effects_of` for columns without NaN: [K][1 + classes with a pair]."""
    names, class_of = np.unique(groups.class_of, return_inverse=True)
    means = class_means(values, class_of, len(names), groups.draws, groups.patient_of)
    parts = [(np.arange(len(values)), means.macro)]
    parts += [(np.flatnonzero(class_of == c), means.classes[:, c]) for c in range(len(names))]
    return [
        [_effect(values[pairs, k], drawn[:, k], groups.take(pairs)) for pairs, drawn in parts]
        for k in range(values.shape[1])
    ]


def _effect(values: Float, drawn: Float, groups: PairGroups) -> Judged:
    """drawn: float64 [1 + B], the value and its replicates."""
    parts = shares(values, groups.class_of, groups.patient_of, len(groups.names))
    return Judged(
        value=None if parts is None else float(drawn[0]),
        interval=mean_interval(drawn[1:], parts, groups.level, None),
        n=len(values),
        patients=len(np.unique(groups.patient_of)),
        parts=None if parts is None else Parts(groups.names, parts.of_patients, groups.draws.seed),
    )


def verdicts(
    effects: Sequence[Judged], criteria: Sequence[Criterion | None], families: Sequence[Hashable] | None = None
) -> list[Judged]:
    """The verdicts of effects; those that have a pair are tested, and corrected with the others of their family.

    criteria: None: no verdict; shares are not tested and do not count. families: of each effect; None: one family.
    """
    asked = [
        replace(effect, interval=share_interval(effect), parts=None) if criterion and criterion.share else effect
        for effect, criterion in zip(effects, criteria, strict=True)
    ]
    tested = corrected(asked, families)
    return [
        replace(effect, criterion=str(criterion), word=_word(effect, criterion)) if criterion else effect
        for effect, criterion in zip(tested, criteria, strict=True)
    ]


def _word(effect: Judged, criterion: Criterion) -> Word:
    if effect.degenerate > MOST_DEGENERATE * effect.n:
        return "void"
    if effect.value is None or effect.interval is None or effect.patients < LEAST_PATIENTS:
        return "cannot tell"
    sign = 1 if criterion.direction == "above" else -1
    value = sign * (effect.value - criterion.bound)
    low, high = sorted(sign * (end - criterion.bound) for end in (effect.interval.low, effect.interval.high))
    if low > criterion.margin and (criterion.share or (effect.p_holm is not None and effect.p_holm < ALPHA)):
        return "pass"
    if high < 0 or (value <= 0 and high < criterion.margin):
        return "fail"
    return "cannot tell"


def share_interval(effect: Judged) -> Interval | None:
    """The interval of a share. A bootstrap of shares that are all 0, or all 1, has no width, and would be sure of what
    a few patients show: then it is Wilson's, with as many trials as patients."""
    interval = effect.interval
    if effect.value is None or effect.patients < LEAST["patients"]:
        return None
    if interval is None or interval.low == interval.high:
        return wilson_interval(effect.value * effect.patients, effect.patients)
    return interval


def worst_of(words: Sequence[Word | None]) -> Word:
    """The word of a line that asks several questions: it passes only if every one does.

    `fail` comes before `void`, and `void` before `cannot tell`; without a question nothing can be told.
    """
    for word in ("fail", "void", "cannot tell"):
        if word in words or (word == "cannot tell" and (not words or None in words)):
            return word
    return "pass"
