"""NIH ChestX-ray14 boxes: eight classes on 1024 x 1024 images (docs/published-datasets.md §6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ...host.paths import has_file
from .dataset import UNCERTAIN_LABELS, Case, Dataset, Note, OfficialCounts
from .file_rows import fail, number
from .region_boxes import Boxes
from .source.column_guess import renames
from .source.csv_cells import is_blank, label_of
from .source.csv_files import header_text, read_rows
from .source.image_index import ImageTree
from .source.image_names import ImageIds
from .source.listing import folders_in
from .source.spelling import FixedClasses

_BOXED = {
    "Atelectasis": 180, "Cardiomegaly": 146, "Effusion": 153, "Infiltrate": 123,
    "Mass": 85, "Nodule": 79, "Pneumonia": 120, "Pneumothorax": 98,
}  # fmt: skip
_OTHER = ("No Finding", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia")
_SPELLING = {"Infiltration": "Infiltrate"}
"""The entry file's name -> the box file's."""
_BOX = (("Bbox [x", "x"), ("y",), ("w", "width"), ("h]", "h", "height"))
"""Columns of the box file: its own header, which a comma divides, and as others write it."""
_CORNERS = frozenset({"x1", "y1", "x2", "y2", "xmin", "ymin", "xmax", "ymax"})
"""Columns of another form, whose numbers would be read as sizes."""
_NAME, _LABEL, _LABELS = "Image Index", "Finding Label", "Finding Labels"
_SUFFIXES = (".png", ".jpg", ".jpeg", ".dcm")
_ENTRY_FILES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")


_Labels = dict[str, int | None]


@dataclass
class _Image:
    rows: list[int] = field(default_factory=list)
    boxes: dict[str, dict[tuple[float, ...], None]] = field(default_factory=dict)


class ChestXray14(Dataset):
    """`<root>/BBox_List_2017.csv`, `Data_Entry_2017*.csv`, and PNG files in `images` or `images_001/images` and so on.

    Labels come from the entry file, because a missing box is not a negative label. Without that file, a class without
    a box is unknown. The box file's `Infiltrate` is the entry file's `Infiltration`.
    """

    name = "chestxray14"
    title = "ChestX-ray14"
    classes = tuple(_BOXED)
    card = """Source: NIH ChestX-ray14, BBox_List_2017.csv: 984 boxes on 880 images, all of the official test list.
