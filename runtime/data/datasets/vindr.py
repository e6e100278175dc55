"""VinDr-CXR from PhysioNet, and the smaller Kaggle edition under its own name (docs/published-datasets.md §7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ....engines.errors import ConfigError
from ...host.paths import has_file
from .dataset import PATIENTS, UNCERTAIN_LABELS, Case, Dataset, Note, OfficialCounts, Region
from .file_rows import fail, number
from .readers.reader_consensus import LEAVE_ONE_OUT, READERS, RULES, Corners, LeftOut, majority, merge, needed
from .readers.reader_marks import RADIOLOGIST, ReaderMarks
from .source.csv_cells import is_blank, label_of
from .source.csv_files import is_index, read_csv
from .source.image_index import ImageFolder
from .source.image_names import ImageIds
from .source.native_sizes import read_sizes
from .source.spelling import FixedClasses

_KAGGLE = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD", "Infiltration",
    "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax",
    "Pulmonary fibrosis",
)  # fmt: skip
_ONLY_PHYSIONET = (
    "Clavicle fracture", "Edema", "Emphysema", "Enlarged PA", "Lung cavity", "Lung cyst", "Mediastinal shift",
    "Rib fracture",
)  # fmt: skip
_LOCAL = tuple(sorted((*_KAGGLE, *_ONLY_PHYSIONET)))
_GLOBAL = ("COPD", "Lung tumor", "Pneumonia", "Tuberculosis", "Other disease", "Other diseases")
_NOTHING = "No finding"
_NO_CLASS = dict.fromkeys(_GLOBAL, "") | {_NOTHING: _NOTHING}
_BOX = ("x_min", "y_min", "x_max", "y_max")
_SUFFIXES = (".dicom", ".dcm", ".png", ".jpg", ".jpeg")
_COPIES = (".png", ".jpg", ".jpeg")


@dataclass
class _Image:
    rows: list[int] = field(default_factory=list)
    readers: set[str] = field(default_factory=set)
    boxes: dict[str, dict[str, dict[Corners, None]]] = field(default_factory=dict)  # class -> reader -> boxes
    votes: dict[str, dict[str, int]] = field(default_factory=dict)  # class -> reader -> label of the label file


class Vindr(Dataset):
    """`<root>/annotations/annotations_<split>.csv` and `image_labels_<split>.csv` next to `<root>/<split>/<id>.dicom`.

    The test set is a consensus: the union of a class's boxes. The training set has three readers per image, merged by
    `readers`; its label is the majority's. Labels come from the label file, or from the boxes if there is none. With
    `leave-one-out` each image is three cases, IMAGE~READER, whose regions and labels are from the other two.

    Boxes are in pixels of the DICOM images. PNG and JPEG copies may be resized: then `sizes` must give the native
    sizes. Without it, drawing raises DataError if a box reaches more than 2 pixels beyond its image.
    """

    name = "vindr"
    title = "VinDr-CXR"
    classes = _LOCAL
    card = """Source: VinDr-CXR 1.0.0 (PhysioNet), 15,000 training images by three readers each, 3,000 test images by
