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
from ..statistics.sign_flips import Tested, draws_for, holm, sign_flip_tests

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


@dataclass(frozen=True, eq=False)
class Effect:
    """A mean over pairs of one class, or the mean over classes of such means; `value` is None without a pair.

    added: float64 [G], what each of the patients `names` adds to the value. left_out: why -> pairs without a score.
    degenerate: how many of the pairs have a degenerate map; where a pair has several maps, if one of them is.
    """

    value: float | None
    interval: Interval | None
    pairs: int
    patients: int
    names: tuple[str, ...] = field(repr=False)
    added: Float = field(repr=False)
    seed: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    degenerate: int = 0


@dataclass(frozen=True)
class TrustVerdict:
    """An effect read against a criterion.

    value, low, high: the effect and its interval, None where there is none. pairs, patients: what it rests on. p:
    two-sided; p_bound: no sign pattern was as extreme, so that p is below this value. p_holm: corrected for the
    `family` tests that were declared together. word: None without a criterion. left_out: why -> pairs.
    """

    value: float | None
    low: float | None
    high: float | None
    pairs: int
    patients: int
    p: float | None
    p_bound: bool
    p_holm: float | None
    family: int
    criterion: str
    word: Word | None
    left_out: Mapping[str, int] = field(default_factory=dict)
    degenerate: int = 0
    level: float = 0.95

    @property
    def text(self) -> str:
        """The word, with the number that explains it."""
        if self.word == "cannot tell":
            return f"cannot tell ({self.patients} patient{'' if self.patients == 1 else 's'})"
        if self.word == "void":
            return f"void ({self.degenerate} of {self.pairs} maps are degenerate)"
        return self.word or ""

    @property
    def disagrees(self) -> bool:
        """Whether the interval and the test, before the correction, answer differently about 0."""
        if self.low is None or self.high is None or self.p is None:
            return False
        return (not self.low <= 0 <= self.high) != (self.p < 1 - self.level)


def effects_of(
    values: Float, groups: PairGroups, left_out: Sequence[Mapping[str, int]], degenerate: NDArray[np.bool_]
) -> list[list[Effect]]:
    """For each of K columns the effect over classes, then the effect of each class that has a pair, in their order.

    values: float64 [P, K], NaN where a pair has no score. left_out: for each column why -> pairs. degenerate: bool
    [P, K]. Raises ValueError if they do not fit.
    """
    if values.shape != degenerate.shape or values.ndim != 2 or len(left_out) != values.shape[1]:
        raise ValueError(f"values {values.shape}, degenerate {degenerate.shape} and {len(left_out)} counts do not fit")
    defined = ~np.isnan(values)
    by_column: list[list[Effect]] = [[] for _ in left_out]
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


def _effects(values: Float, groups: PairGroups) -> list[list[Effect]]:
    """`effects_of` for columns without NaN: [K][1 + classes with a pair]."""
    names, class_of = np.unique(groups.class_of, return_inverse=True)
    means = class_means(values, class_of, len(names), groups.draws, groups.patient_of)
    parts = [(np.arange(len(values)), means.macro)]
    parts += [(np.flatnonzero(class_of == c), means.classes[:, c]) for c in range(len(names))]
    return [
        [_effect(values[pairs, k], drawn[:, k], groups.take(pairs)) for pairs, drawn in parts]
        for k in range(values.shape[1])
    ]


def _effect(values: Float, drawn: Float, groups: PairGroups) -> Effect:
    """drawn: float64 [1 + B], the value and its replicates."""
    parts = shares(values, groups.class_of, groups.patient_of, len(groups.names))
    return Effect(
        value=None if parts is None else float(drawn[0]),
        interval=mean_interval(drawn[1:], parts, groups.level, None),
        pairs=len(values),
        patients=len(np.unique(groups.patient_of)),
        names=groups.names,
        added=np.zeros(len(groups.names)) if parts is None else parts.of_patients,
        seed=groups.draws.seed,
    )


