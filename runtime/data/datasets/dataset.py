"""The base class of datasets (docs/datasets.md §0.1): one `Case` per image, and notes about problems in its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ....engines.errors import DataError
from ...host.paths import has_folder
from .case import Case, Region
from .case_rules import CaseRules, Settled
from .file_rows import Note
from .options import PATIENTS, UNCERTAIN_LABELS, ReaderOptions
from .patients import with_patients
from .uncertain_labels import POLICIES

if TYPE_CHECKING:
    from .readers.reader_marks import ReaderMarks

__all__ = ["PATIENTS", "UNCERTAIN_LABELS", "Case", "Dataset", "Note", "OfficialCounts", "Region"]


@dataclass(frozen=True)
class OfficialCounts:
    """Counts of a complete official set, docs/datasets.md; None: not known."""

    cases: int
    pairs: int | None = None
    boxes: int | None = None
    pairs_per_class: Mapping[str, int] = field(default_factory=dict)
    boxes_per_class: Mapping[str, int] = field(default_factory=dict)


class Dataset(ReaderOptions, ABC):
    """A dataset on disk. A subclass names itself and its classes, and implements `read` and `sources`.

    `root` is the dataset's folder. `options` are the options of the reader, listed in `option_help`. Raises
    ConfigError for an option that does not exist and DataError when the folder does not exist. `card` gives the
    source, terms and citation of the data, and how certain the split is; the audit shows it. A reader with `PATIENTS`
    among its options gets the patients of its cases from that file, if one is given. `mends`: for kinds of
    `checking.box_statistics`, which option of the reader mends it; {side} is replaced by the longer side of the images
    on which the boxes were drawn, {name} for `configured`, the dataset's name in the configuration, else `name`.
    `asks_phrases`: each case has its own `phrases`, and prompt sets are not used. `cases_per_image`: how many cases may
    name one image.
    """

    title: str
    classes: tuple[str, ...]
    card: ClassVar[str] = ""
    asks_phrases: ClassVar[bool] = False
    cases_per_image: int = 1
    mends: Mapping[str, str] = {}
    configured: str = ""

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, options)
        if not has_folder(self.root):
            raise DataError(
                f"The folder {self.root} of the dataset '{self.name}' does not exist or may not be entered; correct "
                "its root."
            )

    @abstractmethod
    def read(self, notes: list[Note]) -> Sequence[Case]:
        """Reads the annotation files; appends problems that do not stop the reading to `notes`. Raises DataError."""

    @abstractmethod
    def sources(self) -> Sequence[Path]:
        """The annotation files that define labels and regions; their content is part of a result's key."""

    def official(self) -> OfficialCounts | None:
        """The counts of the complete official set, if they are known."""
        return None

    def image_folders(self) -> Sequence[Path]:
        """The folders that hold only images of this dataset; the audit searches them for unannotated files."""
        return ()

    def cases(self) -> Sequence[Case]:
        """All cases in the order of the annotation file; read once and cached. Raises DataError."""
        return self._content.cases

    @property
    def notes(self) -> Sequence[Note]:
        """The problems in the files, with file and row; reads the files on the first call. Raises DataError."""
        return self._content.notes

    @property
    def uncertain_labels(self) -> int:
        """The number of labels that the annotator was not sure of; reads the files on the first call."""
        return self._content.uncertain

    @cached_property
    def uncertain(self) -> str:
        """The policy for uncertain labels: ignore, positive or negative. Raises ConfigError."""
        return self.choice_option("uncertain", POLICIES, POLICIES[0])

    @cached_property
    def _content(self) -> Settled:
        notes: list[Note] = []
        cases = self.read(notes)
        if "patients" in self.options:
            cases = with_patients(cases, self.path_option("patients", ""), self.name)
        rules = CaseRules(self.name, self.classes, self.uncertain, self.cases_per_image)
        return rules.settle(cases, notes, next(iter(self.sources()), self.root))

    def attribute_file(self) -> Path | None:
        """The file of the dataset that has the attributes of its cases; None: the headers of its DICOM images."""
        return None

    def reader_marks(self, reader: str) -> ReaderMarks | str:
        """What a further reader marked, who did not draw the regions, or why there is nothing to score. Raises
        DataError.

        reader: `second` or `radiologist` (`readers.marks`).
        """
        whose = "boxes of a second reader" if reader == "second" else f"marks of a {reader} in addition to its regions"
        return f"the dataset has no {whose}"
