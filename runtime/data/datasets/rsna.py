"""RSNA Pneumonia Detection Challenge, stage 2: one class with boxes (docs/published-datasets.md §1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ...host.paths import has_file
from .case import UNCERTAIN
from .dataset import PATIENTS, UNCERTAIN_LABELS, Case, Dataset, Note, OfficialCounts
from .file_rows import fail, number
from .region_boxes import Boxes
from .source.csv_cells import is_blank, label_of, read_label
from .source.csv_files import read_csv
from .source.image_index import ImageFolder
from .source.image_names import ImageIds, portable_name
from .source.spelling import FixedClasses

_ALL = OfficialCounts(cases=26_684, pairs=6_012, boxes=9_555)
_LIST = OfficialCounts(cases=5_337, pairs=1_218, boxes=1_947)
_LABELS = ("patientId", "x", "y", "width", "height", "Target")


@dataclass
class _Patient:
    target: int | None
    rows: list[int] = field(default_factory=list)
    boxes: dict[tuple[float, ...], None] = field(default_factory=dict)


class Rsna(Dataset):
    """`<root>/stage_2_train_labels.csv` next to `<root>/stage_2_train_images/<patientId>.dcm`.

    With a list that has the column `img_path`, `images` may also be the MD.ai tree <study>/<series>/<file>.dcm: an
    image that is not found by its id is read from the last three parts of that path. The label is 1 if and only if
    Target is 1. Without a list all training images are used; with one, such as the grounding list of MedKLIP and MAVL,
    the images of its column `ID`, in its order.
    """

    name = "rsna"
    title = "RSNA Pneumonia"
    classes = ("pneumonia",)
    card = """Source: RSNA Pneumonia Detection Challenge, stage 2 (Kaggle, 2018); the images are NIH ChestX-ray14's.
