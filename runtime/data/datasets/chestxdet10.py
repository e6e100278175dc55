"""ChestX-Det10: ten classes with boxes on 1024 x 1024 NIH images (docs/published-datasets.md §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from .dataset import PATIENTS, Case, Dataset, Note, OfficialCounts
from .file_rows import fail, numbers
from .region_boxes import Boxes
from .source.documents import read_json
from .source.image_index import ImageFolder
from .source.image_names import ImageIds
from .source.spelling import FixedClasses

Corners = tuple[float, float, float, float]

_TEST = OfficialCounts(
    cases=542,
    pairs=966,
    boxes=1476,
    pairs_per_class={
        "Atelectasis": 48, "Calcification": 38, "Consolidation": 289, "Effusion": 252, "Emphysema": 39,
        "Fibrosis": 82, "Fracture": 76, "Mass": 30, "Nodule": 77, "Pneumothorax": 35,
    },
    boxes_per_class={
        "Atelectasis": 51, "Calcification": 67, "Consolidation": 446, "Effusion": 372, "Emphysema": 66,
        "Fibrosis": 120, "Fracture": 115, "Mass": 31, "Nodule": 166, "Pneumothorax": 42,
    },
)  # fmt: skip


class ChestXDet10(Dataset):
    """`<root>/<split>.json` next to `<root>/<split>_data/<n>.png`.

    The label of a class is 1 if and only if the class is among an image's `syms`; three radiologists examined
    every image for all ten classes, so an absent class is a true 0. Its own files name no patient.
    """

    name = "chestxdet10"
    title = "ChestX-Det10"
    classes = (
        "Atelectasis", "Calcification", "Consolidation", "Effusion", "Emphysema",
        "Fibrosis", "Fracture", "Mass", "Nodule", "Pneumothorax",
    )  # fmt: skip
    card = """Source: ChestX-Det10 (Deepwise AI Lab), 3,543 NIH ChestX-ray14 images annotated by three radiologists.
Access: public download, no stated licence; NIH terms apply to the pixels (attribution to the NIH Clinical Center).
Cite: Liu, Lian and Yu, ChestX-Det10, arXiv 2006.10550; Wang et al., ChestX-ray8, CVPR 2017.
Split: the official test set of 542 images; that the paper used it is a guess, and only 920 of its 966 positive pairs
(CARZero 861 to 867) were scored there."""
    option_help: ClassVar[Mapping[str, str]] = {
        "split": "test (default) or train",
        "annotations": "the JSON file, default <split>.json",
        "images": "the folder of the PNG files, default <split>_data",
        "frame": "side in pixels of the square the boxes are drawn on, default 1024; images may be of any size",
        **PATIENTS,
    }
    mends: Mapping[str, str] = {"smaller": "set the option frame to their side (--data-option {name}.frame={side})"}

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split = self.choice_option("split", ("test", "train"), "test")
        self.annotations = self.path_option("annotations", f"{self.split}.json")
        self.images = self.path_option("images", f"{self.split}_data")
        self.frame = self.side_option("frame", 1024)

    def sources(self) -> Sequence[Path]:
        """The JSON file."""
        return (self.annotations,)

    def image_folders(self) -> Sequence[Path]:
        """The folder of the PNG files."""
        return (self.images,)

    def official(self) -> OfficialCounts | None:
        """The counts of the official test set; for the training set none are known."""
        return _TEST if self.split == "test" else None

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per file name; entries that repeat a name are merged. Raises DataError."""
        file = self.annotations
        entries = read_json(file)
        if not isinstance(entries, list):
            raise fail(file, None, "it holds no list of images")
        folder, ids = ImageFolder(self.images, notes), ImageIds(file)
        classes = FixedClasses(self.classes)
        boxes: dict[str, dict[str, list[Corners]]] = {}
        rows: dict[str, list[int]] = {}
        names: dict[str, str] = {}
        for row, entry in enumerate(entries, 1):
            name, drawn = self._entry(entry, row, classes, notes)
            key = ids.of(name, row, "file_name")
            names.setdefault(key, name)
            if key in boxes:
                notes.append(Note("duplicate", name, file, row, f"'{name}' was listed before; the entries were merged"))
            boxes_of_image = boxes.setdefault(key, {})
            rows.setdefault(key, []).append(row)
            for finding, corners in drawn:
                boxes_of_image.setdefault(finding, []).append(corners)
        notes += classes.notes(file)
        return [
            Case(
                case_id=key,
                image=folder.named(names[key], (".png", ".jpg", ".jpeg", ".dcm"), file, rows[key][0]),
                labels={finding: int(finding in boxes_of_image) for finding in self.classes},
                regions={
                    finding: Boxes(tuple(boxes_of_image[finding]))
                    for finding in self.classes
                    if finding in boxes_of_image
                },
                split=self.split,
                rows=tuple(rows[key]),
                size=(self.frame, self.frame),
            )
            for key, boxes_of_image in boxes.items()
        ]

    def _entry(
        self, entry: object, row: int, classes: FixedClasses, notes: list[Note]
    ) -> tuple[str, list[tuple[str, Corners]]]:
        """File name and (class, corners) of one entry. Raises DataError."""
        file = self.annotations
        if not isinstance(entry, dict) or not isinstance(entry.get("file_name"), str) or not entry["file_name"].strip():
            raise fail(file, row, "the entry has no file_name")
        syms, boxes = entry.get("syms"), entry.get("boxes")
        if not isinstance(syms, list) or not isinstance(boxes, list) or len(syms) != len(boxes):
            raise fail(file, row, "syms and boxes are not two lists of equal length")
        shapes = []
        for sym, box in zip(syms, boxes, strict=True):
            if not isinstance(sym, str):
                raise fail(file, row, f"the class {sym!r} is not a name")
            x1, y1, x2, y2 = numbers(box, 4, file, row, "a box")
            if x2 < x1 or y2 < y1:
                raise fail(file, row, f"the box {box} ends before it begins")
            if min(x1, y1) < 0 or max(x2, y2) > self.frame:
                side = f"{self.frame} x {self.frame}"
                raise fail(file, row, f"the box {box} leaves the {side} frame; correct the box or the option 'frame'")
            finding = classes.find(sym.strip(), row)
            if finding is None:
                text = f"'{sym.strip()}' is not a class of {self.title}; not used"
                notes.append(Note("unknown_class", sym.strip(), file, row, text))
                continue
            if x2 == x1 or y2 == y1:
                notes.append(Note("degenerate", finding, file, row, f"the box {box} has no area"))
            shapes.append((finding, (x1, y1, x2, y2)))
        return entry["file_name"].strip(), shapes
