"""PadChest-GR: sentences of reports with boxes by two readers (docs/phrase-grounding.md §11.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from .....engines.errors import ConfigError
from ....host.paths import has_file
from ..dataset import Case, Dataset, Note
from ..file_rows import fail, numbers
from ..formats.named_images import NamedImages
from ..readers.reader_marks import SECOND, ReaderBoxes, ReaderMarks
from ..source.csv_cells import is_blank, label_of
from ..source.csv_files import read_csv
from ..source.documents import read_json
from ..source.image_names import ImageIds, stem_of
from ..source.spelling import Spellings, spelling_key
from .phrase_pairs import MOST_ROUNDS, Corners, PhraseImage, asked, one_line, phrase_key

_REPORTS: Final = "grounded_reports_20240819.json"
_SPLITS: Final = ("train", "validation", "test")
_REGIONS: Final = {"boxes": ("boxes",), "extra": ("extra_boxes",), "union": ("boxes", "extra_boxes")}
_NO_LABEL: Final = "No label"
_SEX: Final = "PatientSex_DICOM"


@dataclass
class _Table:
    """What master_table.csv says: by ImageID and StudyID the patient, the split and the patient's sex, with the label
    also the group. sexes: None without such a column; of several the sex is not known."""

    sexes: dict[str, set[str]] | None = None
    patient: dict[str, str] = field(default_factory=dict)
    split: dict[str, str] = field(default_factory=dict)
    group: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sentence:
    """A positive sentence of an image: its row is the row of the study."""

    row: int
    image: str
    study: str
    finding: str
    text: str
    boxes: tuple[Corners, ...]


class PadChestGr(Dataset):
    """`<root>/grounded_reports_20240819.json`, with `<root>/master_table.csv`, next to the PNG files.

    A pair is an image and a positive sentence with boxes, its region the union of the boxes; a positive sentence
    without boxes is none. The finding of a sentence is its first label, or this label's group in the table. Only what a
    sentence says is known of an image, so other findings are unknown.
    """

    name = "padchest_gr"
    title = "PadChest-GR"
    asks_phrases = True
    cases_per_image = MOST_ROUNDS
    classes: tuple[str, ...] = ()
    card = """Source: PadChest-GR (BIMCV), 4,555 studies with sentences of reports and boxes by two radiologists.