Access: open (nihcc.app.box.com/v/ChestXray-NIHCC); no restriction on use, attribution to the NIH Clinical Center.
Cite: Wang et al., ChestX-ray8, CVPR 2017; acknowledge the NIH Clinical Center as the data provider.
Split: the 880 boxed images; reconstructed, strong: all eight denominators of the paper equal the file's counts. Labels
are mined from reports and noisy, and none of the 880 images is healthy; recognition_images=test_list adds the rest."""
    option_help: ClassVar[Mapping[str, str]] = {
        "recognition_images": "boxes (default): the images with boxes; test_list: all 25,596 of the official test list",
        "annotations": "the box file, default BBox_List_2017.csv",
        "entries": "the file of image labels, default Data_Entry_2017_v2020.csv, else Data_Entry_2017.csv; findings "
        "stand in the column Finding Labels, or each has a column of 1, 0, -1 (uncertain) and blank",
        "test_list": "the official test list, default test_list.txt",
        "images": "the folder of the images, searched with all below; default images and images_*",
        **UNCERTAIN_LABELS,
    }
    frame = (1024, 1024)

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.recognition_images = self.choice_option("recognition_images", ("boxes", "test_list"), "boxes")
        self.annotations = self.path_option("annotations", "BBox_List_2017.csv")
        self.entries: Path | None = self.first_path("entries", *_ENTRY_FILES)
        if "entries" not in self.options and self.recognition_images == "boxes" and not has_file(self.entries):
            self.entries = None
        self.test_list = self.path_option("test_list", "test_list.txt")
        folders = folders_in(self.root, "images") or [self.root / "images"]
        self.images = [self.path_option("images", "")] if "images" in self.options else folders

    def sources(self) -> Sequence[Path]:
        """The box file, and the entry file and the test list if they are used."""
        files = [self.annotations, *([self.entries] if self.entries else [])]
        return files if self.recognition_images == "boxes" else [*files, self.test_list]

    def attribute_file(self) -> Path | None:
        """The entry file, which has view, sex and age."""
        return self.entries

    def official(self) -> OfficialCounts | None:
        """984 boxes, one per (image, class) pair, on 880 images; with the test list 25,596 images."""
        cases = 880 if self.recognition_images == "boxes" else 25_596
        return OfficialCounts(cases, 984, 984, _BOXED, _BOXED)

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per image, in the order of the box file or of the test list. Raises DataError."""
        images = self._boxes(notes)
        wanted: dict[str, int | None] = {name: image.rows[0] for name, image in images.items()}
        source = self.annotations
        if self.recognition_images == "test_list":
            wanted, source = self._test_list(notes), self.test_list
            for name, image in images.items():
                if name not in wanted:
                    text = f"'{name}' has boxes but is not in {self.test_list.name}; not used"
                    notes.append(Note("disagreement", name, self.annotations, image.rows[0], text))
        labels_of = self._entries(wanted, notes)
        tree = ImageTree(self.images, _SUFFIXES, notes)
        cases = []
        for name, row in wanted.items():
            image, labels = images.get(name, _Image()), labels_of.get(name)
            cases.append(
                Case(
                    case_id=name,
                    image=tree.find(name, source, row),
                    labels=self._labels(name, image, labels, notes),
                    regions={c: Boxes.from_sizes(image.boxes[c]) for c in self.classes if c in image.boxes},
                    split="test",
                    patient_id=name.partition("_")[0],
                    rows=tuple(image.rows),
                    size=self.frame,
                )
            )
        return cases

    def _labels(self, name: str, image: _Image, listed: _Labels | None, notes: list[Note]) -> dict[str, int | None]:
        if listed is None:
            if self.entries is not None:
                text = f"'{name}' is not in {self.entries.name}; classes without a box are unknown"
                notes.append(Note("not_annotated", name, self.entries, None, text))
            return {finding: 1 if finding in image.boxes else None for finding in self.classes}
        for finding in image.boxes:
            if listed.get(finding) == 0:
                text = f"'{name}' has a box of '{finding}', but not the label"
                notes.append(Note("disagreement", name, self.annotations, image.rows[0], text))
        return {finding: listed.get(finding) for finding in self.classes}

    def _boxes(self, notes: list[Note]) -> dict[str, _Image]:
        """The box file: its header has nine cells, its rows have six, so the box is what follows the label."""
        file, images = self.annotations, dict[str, _Image]()
        rows = read_rows(file)
        line, header = next(rows, (1, []))
        name_at, label_at = _places(header, (_NAME, _LABEL), file, line)
        stated = [next((header.index(name) for name in names if name in header), None) for names in _BOX]
        corners = [column for column in header if column.lower().replace("_", "") in _CORNERS]
        if corners:
            text = f"the column '{corners[0]}' is a corner; this file has x, y, width and height, so use the reader csv"
            raise fail(file, line, text)
        at = [label_at + 1 + side if None in stated else stated[side] or 0 for side in range(4)]
        least = max(name_at, label_at, *at) + 1
        named = {column for column, name in enumerate(header) if name and not name.startswith("Unnamed")}
        ids, classes = ImageIds(file), FixedClasses(_BOXED, _SPELLING)
        for row, cells in rows:
            rest = range(least, len(cells))
            if len(cells) < least or not all(is_blank(cells[column]) for column in rest if column not in named):
                raise fail(file, row, f"{len(cells)} cells, it needs name, label, x, y, width, height")
            name, finding = ids.of(cells[name_at], row, _NAME), classes.find(cells[label_at], row)
            box = tuple(number(cells[column], file, row, "a box coordinate") for column in at)
            if box[2] < 0 or box[3] < 0:
                raise fail(file, row, f"the box {box} has a negative size")
            if finding is None:
                text = f"'{cells[label_at]}' has no boxes here; not used"
                notes.append(Note("unknown_class", cells[label_at], file, row, text))
                continue
            image = images.setdefault(name, _Image())
            image.rows.append(row)
            corners_seen = image.boxes.setdefault(finding, {})
            if box in corners_seen:
                notes.append(Note("duplicate", name, file, row, f"the box {box} of '{name}' was listed before"))
            elif box[2] == 0 or box[3] == 0:
                notes.append(Note("degenerate", finding, file, row, f"the box {box} has no area"))
            corners_seen[box] = None
        notes += classes.notes(file)
        return images

    def _test_list(self, notes: list[Note]) -> dict[str, int | None]:
        wanted: dict[str, int | None] = {}
        ids = ImageIds(self.test_list)
        for row, cells in read_rows(self.test_list):
            name = ids.of(cells[0], row)
            if name in wanted:
                notes.append(Note("duplicate", name, self.test_list, row, f"'{name}' was listed before"))
            wanted.setdefault(name, row)
        return wanted

    def _entries(self, wanted: Iterable[str], notes: list[Note]) -> dict[str, _Labels]:
        """Labels of the wanted images; the first columns have the same names in every variant of the header."""
        file, labels_of, needed = self.entries, dict[str, _Labels](), set(wanted)
        if file is None:
            text = f"there is no {' or '.join(_ENTRY_FILES)}; classes without a box are unknown"
            notes.append(Note("not_annotated", "all images", self.annotations, None, text))
            return labels_of
        rows = read_rows(file)
        line, header = next(rows, (1, []))
        ids, classes = ImageIds(file), FixedClasses((*_BOXED, *_OTHER), _SPELLING)
        columns = {header.index(name): finding for finding, name in classes.columns(header, file).items()}
        name_at, *places = _places(header, (_NAME,) if columns else (_NAME, _LABELS), file, line)
        for row, cells in rows:
            name = ids.of(cells[name_at], row, _NAME) if name_at < len(cells) else ""
            if name not in needed:
                continue
            if len(cells) <= max((name_at, *places, *columns)):
                raise fail(file, row, f"{len(cells)} cells, the header has {len(header)}")
            if columns:
                labels = self._marked(cells, row, columns)
            elif is_blank(cells[places[0]]):
                raise fail(file, row, f"the labels of '{name}' are empty")
            else:
                labels = self._findings(cells[places[0]], row, classes, notes)
            if labels_of.setdefault(name, labels) != labels:
                raise fail(file, row, f"'{name}' has other labels here than in a row before")
        notes += classes.notes(file)
        return labels_of

    def _marked(self, cells: Sequence[str], row: int, columns: Mapping[int, str]) -> _Labels:
        """The label of every class, of a row with one column for each; None for a class without a column."""
        labels: _Labels = dict.fromkeys(self.classes)
        for column, finding in columns.items():
            if finding in labels:
                file = self.entries or self.root
                labels[finding] = label_of(cells[column], file, row, f"the label of '{finding}'")
        return labels

    def _findings(self, cell: str, row: int, classes: FixedClasses, notes: list[Note]) -> _Labels:
        """The label of every class, of a cell such as Effusion|Mass."""
        labels: _Labels = dict.fromkeys(self.classes, 0)
        for text in cell.split("|"):
            finding = classes.find(text.strip(), row)
            if finding is None:
                note = f"'{text.strip()}' is not a label of NIH; not used"
                notes.append(Note("unknown_class", text.strip(), self.entries or self.root, row, note))
            elif finding in labels:
                labels[finding] = 1
        return labels


def _places(header: Sequence[str], names: Sequence[str], file: Path, line: int) -> tuple[int, ...]:
    """Where columns stand in a header, which may begin with the column of an index. Raises DataError."""
    lacking = [name for name in names if name not in header]
    if lacking:
        text, hint = f"the header lacks {', '.join(lacking)}; it has {header_text(header)}", renames(names, header)
        raise fail(file, line, f"{text}; {hint}" if hint else text)
    return tuple(map(header.index, names))
