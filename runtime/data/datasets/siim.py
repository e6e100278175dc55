"""SIIM-ACR Pneumothorax Segmentation, stages 1 and 2: one class, run-length masks (docs/published-datasets.md §2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ....engines.errors import DataError
from ...host.paths import has_folder
from .dataset import PATIENTS, Case, Dataset, Note, OfficialCounts, Region
from .file_rows import fail
from .masks.mask_names import listed_masks, note_others
from .masks.mask_reader import MaskReader
from .region_shapes import MaskRuns, RunText, union
from .source.csv_files import read_csv
from .source.image_index import ImageTree
from .source.image_names import ImageIds

_FINDING = "Pneumothorax"
_COLUMNS = ("ImageId", "EncodedPixels")
_ANNOTATIONS = ("stage_2_train.csv", "train-rle.csv")
_FOLDERS = ("dicom-images-train", "dicom-images-test", "stage_2_images", "processed_images")
# Of the stage-1 file, the stage-2 file, and the test list of MAVL.
_IMAGES = (OfficialCounts(10_675, 2_379), OfficialCounts(12_047, 2_669), OfficialCounts(2_264, 594))
_ROWS = (OfficialCounts(11_582, 3_286), OfficialCounts(12_954, 3_576), OfficialCounts(2_317, 647))


_MOST_ROWS = 10
"""More rows than an image of the challenge has; a film with more of them is a wrong column."""


@dataclass
class _Image:
    rows: list[int] = field(default_factory=list)
    masks: dict[str, RunText] = field(default_factory=dict)  # by text, so that a duplicate row is found at once


class Siim(Dataset):
    """`<root>/stage_2_train.csv` or `train-rle.csv`, and DICOM files anywhere below the usual image folders.

    An image's region is the union of all its rows. With `unit=row` every row is a case, each with the whole image's
    region, as in MAVL's lists and therefore in the paper: an image with three rows has weight 3.
    """

    name = "siim"
    title = "SIIM-ACR"
    classes = (_FINDING,)
    card = """Source: SIIM-ACR Pneumothorax Segmentation Challenge (Kaggle, 2019); the images are NIH ChestX-ray14's.
