"""Tests of several numbers that are declared together, and the correction of their p values (docs/metrics.md §8.4)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from .measured_numbers import Measured
from .sign_flips import draws_for, sign_flip_tests

AnyMeasured = TypeVar("AnyMeasured", bound=Measured)


def corrected(items: Sequence[AnyMeasured], families: Sequence[Hashable] | None = None) -> list[AnyMeasured]:
    """The same with the sign-flip tests of those with parts, and Holm's p values.

    families: of each item, the key of those that are corrected together; None: all are. As many sign patterns are drawn
    as the family asks for.
    """
    members: dict[Hashable, list[int]] = {}
    for index, key in enumerate(families or [None] * len(items)):
        members.setdefault(key, []).append(index)
    tested = list(items)
    for indices in members.values():
        size = sum(items[index].parts is not None for index in indices)
        for index in indices:
            tested[index] = replace(items[index], family=size)
    tested = _flipped(tested)
    for indices in members.values():
        for index, p_holm in zip(indices, holm([tested[index].p for index in indices]), strict=True):
            tested[index] = replace(tested[index], p_holm=p_holm)
    return tested


def _flipped(items: Sequence[AnyMeasured]) -> list[AnyMeasured]:
    """The same with p of those that sign flips test.

    Numbers of the same pairs and number of patterns are tested at once. Each class is tested apart, which is cheaper:
    the patterns then cover the patients of the class alone.
    """
    alike: dict[tuple[tuple[str, ...], int, int, int, int], list[int]] = {}
    for index, item in enumerate(items):
        if item.parts is not None and not item.parts.ranked:
            key = (item.parts.names, item.parts.seed, item.n, item.patients, draws_for(item.family))
            alike.setdefault(key, []).append(index)
    tested = list(items)
    for (names, seed, _, _, draws), indices in alike.items():
        added = np.column_stack([parts.added for index in indices if (parts := items[index].parts) is not None])
        for index, test in zip(indices, sign_flip_tests(added, names, draws, seed), strict=True):
            tested[index] = replace(items[index], p=test.p, p_bound=test.bound)
    return tested


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p values adjusted for multiple tests by Holm's step-down method (S. Holm, Scand. J. Statistics 6, 1979).

    None stays None and does not count. Raises ValueError for a value outside [0, 1].
    """
    tested = [(value, position) for position, value in enumerate(values) if value is not None]
    for value, position in tested:
        if not 0 <= value <= 1:
            raise ValueError(f"p value {position} lies outside [0, 1]: {value}")
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, position) in enumerate(sorted(tested)):
        largest = max(largest, min(1.0, (len(tested) - rank) * value))
        adjusted[position] = largest
    return adjusted
