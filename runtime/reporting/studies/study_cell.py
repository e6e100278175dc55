"""A finished cell as input of studies: every pair that counts, with its patient and the draws of its dataset."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.protocols import GroundingOptions, Unit
from ....metrics_gpu.grounding.scores import Grounding, grounding
from ....metrics_gpu.statistics.bootstrap import Draws
from ....metrics_gpu.sweep.counts import Counts
from ...results.load_rows import CellRows
from ...results.numbers.fields import Sample, sample_of
from ...results.schema import GRID
from ...results.selected_pairs import Patients, ScoredPairs

PIXELS = GRID * GRID


@dataclass(frozen=True, eq=False)
class StudyCell:
    """A finished cell: its rows, the pairs that count by its protocol, and the patients of its dataset, who are
    resampled identically for all models. `ambiguous`: another dataset of the run has the same title."""

    rows: CellRows
    pairs: ScoredPairs
    patients: Patients
    ambiguous: bool = False

    @property
    def model(self) -> str:
        return self.rows.model

    @property
    def bundle(self) -> str:
        """The model, or that of which it is a variant with one of several prompt sets."""
        return str(self.rows.entry.get("variant_of") or self.model)

    @property
    def dataset(self) -> str:
        return self.rows.dataset

    @property
    def title(self) -> str:
        """The dataset's printed name, with its configured name if another dataset of the run has the same title."""
        return f"{self.plain_title} ({self.dataset})" if self.ambiguous else self.plain_title

    @property
    def plain_title(self) -> str:
        """The dataset's own title."""
        return str(self.rows.entry["title"])

    @property
    def digest(self) -> str | None:
        """The hash of the dataset's contents, None if the run does not give it."""
        contents = self.rows.entry["ingredients"].get("dataset")
        return str(contents[1]) if contents else None

    @property
    def pairs_digest(self) -> str:
        """A hash of which of its pairs count: those of a baseline depend on the models of the run."""
        return hashlib.sha256(self.pairs.places.astype("<i8").tobytes()).hexdigest()

    @property
    def weights(self) -> str:
        return str(self.rows.entry["weights"])

    @property
    def has_thresholds(self) -> bool:
        """Whether it is of maps. Boxes from a file are the same at every threshold, so none is the best."""
        return self.weights != "boxes"

    @property
    def in_words(self) -> bool:
        """Whether the answers are words, or floors of words."""
        return "words" in self.rows.entry.get("boxes", {})

    @property
    def family(self) -> str:
        """The model's family, or its own name if the family is not known."""
        return str(self.rows.entry.get("model_family") or self.model)

    @property
    def counts(self) -> Counts:
        return self.pairs.counts

    @property
    def classes(self) -> tuple[str, ...]:
        return self.rows.findings

    @property
    def class_of(self) -> NDArray[np.intp]:
        """intp [P]: index into `classes`."""
        return self.pairs.class_of

    @property
    def n(self) -> int:
        """Number of pairs that count."""
        return len(self.pairs.counts)

    @property
    def draws(self) -> Draws:
        """The resamples of the dataset's patients."""
        assert self.patients.draws is not None  # a study has at least one replicate
        return self.patients.draws

    @property
    def image_patients(self) -> NDArray[np.intp]:
        """intp [N]: the patient of each readable image."""
        return self.patients.of_images(self.rows)

    @property
    def patient_of(self) -> NDArray[np.intp]:
        """intp [P]: the patient of each pair."""
        patients: NDArray[np.intp] = self.image_patients[self.pairs.image_of]
        return patients

    @property
    def sample(self) -> Sample:
        """What its numbers rest on, by patient."""
        return sample_of(self.rows, self.resampled_pairs, self.patients, self.draws.seed)

    @property
    def case_ids(self) -> tuple[str, ...]:
        """The case of each pair."""
        return tuple(self.rows.case_ids[index] for index in self.rows.case_of[self.pairs.image_of])

    @property
    def hits(self) -> NDArray[np.float64]:
        """float64 [P]: pointing hits by the cell's rule for ties."""
        return self.pairs.hits

    @property
    def scored(self) -> bool:
        """Whether there are logits for recognition: a baseline has none."""
        return self.weights != "baseline" and bool(np.isfinite(self.rows.logits).all())

    def options(self, unit: Unit | None = None) -> GroundingOptions:
        """The options of the cell's protocol, with another search `unit` if one is given."""
        return self.pairs.options if unit is None else replace(self.pairs.options, unit=unit)

    def scores(self, unit: Unit | None = None) -> Grounding:
        """Grounding per class; `unit` is None for the protocol's, or per_class, per_image, per_dataset or cross_fit."""
        return grounding(replace(self.resampled_pairs, draws=None), self.options(unit))

    def drawn_scores(self, unit: Unit | None = None) -> Grounding:
        """`scores(unit)` with their replicates."""
        return grounding(self.resampled_pairs, self.options(unit))

    @property
    def resampled_pairs(self) -> ScoredPairs:
        """The pairs with their patients, draws and folds."""
        return self.pairs.resampled(self.patients, self.image_patients)