Access: a Kaggle account and the competition's rules; research use, no redistribution. NIH terms apply to the pixels.
Cite: Society for Imaging Informatics in Medicine and American College of Radiology, Kaggle 2019.
Split: no official labelled test set. The paper's is MAVL's row-wise test list (2,317 rows on 2,264 images, 647
positive); reconstructed, strong: an all-ones mask on it gives the printed Dice 3.16 and IoU 1.64. 199 of its images
also stand in MAVL's training list. Use split=paper with your own copy of the list."""
    option_help: ClassVar[Mapping[str, str]] = {
        "split": "all (default): every image of the annotation; list or paper: images in `list`",
        "list": "a CSV with the column ImageId, such as test.csv of MAVL",
        "unit": "image (default), or row: a case per row; default row with split=paper",
        "annotations": "the CSV file, or a list of them; default stage_2_train.csv, else train-rle.csv",
        "images": "the folder of the images, searched with all below; default every folder of a known name",
        "masks": "a folder of <ImageId>.png to take the regions from instead of the runs, as MAVL's processed_masks",
        **PATIENTS,
    }
    frame = (1024, 1024)

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split, self.list = self.list_option()
        self.unit = self.choice_option("unit", ("image", "row"), "row" if self.split == "paper" else "image")
        if self.unit == "row":
            self.cases_per_image = _MOST_ROWS
        self.annotations = self._annotation_files()
        self.masks = self.path_option("masks", "") if "masks" in self.options else None
        folders = [self.root / name for name in _FOLDERS if has_folder(self.root / name)]
        self.images = [self.path_option("images", "")] if "images" in self.options else folders or [self.root]

    def _annotation_files(self) -> list[Path]:
        given = self.options.get("annotations")
        if not isinstance(given, list):
            return [self.first_path("annotations", *_ANNOTATIONS)]
        if not given or not all(isinstance(item, str) and item for item in given):
            raise self.option_error("annotations", "must be a file or list of files")
        return [self.root / item for item in given]

    def sources(self) -> Sequence[Path]:
        """The annotation files, the list if one is given, and the mask files if they are used."""
        files = [*self.annotations, *([self.list] if self.list else [])]
        return files if self.masks is None else [*files, *listed_masks(self.masks, []).values()]

    def official(self) -> OfficialCounts | None:
        """The counts of the list or stage with the same number of cases; else of stage 2."""
        table = _ROWS if self.unit == "row" else _IMAGES
        if self.list:
            return table[2]
        return next((counts for counts in table[:2] if counts.cases == len(self.cases())), table[1])

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per image, or per row, in the order of the list or else of the annotation. Raises DataError."""
        images: dict[str, _Image] = {}
        order: list[tuple[str, int]] = []
        for file in self.annotations:
            order += self._annotation(file, images, notes)
        if self.list:
            order = self._listed(images, notes)
        tree = ImageTree(self.images, (".dcm", ".dicom", ".png", ".jpg"), notes)
        masks = None if self.masks is None else listed_masks(self.masks, notes)
        reader = MaskReader()
        source = self.list or self.annotations[0]
        made: dict[str, Case] = {}
        cases, seen = [], dict[str, int]()
        for key, row in order:
            if key not in made:
                region = self._region(key, images.get(key), masks, reader)
                made[key] = self._case(key, images.get(key), tree.find(key, source, row), region)
                if self.unit == "image":
                    cases.append(made[key])
            if self.unit == "row":
                case, seen[key] = made[key], seen.get(key, 0) + 1
                # Rows of an image are resampled together; the annotation has no patient id.
                cases.append(
                    Case(
                        f"{key}#{seen[key]}", case.image, case.labels, case.regions,
                        self.split, key, (row,), self.frame,
                    )
                )  # fmt: skip
        note_others([path for key, path in (masks or {}).items() if key not in images], "no image", notes)
        notes += reader.notes()
        return cases

    def _case(self, key: str, image: _Image | None, path: Path, region: Region | None) -> Case:
        label = None if image is None else int(bool(image.masks))
        regions = {} if region is None else {_FINDING: region}
        rows = tuple(image.rows) if image else ()
        return Case(key, path, {_FINDING: label}, regions, self.split, None, rows, self.frame)

    def _region(
        self, key: str, image: _Image | None, masks: Mapping[str, Path] | None, reader: MaskReader
    ) -> Region | None:
        """The union of the rows of an image, or its mask file; None for one without a mask. Raises DataError."""
        if image is None or not image.masks:
            return None
        if masks is None:
            return union(list(image.masks.values()))
        if key not in masks:
            raise DataError(f"The mask {self.masks}/{key}.png does not exist; correct the option masks.")
        drawn = reader.read(masks[key], _FINDING)
        if drawn.shape != self.frame:
            raise DataError(
                f"The mask {masks[key]} is {drawn.shape[0]} x {drawn.shape[1]}, not {self.frame[0]} x {self.frame[1]}; "
                "the image and its annotation do not belong together."
            )
        return MaskRuns.of(drawn)

    def _annotation(self, file: Path, images: dict[str, _Image], notes: list[Note]) -> list[tuple[str, int]]:
        order = []
        ids = ImageIds(file)
        for row, cells in read_csv(file, _COLUMNS):
            key, text = ids.of(cells["ImageId"], row, "ImageId"), _runs(cells["EncodedPixels"])
            if not text:
                raise fail(file, row, "EncodedPixels is empty; an image without pneumothorax has -1 there")
            image = images.setdefault(key, _Image())
            if image.rows and (text == "-1") != (not image.masks):
                raise fail(file, row, f"'{key}' has a mask in one row and -1 in another; remove the wrong row")
            if text in image.masks or (text == "-1" and image.rows):
                notes.append(Note("duplicate", key, file, row, f"'{key}' has the same row twice"))
            elif text != "-1":
                try:
                    image.masks[text] = RunText(self.frame, text, "pairs")
                except DataError as error:
                    raise DataError(f"{file}, row {row}: {error}") from error
                if image.masks[text].area == 0:
                    notes.append(Note("degenerate", _FINDING, file, row, f"the mask of '{key}' is empty"))
            image.rows.append(row)
            order.append((key, row))
        return order

    def _listed(self, images: Mapping[str, _Image], notes: list[Note]) -> list[tuple[str, int]]:
        file, order = self.list, []
        assert file is not None
        ids = ImageIds(file)
        for row, cells in read_csv(file, ("ImageId",)):
            key, text = ids.of(cells["ImageId"], row, "ImageId"), _runs(cells.get("EncodedPixels", ""))
            image = images.get(key)
            if image is None:
                text = f"'{key}' is not in {self.annotations[0].name}; its label is unknown"
                notes.append(Note("not_annotated", key, file, row, text))
            elif text and (text == "-1") == bool(image.masks):
                text = f"'{key}' is {'negative' if text == '-1' else 'positive'} here, but not in the annotation"
                notes.append(Note("disagreement", key, file, row, text))
            order.append((key, row))
        return order


def _runs(cell: str) -> str:
    """The run lengths of a cell, "-1" for none; pandas writes -1.0 where other cells of the column are missing."""
    return "-1" if cell == "-1.0" else cell
