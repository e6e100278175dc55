"""A case: one image with what its dataset says about it, and the regions of its classes (docs/datasets.md §0.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

UNCERTAIN: Final = -1
"""A label that the annotator was not sure of, as CheXpert writes it; `Dataset.cases` replaces it by its policy."""


@runtime_checkable
class Region(Protocol):
    """The area of one class in one image; drawn only on request; `region_boxes` and `region_shapes` have them."""

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """The region on its native grid, bool [height, width]. Raises DataError when it was drawn on another grid."""
        ...


@dataclass(frozen=True)
class Case:
    """One image with what its dataset says about it.

    labels: class -> 1, 0 or None (the dataset does not say; excluded, never 0). Holds every class of the dataset. A
    reader may give `UNCERTAIN` too, if it has the option `uncertain`.
    regions: class -> region; only classes that have one. A region can still turn out empty (a box outside the image).
    rows: the case's position in the annotation file, for messages: lines of a CSV, 1-based entries of a JSON list.
    size: (height, width) of the grid on which the regions are drawn; None: the image's own. A copy of the images at
    another resolution can use the same annotation, because grid and image are resized to the same evaluation frame.
    phrases: finding -> the phrase that this image is asked for it, of a dataset that `asks_phrases`. unasked: keys
    (`phrases.pairs.phrase_key`) of phrases of the image that are not asked, because they have no region.
    attributes: what is known of the patient and the exposure, such as view, sex and age; None unless a reader fills it.
    For built-in readers, studies of subgroups read attributes later (`attributes.lookup`). No result depends on them.
    """

    case_id: str
    image: Path
    labels: Mapping[str, int | None]
    regions: Mapping[str, Region]
    split: str
    patient_id: str | None = None
    rows: tuple[int, ...] = ()
    size: tuple[int, int] | None = None
    phrases: Mapping[str, str] = field(default_factory=dict)
    unasked: tuple[str, ...] = ()
    attributes: Mapping[str, str | float] | None = None

    @property
    def is_named(self) -> bool:
        """Whether the dataset names the patient."""
        return self.patient_id is not None and not self.patient_id.startswith(_OF_IMAGE)

    @property
    def patient(self) -> str:
        """The patient's name, or a name for this image alone if the dataset gives none."""
        return f"case {self.case_id}" if self.patient_id is None else self.patient_id


_OF_IMAGE: Final = "image "


def patient_of_image(case_id: str) -> str:
    """The patient of several cases of one image whose patient is not named; case_id: of the first, or of the image."""
    return f"{_OF_IMAGE}{case_id}"
