"""The base class of datasets (docs/datasets.md §0.1): one `Case` per image, and notes about problems in its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from ....engines.errors import ConfigError, DataError
from ....engines.registry import did_you_mean
from ...host.paths import has_file, has_folder
from .case import Case, Region
from .case_rules import POLICIES, CaseRules, Settled
from .file_rows import Note
from .patients import with_patients

if TYPE_CHECKING:
    from .readers.reader_marks import ReaderMarks

__all__ = ["PATIENTS", "UNCERTAIN_LABELS", "Case", "Dataset", "Note", "OfficialCounts", "Region"]

PATIENTS: Final = {"patients": "a CSV file that names the patient of each image, default none"}
"""The option of readers whose files name no patient, for their `option_help`; `Dataset.cases` applies it."""

UNCERTAIN_LABELS: Final = {
    "uncertain": "policy for uncertain labels (-1, as in CheXpert): ignore (default; the label becomes unknown), "
    "positive or negative"
}
"""The option of readers with labels, for their `option_help`; `Dataset.cases` applies it."""


@dataclass(frozen=True)
class OfficialCounts:
    """Counts of a complete official set, docs/datasets.md; None: not known."""

    cases: int
    pairs: int | None = None
    boxes: int | None = None
    pairs_per_class: Mapping[str, int] = field(default_factory=dict)
    boxes_per_class: Mapping[str, int] = field(default_factory=dict)


class Dataset(ABC):
    """A dataset on disk. A subclass names itself and its classes, and implements `read` and `sources`.

    `root` is the dataset's folder. `options` are the options of the reader, listed in `option_help`. Raises
    ConfigError for an option that does not exist and DataError when the folder does not exist. `card` gives the
    source, terms and citation of the data, and how certain the split is; the audit shows it. A reader with `PATIENTS`
    among its options gets the patients of its cases from that file, if one is given. `mends`: for kinds of
    `checking.box_statistics`, which option of the reader mends it; {side} stands for the longer side of the images on
    which the boxes were drawn, {name} for `configured`, the dataset's name in the configuration, else `name`.
    `asks_phrases`: each case has its own `phrases`, and prompt sets are not used. `cases_per_image`: how many cases may
    name one image.
    """

    name: str
    title: str
    classes: tuple[str, ...]
    option_help: ClassVar[Mapping[str, str]] = {}
    card: ClassVar[str] = ""
    asks_phrases: ClassVar[bool] = False
    cases_per_image: int = 1
    mends: Mapping[str, str] = {}
    configured: str = ""

    def __init__(self, root: Path, **options: object) -> None:
        self.root = Path(root)
        for key in options:
            if key not in self.option_help:
                hint = did_you_mean(key, self.option_help)
                raise ConfigError(f"The dataset '{self.name}' has no option '{key}': {hint}.")
        if not has_folder(self.root):
            raise DataError(
                f"The folder {self.root} of the dataset '{self.name}' does not exist or may not be entered; correct "
                "its root."
            )
        self.options = {key: value for key, value in options.items() if value is not None}

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

    def path_option(self, key: str, default: str) -> Path:
        """The file or folder named by the option `key`, relative to the root unless absolute."""
        value = self.options.get(key, default)
        if not isinstance(value, str | Path) or not str(value):
            raise ConfigError(f"The option '{key}' of the dataset '{self.name}' must be a path, not {value!r}.")
        return self.root / value

    def first_path(self, key: str, *defaults: str) -> Path:
        """The file or folder named by the option `key`, else the first of `defaults` that exists, else the first."""
        if key in self.options:
            return self.path_option(key, "")
        places = [self.root / name for name in defaults]
        return next((path for path in places if has_file(path) or has_folder(path)), places[0])

    def text_option(self, key: str, default: str) -> str:
        """The value of the option `key`, a text that is not empty or blank. Raises ConfigError."""
        value = self.options.get(key, default)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"The option '{key}' of the dataset '{self.name}' must be a text, not {value!r}.")
        return value.strip()

    def texts_option(self, key: str) -> tuple[str, ...]:
        """The value of the option `key`, a list of texts or one text; none if it is not given. Raises ConfigError."""
        given = self.options.get(key, [])
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise ConfigError(f"The option '{key}' of the dataset '{self.name}' must be a list of texts.")
        return tuple(dict.fromkeys(text.strip() for text in texts))

    def flag_option(self, key: str) -> bool:
        """The value of the option `key`, true or false, by default false. Raises ConfigError."""
        value = self.options.get(key, False)
        if not isinstance(value, bool):
            raise ConfigError(f"The option '{key}' of the dataset '{self.name}' must be true or false, not {value!r}.")
        return value

    def list_option(self) -> tuple[str, Path | None]:
        """The options `split` (all, list, paper) and `list` together: the split, and the list's file unless it is all.

        A list implies its split. Raises ConfigError when the split needs a list and none is given, or the reverse.
        """
        listed = self.path_option("list", "") if "list" in self.options else None
        split = self.choice_option("split", ("all", "list", "paper"), "list" if listed else "all")
        if split != "all" and listed is None:
            raise ConfigError(f"The split '{split}' of the dataset '{self.name}' needs the option list=FILE.")
        if split == "all" and listed is not None:
            raise ConfigError(f"The dataset '{self.name}' has split=all and a list; leave one of the two out.")
        return split, listed

    def attribute_file(self) -> Path | None:
        """The file of the dataset that has the attributes of its cases; None: the headers of its DICOM images."""
        return None

    def reader_marks(self, reader: str) -> ReaderMarks | str:
        """What a reader beside those of the regions marked, or why there is nothing to score. Raises DataError.

        reader: `second` or `radiologist` (`readers.marks`).
        """
        whose = "boxes of a second reader" if reader == "second" else f"marks of a {reader} beside its regions"
        return f"the dataset has no {whose}"

    def choice_option(self, key: str, choices: Sequence[str], default: str) -> str:
        """The value of the option `key`, one of `choices`. Raises ConfigError."""
        value = self.options.get(key, default)
        if value not in choices:
            hint = did_you_mean(str(value), choices)
            raise ConfigError(f"The option '{key}' of the dataset '{self.name}' cannot be {value!r}: {hint}.")
        return str(value)

    def side_option(self, key: str, default: int) -> int:
        """The value of the option `key`, a length in pixels from 1 to 32,768. Raises ConfigError."""
        value = self.options.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 32_768:
            raise ConfigError(
                f"The option '{key}' of the dataset '{self.name}' must be a number of pixels, not {value!r}."
            )
        return value