def verdicts(
    effects: Sequence[Effect], criteria: Sequence[Criterion | None], families: Sequence[Hashable] | None = None
) -> list[TrustVerdict]:
    """The verdicts of effects; those that have a pair are tested, and corrected with the others of their family.

    criteria: None: no verdict; shares are not tested and do not count. families: of each effect; None: one family.
    """
    names = families or [None] * len(effects)
    members: dict[Hashable, list[int]] = {}
    for place, (effect, criterion, name) in enumerate(zip(effects, criteria, names, strict=True)):
        tested = effect.value is not None and (criterion is None or not criterion.share)
        members.setdefault(name, []).extend([place] if tested else [])
    draws = {place: draws_for(len(own)) for own in members.values() for place in own}
    found = _tested(effects, draws)
    adjusted: dict[int, float | None] = {}
    for own in members.values():
        adjusted |= zip(own, holm([found[place].p for place in own]), strict=True)
    return [
        _verdict(effect, criterion, found.get(place), adjusted.get(place), len(members[name]))
        for place, (effect, criterion, name) in enumerate(zip(effects, criteria, names, strict=True))
    ]


def _tested(effects: Sequence[Effect], draws: Mapping[int, int]) -> dict[int, Tested]:
    """The tests of effects, by place, with their number of patterns; of each class apart, which is cheaper."""
    alike: dict[tuple[tuple[str, ...], int, int, int, int], list[int]] = {}
    for place, number in draws.items():
        own = effects[place]
        alike.setdefault((own.names, own.seed, own.pairs, own.patients, number), []).append(place)
    found: dict[int, Tested] = {}
    for (patients, seed, *_, number), places in alike.items():
        added = np.column_stack([effects[place].added for place in places])
        found |= zip(places, sign_flip_tests(added, patients, number, seed), strict=True)
    return found


def _verdict(
    effect: Effect, criterion: Criterion | None, tested: Tested | None, p_holm: float | None, family: int
) -> TrustVerdict:
    if criterion is not None and criterion.share:
        effect = replace(effect, interval=share_interval(effect))
    interval = effect.interval
    return TrustVerdict(
        value=effect.value,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        pairs=effect.pairs,
        patients=effect.patients,
        p=None if tested is None else tested.p,
        p_bound=tested is not None and tested.bound,
        p_holm=p_holm,
        family=family,
        criterion="" if criterion is None else str(criterion),
        word=None if criterion is None else _word(effect, criterion, p_holm),
        left_out=effect.left_out,
        degenerate=effect.degenerate,
        level=0.95 if interval is None else interval.level,
    )


def _word(effect: Effect, criterion: Criterion, p_holm: float | None) -> Word:
    if effect.degenerate > MOST_DEGENERATE * effect.pairs:
        return "void"
    if effect.value is None or effect.interval is None or effect.patients < LEAST_PATIENTS:
        return "cannot tell"
    sign = 1 if criterion.direction == "above" else -1
    value = sign * (effect.value - criterion.bound)
    low, high = sorted(sign * (end - criterion.bound) for end in (effect.interval.low, effect.interval.high))
    if low > criterion.margin and (criterion.share or (p_holm is not None and p_holm < ALPHA)):
        return "pass"
    if high < 0 or (value <= 0 and high < criterion.margin):
        return "fail"
    return "cannot tell"


def share_interval(effect: Effect) -> Interval | None:
    """The interval of a share. A bootstrap of shares that are all 0, or all 1, has no width, and would be sure of what
    a few patients show: then it is Wilson's, with as many trials as patients."""
    found = effect.interval
    if effect.value is None or effect.patients < LEAST["patients"]:
        return None
    if found is None or found.low == found.high:
        return wilson_interval(effect.value * effect.patients, effect.patients)
    return found


def worst_of(words: Sequence[Word | None]) -> Word:
    """The word of a line that asks several questions: it passes only if every one does.

    `fail` comes before `void`, and `void` before `cannot tell`; without a question nothing can be told.
    """
    for word in ("fail", "void", "cannot tell"):
        if word in words or (word == "cannot tell" and (not words or None in words)):
            return word
    return "pass"
