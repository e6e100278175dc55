"""Several cells of one dataset (such as one model with several prompt sets), and each minus the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..choices import Choices
from ..comparability import check_protocols
from ..image_identity import agreed_images
from ..load_rows import CellRows
from ..numbers.cell_values import CellValues, cell_values
from ..own_metrics import OwnMetric
from ..selected_pairs import Patients, Resampling, ScoredPairs, dataset_patients
from .align import SharedRows, shared_rows
from .difference import Difference, subtract


@dataclass(frozen=True, eq=False)
class Variant:
    """A cell, and a label that no other cell of the group has."""

    label: str
    rows: CellRows
    pairs: ScoredPairs


@dataclass(frozen=True, kw_only=True)
class VariantDifference(Difference):
    """One variant minus the first. key, title: what the variants have in common, a model or family and a dataset;
    kind: `class` or `stratum`, what `name` is; variant, first: their labels."""

    key: str
    title: str
    kind: str
    variant: str
    first: str


@dataclass(frozen=True, eq=False)
class Variants:
    """The rows that several cells share.

    left_out: per variant, the pairs that another does not have, or has with another region or of another image.
    metrics: of the user, whose scores the pairs have.
    """

    key: str
    title: str
    labels: tuple[str, ...]
    shared: SharedRows
    parts: tuple[tuple[CellRows, ScoredPairs], ...]
    patients: Patients
    resampling: Resampling
    left_out: tuple[int, ...]
    metrics: tuple[OwnMetric, ...] = ()

    def by_class(self) -> tuple[CellValues, ...]:
        """The numbers of each variant; none of recognition if a score is not finite."""
        return tuple(
            self._values(rows if np.isfinite(rows.logits).all() else _without_scores(rows), pairs)
            for rows, pairs in self.parts
        )

    def by_stratum(self, names: Sequence[str], index: NDArray[np.intp]) -> tuple[CellValues, ...]:
        """Grounding of each variant with its pairs divided into strata: `index` intp [P], into `names`."""
        return tuple(
            self._values(
                replace(_without_scores(rows), findings=tuple(names), class_of=index),
                replace(pairs, names=tuple(names), class_of=index),
            )
            for rows, pairs in self.parts
        )

    def differences(
        self, values: Sequence[CellValues], fields: Collection[str], kind: str
    ) -> Iterator[VariantDifference]:
        """Each variant minus the first: every class or stratum, then the mean, in every number that both have."""
        made = partial(VariantDifference, key=self.key, title=self.title, kind=kind, first=self.labels[0])
        for name in (*values[0].names, ""):
            for field in fields:
                for label, value in zip(self.labels[1:], values[1:], strict=True):
                    found = subtract(value, values[0], field, name, self.resampling.level)
                    if found is not None:
                        yield made(**vars(found), variant=label)

    def _values(self, rows: CellRows, pairs: ScoredPairs) -> CellValues:
        # A threshold per class or stratum, and level 50 of the range in every protocol.
        pairs = replace(
            pairs,
            options=replace(pairs.options, unit="per_class"),
            protocol=replace(pairs.protocol, fixed_tau=pairs.protocol.fixed_tau or 0.5),
        )
        choices = Choices(replicates=self.resampling.replicates, seed=self.resampling.seed, metrics=self.metrics)
        return cell_values(rows, pairs, self.patients, choices)


def _without_scores(rows: CellRows) -> CellRows:
    images = len(rows.case_of)
    none = np.zeros((images, 0), np.float32)
    return replace(rows, labels=np.zeros((images, 0), np.int8), logits=none, negatives=none)


def side_by_side(
    key: str,
    title: str,
    variants: Sequence[Variant],
    resampling: Resampling,
    metrics: tuple[OwnMetric, ...] = (),
) -> Variants | None:
    """The shared rows of variants of one dataset, None without a shared pair. metrics: those that the pairs have.

    Raises RunError for variants that were swept by different protocols, whose numbers are not comparable.
    """
    check_protocols(f"{key} on {title}", [(variant.label, variant.rows) for variant in variants])
    rows = agreed_images([variant.rows for variant in variants])
    cells = [(own, variant.pairs) for own, variant in zip(rows, variants, strict=True)]
    shared = shared_rows(cells)
    pairs = len(shared.image_of)
    if not pairs:
        return None
    return Variants(
        key=key,
        title=title,
        labels=tuple(variant.label for variant in variants),
        shared=shared,
        parts=tuple(shared.cut(place, *cell) for place, cell in enumerate(cells)),
        patients=dataset_patients(rows[0].dataset, rows, resampling.replicates, resampling.seed),
        resampling=resampling,
        left_out=tuple(len(scored.counts) - pairs for _, scored in cells),
        metrics=metrics,
    )
