"""Contrasts of two groups of models: over patients, with the models kept, and over models as a random sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from .....metrics_gpu.statistics.intervals import Interval, Shares, mean_interval, percentile_interval
from .....metrics_gpu.statistics.measured_numbers import Measured, Parts
from .....metrics_gpu.statistics.model_groups import ModelContrast, contrast_models, mean_of_models
from .....metrics_gpu.statistics.multiple_tests import corrected, holm
from ....results.comparing.difference import Difference, averaged
from ..columns import measured
from ..estimates import over_datasets
from ..material import Material
from ..writing import limits
from .model_numbers import RESIDUAL, CellNumber, ModelNumber, Numbers

Groups = Mapping[str, Sequence[str]]
"""Group -> its models."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """The first group minus the second in one measure. patients: with the models kept; models: with the models as a
    sample, empty where a model is in both groups or a group has one."""

    division: str
    measure: str
    groups: tuple[str, str]
    sizes: tuple[int, int]
    shared: tuple[str, ...]
    patients: Measured
    models: ModelContrast


def group_rows(division: str, groups: Groups, numbers: Numbers, level: float) -> Iterator[dict[str, Any]]:
    """The mean of each group in each measure, with its interval over patients and over models."""
    for measure, of_models in numbers.items():
        for group, members in groups.items():
            own = [of_models[model].number for model in members if model in of_models]
            if own:
                values = [number.value for number in own if number.value is not None]
                yield {
                    "division": division,
                    "group": group,
                    "measure": measure,
                    "models": len(own),
                    **measured("value", over_datasets(own, level)),
                    **limits("models", _cut(mean_of_models(values, level), measure)),
                    "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                }


def _cut(interval: Interval | None, measure: str) -> Interval | None:
    """The interval of a mean of fractions ends at 0 and 1, as Student's of few patients does."""
    if interval is None or measure == RESIDUAL:
        return interval
    return replace(interval, low=max(interval.low, 0.0), high=min(interval.high, 1.0))


def contrasts(division: str, groups: Groups, numbers: Numbers, material: Material) -> Iterator[Contrast]:
    """Each two groups in each measure that both have, the first minus the second; not tested yet."""
    level, seed = material.sampling.level, material.sampling.seed
    for measure, of_models in numbers.items():
        for pair in combinations(groups, 2):
            first, second = ([m for m in groups[group] if m in of_models] for group in pair)
            if not (first and second):
                continue
            both = tuple(model for model in first if model in second)
            one, two = ([of_models[model] for model in side] for side in (first, second))
            values = [[item.number.value or 0.0 for item in side] for side in (one, two)]
            yield Contrast(
                division=division,
                measure=measure,
                groups=pair,
                sizes=(len(first), len(second)),
                shared=both,
                patients=_over_patients(measure, one, two, level),
                models=ModelContrast() if both else contrast_models(values[0], values[1], level, seed),
            )


def _over_patients(measure: str, first: Sequence[ModelNumber], second: Sequence[ModelNumber], level: float) -> Measured:
    datasets = list(first[0].cells)
    if not datasets:  # a residual is of all datasets at once
        one, two = over_datasets([m.number for m in first], level), over_datasets([m.number for m in second], level)
        assert one.value is not None and two.value is not None and one.drawn is not None and two.drawn is not None
        gaps = one.drawn - two.drawn
        return Measured(one.value - two.value, percentile_interval(gaps, level) if one.interval else None, drawn=gaps)
    items = [
        _on_dataset(measure, [m.cells[name] for m in first], [m.cells[name] for m in second], level)
        for name in datasets
    ]
    return items[0] if len(items) == 1 and measure != "auc" else averaged(items, [1.0] * len(items), level)


def _on_dataset(measure: str, first: Sequence[CellNumber], second: Sequence[CellNumber], level: float) -> Difference:
    one, two = over_datasets([c.number for c in first], level), over_datasets([c.number for c in second], level)
    assert one.value is not None and two.value is not None and one.drawn is not None and two.drawn is not None
    sample = first[0].sample
    difference = Difference(
        field=measure,
        value=one.value - two.value,
        minuend=one.value,
        reference=two.value,
        drawn=one.drawn - two.drawn,
    )
    if measure == "auc":
        added = [[c.parts for c in side if c.parts is not None] for side in (first, second)]
        if len(added[0]) < len(first) or len(added[1]) < len(second):
            return difference
        gap = np.mean(added[0], axis=0) - np.mean(added[1], axis=0)
        return replace(difference, parts=Parts(sample.names, gap, sample.seed, ranked=True))
    sides = [[c.shares for c in side if c.shares is not None] for side in (first, second)]
    means = [np.mean([each.added for each in side], axis=0) for side in sides]
    shares = Shares(means[0] - means[1], sides[0][0].part)
    return replace(
        difference,
        interval=mean_interval(difference.drawn, shares, level, None),
        parts=Parts(sample.names, shares.of_patients, sample.seed),
    )


def contrast_rows(found: Sequence[Contrast]) -> list[dict[str, Any]]:
    """Rows with p corrected: for each measure one family over patients and one over models, of all contrasts."""
    families = [item.measure for item in found]
    tested = corrected([item.patients for item in found], families)
    over_models: dict[int, float | None] = {}
    sizes: dict[str, int] = {}
    for measure in dict.fromkeys(families):
        places = [place for place, item in enumerate(found) if item.measure == measure]
        over_models |= zip(places, holm([found[place].models.p for place in places]), strict=True)
        sizes[measure] = sum(found[place].models.p is not None for place in places)
    return [
        {
            "division": item.division,
            "first": item.groups[0],
            "second": item.groups[1],
            "measure": item.measure,
            "models": f"{item.sizes[0]} and {item.sizes[1]}",
            "in_both": ", ".join(item.shared),
            **measured("difference", number),
            **number.test,
            **limits("models", item.models.interval),
            "models_p": item.models.p,
            "models_p_holm": over_models[place],
            "models_family": sizes[item.measure],
            "models_p_least": item.models.least,
        }
        for place, (item, number) in enumerate(zip(found, tested, strict=True))
    ]