Access: a Kaggle account and the competition's rules; research and education, no redistribution by default.
Cite: Shih et al., Radiology: Artificial Intelligence 2019, and attribute RSNA and the NIH Clinical Center.
Split: the test part's labels were never released. The paper's is the grounding list of MedKLIP and MAVL (5,337 images,
1,218 positive); reconstructed, strong: the printed percentages fit n = 1,218 and an all-ones mask gives the printed
Dice 20.20 and IoU 11.97. Use split=paper with your own copy. The label means an opacity suspicious for pneumonia."""
    option_help: ClassVar[Mapping[str, str]] = {
        "split": "all (default): every image of the label file; list or paper: images in `list` (implied by it)",
        "list": "a CSV with the column ID, such as test.csv of MedKLIP or MAVL",
        "annotations": "the label file, default stage_2_train_labels.csv",
        "classes": "the class file, default stage_2_detailed_class_info.csv where it exists",
        "images": "the folder of the DICOM files, default stage_2_train_images",
        **UNCERTAIN_LABELS,
        **PATIENTS,
    }
    frame = (1024, 1024)

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split, self.list = self.list_option()
        self.annotations = self.path_option("annotations", "stage_2_train_labels.csv")
        self.images = self.path_option("images", "stage_2_train_images")
        class_file = self.path_option("classes", "stage_2_detailed_class_info.csv")
        self.class_file = class_file if "classes" in self.options or has_file(class_file) else None

    def sources(self) -> Sequence[Path]:
        """The label file, and the list if one is given."""
        return (self.annotations,) if self.split == "all" or self.list is None else (self.annotations, self.list)

    def image_folders(self) -> Sequence[Path]:
        """The folder of the DICOM files; none with a list, because a list excludes most of them."""
        return (self.images,) if self.split == "all" else ()

    def official(self) -> OfficialCounts | None:
        """The counts of the complete label file, or of the list of MedKLIP and MAVL."""
        return _ALL if self.split == "all" else _LIST

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per patient id, which is one image; all rows of an id form one region. Raises DataError."""
        patients = self._patients(notes)
        self._check_classes(patients, notes)
        folder = ImageFolder(self.images, notes)
        everything: list[tuple[str, int | None, str]] = [(key, None, "") for key in patients]
        wanted = everything if self.list is None else self._listed(patients, notes)
        return [self._case(key, patients.get(key), folder, row, path) for key, row, path in wanted]

    def _case(self, key: str, patient: _Patient | None, folder: ImageFolder, listed: int | None, path: str) -> Case:
        rows = tuple(patient.rows) if patient else ()
        boxes = list(patient.boxes) if patient else []
        source, row = (self.annotations, rows[0]) if rows else (self.list or self.annotations, listed)
        image = folder.find(key, (".dcm", ".png", ".jpg", ".jpeg"), source, row)
        tail = [part for part in portable_name(path).split("/") if part][-3:] if path else []
        if len(tail) == 3 and not has_file(image):
            original = folder.path("/".join(tail), self.list or source, listed)
            image = original if has_file(original) else image
        return Case(
            case_id=key,
            image=image,
            labels={"pneumonia": patient.target if patient else None},
            regions={"pneumonia": Boxes.from_sizes(boxes)} if boxes else {},
            split=self.split,
            patient_id=key,
            rows=rows,
            size=self.frame,
        )

    def _patients(self, notes: list[Note]) -> dict[str, _Patient]:
        file, patients = self.annotations, dict[str, _Patient]()
        ids = ImageIds(file)
        for row, cells in read_csv(file, _LABELS):
            key = ids.of(cells["patientId"], row, "patientId")
            target = label_of(cells["Target"], file, row, "Target")
            patient = patients.get(key)
            if patient is None:
                patient = patients[key] = _Patient(target)
            if patient.target != target:
                first = _words(patient.target)
                text = f"Target is {_words(target)}, but {first} in row {patient.rows[0]} of the same id"
                raise fail(file, row, text)
            given = [cells[name] for name in ("x", "y", "width", "height")]
            blank = target != 1 and all(map(is_blank, given))
            if target == 1 or (target == UNCERTAIN and not blank):
                self._add_box(patient, [number(cell, file, row, "a box coordinate") for cell in given], key, row, notes)
            elif not blank:
                raise fail(
                    file, row, f"Target is {cells['Target'] if target == 0 else repr('')}, but the row has a box"
                )
            elif patient.rows:
                before = "negative" if target == 0 else _words(target)
                notes.append(Note("duplicate", key, file, row, f"'{key}' was listed as {before} before"))
            elif target is None:
                notes.append(Note("not_annotated", key, file, row, f"Target of '{key}' is blank; its label is unknown"))
            patient.rows.append(row)
        return patients

    def _add_box(self, patient: _Patient, given: list[float], key: str, row: int, notes: list[Note]) -> None:
        box = tuple(given)
        if box[2] < 0 or box[3] < 0:
            raise fail(self.annotations, row, f"the box {box} has a negative size")
        if box in patient.boxes:
            notes.append(Note("duplicate", key, self.annotations, row, f"the box {box} of '{key}' was listed before"))
            return
        if box[2] == 0 or box[3] == 0:
            notes.append(Note("degenerate", "pneumonia", self.annotations, row, f"the box {box} has no area"))
        patient.boxes[box] = None

    def _listed(self, patients: Mapping[str, _Patient], notes: list[Note]) -> list[tuple[str, int | None, str]]:
        file, listed = self.list, dict[str, tuple[int, str]]()
        assert file is not None
        ids = ImageIds(file)
        for row, cells in read_csv(file, ("ID",)):
            key = ids.of(cells["ID"], row, "ID")
            if key in listed:
                notes.append(Note("duplicate", key, file, row, f"'{key}' was listed before"))
                continue
            listed[key] = row, cells.get("img_path", "")
            patient = patients.get(key)
            if patient is None:
                text = f"'{key}' is not in {self.annotations.name}; its label is unknown"
                notes.append(Note("not_annotated", key, file, row, text))
            elif self._disagrees(cells.get("classes", ""), patient.target):
                target = _words(patient.target)
                text = f"'{key}' has classes {cells['classes']}, but Target {target} in {self.annotations.name}"
                notes.append(Note("disagreement", key, file, row, text))
        return [(key, row, path) for key, (row, path) in listed.items()]

    @staticmethod
    def _disagrees(classes: str, target: int | None) -> bool:
        """Whether a list says another label than the label file; what is not a label says nothing of it."""
        try:
            return not is_blank(classes) and read_label(classes) != target
        except ValueError:
            return True

    def _check_classes(self, patients: Mapping[str, _Patient], notes: list[Note]) -> None:
        """Compares the class file, which has one row per box, with the labels by distinct ids."""
        file, seen = self.class_file, dict[str, str]()
        if file is None:
            return
        classes, ids = FixedClasses(("Lung Opacity", "No Lung Opacity / Not Normal", "Normal")), ImageIds(file)
        for row, cells in read_csv(file, ("patientId", "class")):
            key, finding = ids.of(cells["patientId"], row, "patientId"), classes.find(cells["class"], row)
            if finding is None:
                text = f"'{cells['class']}' is not a class of this file; not used"
                notes.append(Note("unknown_class", cells["class"], file, row, text))
            elif seen.setdefault(key, finding) != finding:
                text = f"'{key}' is '{finding}' here and '{seen[key]}' before"
                notes.append(Note("disagreement", key, file, row, text))
            elif key in patients and patients[key].target == int(finding != "Lung Opacity"):
                text = f"'{key}' is '{finding}', but its Target in {self.annotations.name} is {patients[key].target}"
                notes.append(Note("disagreement", key, file, row, text))
        notes += classes.notes(file)


def _words(target: int | None) -> str:
    return "blank" if target is None else f"{target}"