the consensus of five.
Access: credentialed PhysioNet account, training and data use agreement; copies on public code hosts violate it.
Cite: Nguyen et al., VinDr-CXR, Scientific Data 2022, and PhysioNet.
Split: the official test set; that the paper used it is a guess. The paper scored 88 % or 95 % of its positive pairs,
depending on the model, so its denominators differ from the file's. Edema has no test box; the other 21 local classes
are the paper's, six of them with fewer than 12 positives."""
    option_help: ClassVar[Mapping[str, str]] = {
        "split": "test (default) or train",
        "readers": "train only: majority (default; boxes of classes that 2 of 3 readers name), any, pixels, fused, or "
        "leave-one-out (three cases per image, each by two readers, for reader:radiologist)",
        "annotations": "the box file, default annotations_<split>.csv in annotations, the root or the image folder",
        "labels": "the label file, default image_labels_<split>.csv in the same places",
        "images": "the folder of the images, default <split>",
        "sizes": "for resized copies: a CSV file with image_id and dim0, dim1 (native height, width), default none",
        **UNCERTAIN_LABELS,
        **PATIENTS,
    }
    mends: Mapping[str, str] = dict.fromkeys(
        ("larger", "smaller"), "name the file of the native sizes in the option sizes, or use the native images"
    )

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split = self._split()
        self.readers = self.choice_option("readers", (*RULES, LEAVE_ONE_OUT), "majority")
        self._left_out = LeftOut()
        if self.readers == LEAVE_ONE_OUT:
            if self.split == "test":
                raise ConfigError(
                    f"The dataset '{self.name}' has readers={LEAVE_ONE_OUT}, but its test set is a consensus without "
                    "single readers; add split=train."
                )
            self.title, self.cases_per_image = f"{self.title}, one reader left out", READERS
        self.images = self.path_option("images", self.split)
        self.annotations = self.first_path("annotations", *self._places("annotations"))
        labels = self.first_path("labels", *self._places("image_labels"))
        self.labels = labels if "labels" in self.options or has_file(labels) else None
        self.sizes = self.path_option("sizes", "") if "sizes" in self.options else None

    def _split(self) -> str:
        return self.choice_option("split", ("test", "train"), "test")

    def _places(self, stem: str) -> tuple[str, ...]:
        name = f"{stem}_{self.split}.csv"
        return f"annotations/{name}", name, f"{self.split}/{name}"

    def sources(self) -> Sequence[Path]:
        """The box file, and the label file and the file of sizes if there are any."""
        return [self.annotations, *(file for file in (self.labels, self.sizes) if file is not None)]

    def image_folders(self) -> Sequence[Path]:
        """The folder of the images, unless it holds the annotations too."""
        return () if self.images in (self.annotations.parent, self.root) else (self.images,)

    def official(self) -> OfficialCounts | None:
        """The number of images; no number of boxes is known."""
        images = 3_000 if self.split == "test" else 15_000
        return OfficialCounts(3 * images if self.readers == LEAVE_ONE_OUT else images)

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per image id, first images of the box file, then images only in the label file. Raises DataError."""
        images: dict[str, _Image] = {}
        self._read_boxes(images, notes)
        labelled = self._read_labels(images, notes)
        sizes = {} if self.sizes is None else read_sizes(self.sizes, images)
        folder = ImageFolder(self.images, notes)
        cases: list[Case] = []
        for key, image in images.items():
            path = folder.find(key, _SUFFIXES, self.annotations, image.rows[0] if image.rows else None)
            if self.readers == LEAVE_ONE_OUT:
                case = Case(key, path, {}, {}, self.split, rows=tuple(image.rows), size=sizes.get(key))
                if len(image.readers) == READERS:
                    cases += self._left_out.cases(case, self.classes, image.readers, image.boxes, self._exact(path))
                else:
                    text = f"'{key}' was read by {len(image.readers)} readers, not by {READERS}; not used"
                    notes.append(Note("other_readers", key, self.annotations, image.rows[0], text))
                continue
            regions: dict[str, Region] = {}
            for finding in self.classes:
                if finding in image.boxes:
                    region = merge(image.boxes[finding], self._rule(), len(image.readers), exact=self._exact(path))
                    if region is not None:
                        regions[finding] = region
            cases.append(
                Case(
                    case_id=key,
                    image=path,
                    labels=self._labels(key, image, regions, labelled, notes),
                    regions=regions,
                    split=self.split,
                    rows=tuple(image.rows),
                    size=sizes.get(key),
                )
            )
        return cases

    def reader_marks(self, reader: str) -> ReaderMarks | str:
        """Of a radiologist the boxes of the reader whom each case leaves out. Raises DataError."""
        if reader != RADIOLOGIST:
            return super().reader_marks(reader)
        if self.readers != LEAVE_ONE_OUT:
            where = self.configured or self.name
            return f"the dataset's regions are of all its readers; add --data-option {where}.readers={LEAVE_ONE_OUT}"
        return self._left_out.marks(self.cases(), self.classes, named="patients" in self.options)

    def _exact(self, path: Path) -> bool:
        return self.sizes is not None or path.suffix in _COPIES

    def _rule(self) -> str:
        return "any" if self.split == "test" else self.readers

    def _labels(
        self, key: str, image: _Image, regions: Mapping[str, Region], labelled: set[str], notes: list[Note]
    ) -> dict[str, int | None]:
        labels: dict[str, int | None] = {}
        for finding in self.classes:
            votes = image.votes.get(finding)
            if votes:
                labels[finding] = majority(votes.values())
                if finding in regions and labels[finding] == 0 and self.readers == "majority":
                    text = f"'{key}' has a region of '{finding}', but its label is 0"
                    notes.append(Note("disagreement", key, self.annotations, image.rows[0], text))
            elif finding in labelled:  # the file has the class, but not this image
                labels[finding] = 1 if finding in regions else None
            else:
                given = image.boxes.get(finding, {})
                least = 1 if self._rule() == "any" else needed(len(image.readers))
                labels[finding] = int(bool(given) and len(given) >= least)
        return labels

    def _read_boxes(self, images: dict[str, _Image], notes: list[Note]) -> None:
        file = self.annotations
        several, ids, classes = self.split != "test", ImageIds(file), FixedClasses(self.classes, _NO_CLASS)
        for row, cells in read_csv(file, ("image_id", "class_name", *_BOX, *(("rad_id",) if several else ()))):
            key, reader = ids.of(cells["image_id"], row, "image_id"), cells["rad_id"] if several else ""
            if several and not reader:
                raise fail(file, row, "rad_id is empty")
            image = images.setdefault(key, _Image())
            image.rows.append(row)
            image.readers.add(reader)
            given = [cells[name] for name in _BOX]
            finding = classes.find(cells["class_name"], row)
            if finding in ("", _NOTHING):
                if finding and not all(map(is_blank, given)):
                    raise fail(file, row, f"'{key}' has '{_NOTHING}' and a box")
                continue
            if finding is None:
                text = f"'{cells['class_name']}' is not a class of {self.title}; not used"
                notes.append(Note("unknown_class", cells["class_name"], file, row, text))
                continue
            x1, y1, x2, y2 = (number(cell, file, row, "a box coordinate") for cell in given)
            if x2 < x1 or y2 < y1:
                raise fail(file, row, f"the box {(x1, y1, x2, y2)} ends before it begins")
            drawn = image.boxes.setdefault(finding, {}).setdefault(reader, {})
            if (x1, y1, x2, y2) in drawn:
                notes.append(Note("duplicate", key, file, row, f"the box {given} of '{key}' was listed before"))
            elif x2 == x1 or y2 == y1:
                notes.append(Note("degenerate", finding, file, row, f"the box {given} has no area"))
            drawn[x1, y1, x2, y2] = None
        notes += classes.notes(file)

    def _read_labels(self, images: dict[str, _Image], notes: list[Note]) -> set[str]:
        """Adds the votes of the label file to `images`; returns the classes of the label file."""
        file = self.labels
        if file is None:
            return set()
        several, ids, columns = self.split != "test", ImageIds(file), dict[str, str]()
        for row, cells in read_csv(file, ("image_id", "rad_id") if several else ("image_id",)):
            columns = columns or self._label_columns(cells, file, notes)
            key, reader = ids.of(cells["image_id"], row, "image_id"), cells["rad_id"] if several else ""
            image = images.setdefault(key, _Image())
            image.rows = image.rows or [row]
            image.readers.add(reader)
            for finding, column in columns.items():
                vote = label_of(cells[column], file, row, f"the label of '{finding}'")
                votes = image.votes.setdefault(finding, {})
                if vote is not None and votes.setdefault(reader, vote) != vote:
                    raise fail(file, row, f"'{key}' has another label of '{finding}' in a row before")
        return set(columns)

    def _label_columns(self, header: Mapping[str, str], file: Path, notes: list[Note]) -> dict[str, str]:
        """Class -> its column of the label file, in any spelling. Raises DataError for one with two columns."""
        classes = FixedClasses(self.classes, _NO_CLASS)
        for name in header:
            if classes.find(name, 1) is None and not is_index(name) and name not in ("image_id", "rad_id"):
                text = f"the column '{name}' is not a label of {self.title}; not used"
                notes.append(Note("unknown_class", name, file, 1, text))
        notes += classes.notes(file)
        return {finding: name for finding, name in classes.columns(header, file).items() if finding != _NOTHING}


class VindrKaggle(Vindr):
    """`<root>/train.csv` next to `<root>/train/<id>.dicom`: 14 of the 22 local classes, 3 readers, no label file."""

    name = "vindr_kaggle"
    title = "VinDr-CXR (Kaggle)"
    classes = _KAGGLE
    card = """Source: VinBigData Chest X-ray Abnormalities Detection (Kaggle, 2020), the training part of VinDr-CXR with
14 of its 22 local classes, three readers of R1 to R17 per image.
Access: a Kaggle account and the competition's rules; no redistribution.
Cite: Nguyen et al., VinDr-CXR, Scientific Data 2022.
Split: its test part has no labels, so it cannot stand for the benchmark's VinDr-CXR."""
    option_help: ClassVar[Mapping[str, str]] = {
        "readers": Vindr.option_help["readers"].removeprefix("train only: "),
        "annotations": "the box file, default train.csv",
        "images": "the folder of the images, default train",
        "sizes": Vindr.option_help["sizes"],
        **UNCERTAIN_LABELS,
        **PATIENTS,
    }

    def _split(self) -> str:
        return "train"

    def _places(self, stem: str) -> tuple[str, ...]:
        return ("train.csv",) if stem == "annotations" else ("image_labels_train.csv",)
