"""NIH ChestX-ray14 boxes: eight classes on 1024 x 1024 images (docs/datasets.md §6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ..host.paths import has_file, has_folder
from .base import Case, Dataset, Note, OfficialCounts
from .files import fail, number
from .region_boxes import Boxes
from .source.image_index import ImageTree
from .source.image_names import inside
from .source.tables import read_rows

__all__ = ["ChestXray14"]

_BOXED = {
    "Atelectasis": 180, "Cardiomegaly": 146, "Effusion": 153, "Infiltrate": 123,
    "Mass": 85, "Nodule": 79, "Pneumonia": 120, "Pneumothorax": 98,
}  # fmt: skip
_SPELLING = {"Infiltration": "Infiltrate"}  # the entry file's name -> the box file's
_OTHER = {"No Finding", "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"}
_ENTRY_FILES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")


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
        "entries": "the file of image labels, default Data_Entry_2017_v2020.csv, else Data_Entry_2017.csv",
        "test_list": "the official test list, default test_list.txt",
        "images": "the folder of the images, searched with all below; default images and images_*",
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
        found = [p for p in sorted(self.root.glob("images*")) if has_folder(p)] or [self.root / "images"]
        self.images = [self.path_option("images", "")] if "images" in self.options else found

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
        known = self._entries(wanted, notes)
        tree = ImageTree(self.images, (".png", ".jpg", ".jpeg"), notes)
        cases = []
        for name, row in wanted.items():
            inside(self.images[0], name, source, row)
            image, labels = images.get(name, _Image()), known.get(name)
            cases.append(
                Case(
                    case_id=name.removesuffix(".png"),
                    image=tree.find(name.removesuffix(".png"), source, row),
                    labels=self._labels(name, image, labels, notes),
                    regions={c: Boxes.from_sizes(image.boxes[c]) for c in self.classes if c in image.boxes},
                    split="test",
                    patient_id=name.partition("_")[0],
                    rows=tuple(image.rows),
                    size=self.frame,
                )
            )
        return cases

    def _labels(self, name: str, image: _Image, known: set[str] | None, notes: list[Note]) -> dict[str, int | None]:
        if known is None:
            if self.entries is not None:
                text = f"'{name}' is not in {self.entries.name}; classes without a box are unknown"
                notes.append(Note("not_annotated", name, self.entries, None, text))
            return {finding: 1 if finding in image.boxes else None for finding in self.classes}
        for finding in image.boxes:
            if finding not in known:
                text = f"'{name}' has a box of '{finding}', but not the label"
                notes.append(Note("disagreement", name, self.annotations, image.rows[0], text))
        return {finding: int(finding in known) for finding in self.classes}

    def _boxes(self, notes: list[Note]) -> dict[str, _Image]:
        """The box file, read by column position: its header has nine cells, its rows have six."""
        file, images = self.annotations, dict[str, _Image]()
        rows = read_rows(file)
        line, header = next(rows, (1, []))
        if header[:2] != ["Image Index", "Finding Label"]:
            raise fail(file, line, f"the header begins with {header[:2]}, not with Image Index, Finding Label")
        for row, cells in rows:
            if len(cells) < 6 or any(cells[6:]):
                raise fail(file, row, f"{len(cells)} cells, it needs name, label, x, y, width, height")
            name, finding = cells[0], _SPELLING.get(cells[1], cells[1])
            if not name:
                raise fail(file, row, "Image Index is empty")
            box = tuple(number(cell, file, row, "a box coordinate") for cell in cells[2:6])
            if box[2] < 0 or box[3] < 0:
                raise fail(file, row, f"the box {box} has a negative size")
            if finding not in _BOXED:
                notes.append(Note("unknown_class", finding, file, row, f"'{finding}' has no boxes here; not used"))
                continue
            image = images.setdefault(name, _Image())
            image.rows.append(row)
            mine = image.boxes.setdefault(finding, {})
            if box in mine:
                notes.append(Note("duplicate", name, file, row, f"the box {box} of '{name}' was listed before"))
            elif box[2] == 0 or box[3] == 0:
                notes.append(Note("degenerate", finding, file, row, f"the box {box} has no area"))
            mine[box] = None
        return images

    def _test_list(self, notes: list[Note]) -> dict[str, int | None]:
        wanted: dict[str, int | None] = {}
        for row, cells in read_rows(self.test_list):
            if cells[0] in wanted:
                notes.append(Note("duplicate", cells[0], self.test_list, row, f"'{cells[0]}' was listed before"))
            wanted.setdefault(cells[0], row)
        return wanted

    def _entries(self, wanted: Iterable[str], notes: list[Note]) -> dict[str, set[str]]:
        """Classes of the wanted images; the first columns have the same names in every variant of the header."""
        file, known, needed = self.entries, dict[str, set[str]](), set(wanted)
        if file is None:
            text = f"there is no {' or '.join(_ENTRY_FILES)}; classes without a box are unknown"
            notes.append(Note("not_annotated", "all images", self.annotations, None, text))
            return known
        rows = read_rows(file)
        line, header = next(rows, (1, []))
        if header[:2] != ["Image Index", "Finding Labels"]:
            raise fail(file, line, f"the header begins with {header[:2]}, not with Image Index, Finding Labels")
        for row, cells in rows:
            if cells[0] not in needed:
                continue
            if len(cells) < 2 or not cells[1]:
                raise fail(file, row, f"the labels of '{cells[0]}' are empty")
            found = {_SPELLING.get(label.strip(), label.strip()) for label in cells[1].split("|")}
            for label in sorted(found - _OTHER - set(_BOXED)):
                notes.append(Note("unknown_class", label, file, row, f"'{label}' is not a label of NIH; not used"))
            if known.setdefault(cells[0], found) != found:
                raise fail(file, row, f"'{cells[0]}' has other labels here than in a row before")
        return known