Access: on request, with a data use agreement; no redistribution.
Cite: Castro et al., PadChest-GR: A Bilingual Chest X-ray Dataset for Grounded Radiology Report Generation, 2024.
Split: train, validation and test of master_table.csv, all three by default."""
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": f"the JSON file, default {_REPORTS}",
        "table": "the CSV file with splits, patients and groups of labels, default master_table.csv where it exists",
        "images": "the folder of the PNG files, subfolders included, default the dataset's folder",
        "split": "all (default), train, validation or test",
        "region": "boxes (default), extra (boxes of the second reader), or union of both",
        "language": "of the sentences: en (default) or es",
        "category": "group (default): the label's group in the table, where it has one; or label",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split = self.choice_option("split", ("all", *_SPLITS), "all")
        self.region = self.choice_option("region", tuple(_REGIONS), "boxes")
        self.language = self.choice_option("language", ("en", "es"), "en")
        self.grouped = self.choice_option("category", ("group", "label"), "group") == "group"
        self.annotations = self.path_option("annotations", _REPORTS)
        self.images = self.path_option("images", ".")
        table = self.path_option("table", "master_table.csv")
        self.table = table if "table" in self.options or has_file(table) else None
        if self.table is None and self.split != "all":
            raise ConfigError(
                f"The dataset '{self.name}' has split={self.split} but no {table.name} in {self.root}; name it with "
                "the option table."
            )
        self._early: list[Note] = []
        self._spellings = Spellings()
        self._stated = self._read_table()
        self._order: dict[str, tuple[str, int]] = {}
        self._boxless: dict[str, set[str]] = defaultdict(set)
        self._sentences = list(self._read())
        self.classes = tuple(sorted({sentence.finding for sentence in self._sentences}))
        for finding, others in self._spellings.variants.items():
            text = f"{', '.join(map(repr, others))} and '{finding}' differ in spelling alone; they are one class"
            self._early.append(Note("spelling", finding, self.annotations, None, text))
        if not self.classes:
            raise fail(self.annotations, None, f"no positive sentence has {' or '.join(_REGIONS[self.region])}")

    def sources(self) -> Sequence[Path]:
        """The JSON file, and the table if there is one."""
        return [self.annotations, *([self.table] if self.table else [])]

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per image, a further one for a second sentence of a finding. Raises DataError."""
        notes += self._early
        images = NamedImages(self.images, "", notes)
        phrase_images: dict[str, PhraseImage] = {}
        for image, (study, row) in self._order.items():
            split = self._about(self._stated.split, image, study) or "all"
            if self.split in ("all", split):
                path = images.find(image, self.annotations, row)
                patient = self._about(self._stated.patient, image, study)
                phrase_images[image] = PhraseImage(path, split, patient, rows=[row], boxless=self._boxless[image])
                phrase_images[image].attributes = self._attributes(image, study)
        for sentence in self._sentences:
            if sentence.image in phrase_images:
                for box in sentence.boxes:
                    phrase_images[sentence.image].add(sentence.finding, sentence.text, box)
        self._sentences = []
        return [
            case for name, image in phrase_images.items() for case in image.cases(name, self.classes, fractions=True)
        ]

    def reader_marks(self, reader: str) -> ReaderMarks | str:
        """Of the second reader the `extra_boxes` of each sentence that is asked; a sentence without any has no line.
        Raises DataError."""
        if reader != SECOND:
            return super().reader_marks(reader)
        if self.region != "boxes":
            where = self.configured or self.name
            return f"the dataset's regions hold the marks of a second reader; add --data-option {where}.region=boxes"
        return ReaderBoxes(self._second_lines())

    def _second_lines(self) -> Sequence[Mapping[str, Any]]:
        asked_pairs, file = asked(self.cases()), self.annotations
        lines: dict[tuple[str, str, str], dict[str, Any]] = {}
        for row, study in enumerate(read_json(file), 1):
            image, number = stem_of(study["ImageID"].strip()), str(study.get("StudyID") or "").strip()
            for entry in study["findings"]:
                if not self._is_abnormal(entry, row) or not entry.get("boxes") or not entry.get("extra_boxes"):
                    continue
                text, finding = self._text(entry, row), self._finding(entry, image, number, row)
                if (image, phrase_key(text)) in asked_pairs:
                    line = {"case": image, "finding": finding, "phrase": text, "boxes": []}
                    boxes = lines.setdefault((image, finding, phrase_key(text)), line)["boxes"]
                    boxes += [list(numbers(box, 4, file, row, "a box")) for box in entry["extra_boxes"]]
        return list(lines.values())

    def _attributes(self, image: str, study: str) -> dict[str, str] | None:
        sexes = self._stated.sexes
        if sexes is None:
            return None
        stated = sexes.get(image) or sexes.get(study) or set()
        return {"sex": next(iter(stated))} if len(stated) == 1 else {}

    def _about(self, values: Mapping[str, str], image: str, study: str) -> str | None:
        return values.get(image) or values.get(study)

    def _read(self) -> Iterator[_Sentence]:
        file, studies = self.annotations, read_json(self.annotations)
        ids = ImageIds(file)
        if not isinstance(studies, list):
            raise fail(file, None, "it holds no list of studies")
        for row, study in enumerate(studies, 1):
            image = study.get("ImageID") if isinstance(study, dict) else None
            if not isinstance(image, str) or not image.strip() or not isinstance(study.get("findings"), list):
                raise fail(file, row, "the study has no ImageID or no list of findings")
            name, number = ids.of(image.strip(), row, "ImageID"), str(study.get("StudyID") or "").strip()
            if name in self._order:
                text = f"'{name}' was listed before; its sentences were merged"
                self._early.append(Note("duplicate", name, file, row, text))
            self._order.setdefault(name, (number, row))
            for entry in study["findings"]:
                if not isinstance(entry, dict):
                    raise fail(file, row, "a finding is not an object")
                boxes = self._boxes(entry, row)
                if not self._is_abnormal(entry, row):
                    if boxes:
                        text = f"a sentence of '{name}' that is not abnormal has boxes; not used"
                        self._early.append(Note("disagreement", name, file, row, text))
                elif not boxes:
                    text = f"a positive sentence of '{name}' has no boxes; it is not a pair"
                    self._early.append(Note("no_region", name, file, row, text))
                    self._boxless[name].add(phrase_key(str(entry.get(f"sentence_{self.language}") or "")))
                else:
                    text = self._text(entry, row)
                    yield _Sentence(row, name, number, self._finding(entry, name, number, row), text, boxes)

    def _is_abnormal(self, finding: Mapping[str, Any], row: int) -> bool:
        """Whether a sentence is positive; a table of pandas that becomes JSON can have 1.0 for true."""
        return label_of(str(finding.get("abnormal")), self.annotations, row, "abnormal") == 1

    def _text(self, finding: dict[str, Any], row: int) -> str:
        text = finding.get(f"sentence_{self.language}")
        if not isinstance(text, str) or not text.strip():
            raise fail(self.annotations, row, f"a finding with boxes has no sentence_{self.language}")
        return one_line(text)

    def _finding(self, finding: dict[str, Any], image: str, study: str, row: int) -> str:
        labels = finding.get("labels") or []
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise fail(self.annotations, row, "labels is not a list of texts")
        label = next((label.strip() for label in labels if label.strip()), _NO_LABEL)
        groups = self._stated.group if self.grouped else {}
        group = groups.get((image, spelling_key(label))) or groups.get((study, spelling_key(label)))
        return self._spellings.of(group or label)

    def _boxes(self, finding: dict[str, Any], row: int) -> tuple[Corners, ...]:
        """The boxes of the chosen reader, in fractions of the image, without those that have no area."""
        file, boxes = self.annotations, dict[Corners, None]()
        for key in _REGIONS[self.region]:
            given = finding.get(key) or []
            if not isinstance(given, list):
                raise fail(file, row, f"{key} is not a list")
            for box in given:
                x1, y1, x2, y2 = numbers(box, 4, file, row, "a box")
                if x2 < x1 or y2 < y1:
                    raise fail(file, row, f"the box {box} ends before it begins")
                if not -1 <= min(x1, y1) <= max(x2, y2) <= 2:
                    raise fail(file, row, f"the box {box} is not in fractions of the image")
                if x1 == x2 or y1 == y2:
                    text = f"the box {box} has no area; not used"
                    self._early.append(Note("degenerate", str(row), file, row, text))
                else:
                    boxes[x1, y1, x2, y2] = None
        return tuple(boxes)

    def _read_table(self) -> _Table:
        """Raises DataError for a row that contradicts an earlier row about an image or study."""
        file, table = self.table, _Table()
        if file is None:
            return table
        needed = ("split",) if self.split != "all" else ()
        for row, cells in read_csv(file, needed):
            cells = {column: "" if is_blank(cell) else cell for column, cell in cells.items()}
            keys = [key for key in (stem_of(cells.get("ImageID", "")), cells.get("StudyID")) if key]
            if not keys:
                raise fail(file, row, "the row has neither ImageID nor StudyID")
            split = cells.get("split", "")
            if split and split not in _SPLITS:
                raise fail(file, row, f"split is {split!r}, not one of {', '.join(_SPLITS)}")
            if _SEX in cells:
                table.sexes = table.sexes or {}
                for key in keys if cells[_SEX] else ():
                    table.sexes.setdefault(key, set()).add(cells[_SEX])
            label, group = spelling_key(cells.get("label", "")), cells.get("label_group", "")
            for key in keys:
                for column, stated, value in (
                    ("PatientID", table.patient, cells.get("PatientID", "")),
                    ("split", table.split, split),
                ):
                    if value and stated.setdefault(key, value) != value:
                        raise fail(file, row, f"'{key}' has another {column} than in a row before")
                if label and group:
                    table.group[key, label] = group
        return table
