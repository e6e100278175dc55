"""MS-CXR: phrases of MIMIC-CXR reports with boxes, eight findings (docs/phrase-grounding.md §11.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from .....engines.errors import ConfigError
from ....host.paths import has_file
from ..dataset import Case, Dataset, Note
from ..file_rows import fail, number, numbers
from ..formats.named_images import NamedImages
from ..source.csv_cells import is_blank
from ..source.csv_files import read_csv
from ..source.documents import read_json
from ..source.image_names import ImageIds, inside, portable_name, stem_of
from ..source.spelling import FixedClasses
from .phrase_pairs import MOST_ROUNDS, Corners, PhraseImage, phrase_key

_STEM: Final = "MS_CXR_Local_Alignment_v"
_BOX: Final = ("x", "y", "w", "h")
_COLUMNS: Final = ("dicom_id", "category_name", "label_text", "path", *_BOX, "image_width", "image_height")
_SPLITS: Final = ("train", "val", "test")
_PATIENT: Final = re.compile(r"p\d{8}")


@dataclass(frozen=True)
class _Row:
    """A box of a phrase as the CSV or the JSON file says it; `path`: the image's path in the release."""

    row: int
    name: str
    path: str
    finding: str
    phrase: str
    box: tuple[float, ...]
    size: tuple[float, float]
    split: str


class MsCxr(Dataset):
    """`<root>/MS_CXR_Local_Alignment_v1.1.0.csv`, or the JSON file of the same content, above `<root>/files/`.

    A pair is an image, a category and a phrase, its region the union of the boxes. Only what a phrase names is known of
    an image: a category without a phrase is unknown. The boxes are in pixels of the stated size, so copies of the
    images at another size will do. The patient is the second folder of the image's path.
    """

    name = "mscxr"
    title = "MS-CXR"
    asks_phrases = True
    cases_per_image = MOST_ROUNDS
    classes = (
        "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Lung Opacity", "Pleural Effusion", "Pneumonia",
        "Pneumothorax",
    )  # fmt: skip
    card = """Source: MS-CXR (PhysioNet), phrases of MIMIC-CXR reports with boxes by radiologists.
Access: credentialed, with a data use agreement; the images are from MIMIC-CXR-JPG.
Cite: Boecking et al., Making the Most of Text Semantics to Improve Biomedical Vision-Language Processing, ECCV 2022.
Split: version 1.1.0 has train, val and test, all by default; they are not MIMIC-CXR's own and overlap the training
sets of published models. Version 1.0.0 has none."""
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": f"the CSV or JSON file, default {_STEM}1.1.0.csv, 1.0.0.csv or .json, the first that exists",
        "images": "the folder that holds files/, or the images anywhere below it, default the dataset's folder",
        "split": "all (default), train, val or test; the JSON file and version 1.0.0 have none",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split = self.choice_option("split", ("all", *_SPLITS), "all")
        places = [f"{_STEM}{version}.{form}" for form in ("csv", "json") for version in ("1.1.0", "1.0.0")]
        self.annotations = self.first_path("annotations", *places)
        self.images = self.path_option("images", ".")
        self.json = self.annotations.suffix.lower() == ".json"
        if self.json and self.split != "all":
            raise ConfigError(
                f"The dataset '{self.name}' cannot take split={self.split} from {self.annotations.name}, which has no "
                "split; use the CSV file of version 1.1.0."
            )

    def sources(self) -> Sequence[Path]:
        """The CSV or JSON file."""
        return (self.annotations,)

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per image, a further one for a second phrase of a category. Raises DataError."""
        read: dict[str, PhraseImage] = {}
        images, classes = _Images(self.images, notes), FixedClasses(self.classes)
        for row in self._json_rows() if self.json else self._csv_rows():
            if self.split not in ("all", row.split):
                continue
            entry = self._image(read, images, row)
            finding = classes.find(row.finding, row.row)
            if finding is None:
                text = f"'{row.finding}' is not a category of {self.title}; not used"
                notes.append(Note("unknown_class", row.finding, self.annotations, row.row, text))
            elif (box := self._box(row, notes)) is None:
                entry.boxless.add(phrase_key(row.phrase))
            elif not entry.add(finding, row.phrase, box):
                text = f"the box of '{row.name}' was listed before"
                notes.append(Note("duplicate", row.name, self.annotations, row.row, text))
        notes += classes.notes(self.annotations)
        return [case for name, image in read.items() for case in image.cases(name, self.classes)]

    def _box(self, row: _Row, notes: list[Note]) -> Corners | None:
        """The box, its sizes truncated before they are added (docs/datasets.md §0.3); None for one without area."""
        x, y, w, h = row.box
        if w < 0 or h < 0:
            raise fail(self.annotations, row.row, f"the box {list(row.box)} has a negative size")
        if w == 0 or h == 0:
            text = f"the box {list(row.box)} has no area; not used"
            notes.append(Note("degenerate", row.finding, self.annotations, row.row, text))
            return None
        return int(x), int(y), int(x) + int(w), int(y) + int(h)

    def _image(self, images_by_name: dict[str, PhraseImage], images: _Images, row: _Row) -> PhraseImage:
        """The image of a row, entered once; rows of one image must agree."""
        width, height = row.size
        if not all(1 <= side == int(side) for side in row.size):
            raise fail(self.annotations, row.row, f"the image's size {width:g} x {height:g} is not in whole pixels")
        if not row.phrase.strip():
            raise fail(self.annotations, row.row, "label_text is empty")
        size, parts = (int(height), int(width)), portable_name(row.path).split("/")
        patient = next((part for part in parts[:-1] if _PATIENT.fullmatch(part)), None)
        image = images_by_name.get(row.name)
        if image is None:
            path = images.find(row, self.annotations)
            image = images_by_name[row.name] = PhraseImage(path, row.split, patient, size)
        if (image.size, image.patient, image.split) != (size, patient, row.split):
            what = "size" if image.size != size else "patient" if image.patient != patient else "split"
            raise fail(self.annotations, row.row, f"'{row.name}' has another {what} than in row {image.rows[0]}")
        image.rows.append(row.row)
        return image

    def _csv_rows(self) -> Iterator[_Row]:
        file, wanted = self.annotations, (*_COLUMNS, *(("split",) if self.split != "all" else ()))
        ids = ImageIds(file)
        for row, cells in read_csv(file, wanted):
            name, split = ids.of(cells["dicom_id"], row, "dicom_id"), cells.get("split", "all")
            if split not in _SPLITS and "split" in cells:
                raise fail(file, row, f"split is {split!r}, not one of {', '.join(_SPLITS)}")
            yield _Row(
                row=row,
                name=name,
                path=f"{name}.jpg" if is_blank(cells["path"]) else cells["path"],
                finding=cells["category_name"],
                phrase=cells["label_text"],
                box=tuple(number(cells[name], file, row, name) for name in _BOX),
                size=(
                    number(cells["image_width"], file, row, "image_width"),
                    number(cells["image_height"], file, row, "image_height"),
                ),
                split=split,
            )

    def _json_rows(self) -> Iterator[_Row]:
        file, document = self.annotations, read_json(self.annotations)
        for key in ("images", "annotations", "categories"):
            if not isinstance(document, dict) or not isinstance(document.get(key), list):
                raise fail(file, None, f"it has no list '{key}', so it is not COCO's form")
        names = {_key(item): item.get("name") for item in document["categories"] if isinstance(item, dict)}
        images = {_key(item): item for item in document["images"] if isinstance(item, dict)}
        for row, item in enumerate(document["annotations"], 1):
            image = images.get(_key(item, "image_id")) if isinstance(item, dict) else None
            if image is None:
                raise fail(file, row, "the annotation belongs to no entry of images")
            path, finding, phrase = image.get("path"), names.get(_key(item, "category_id")), item.get("label_text")
            path = path or image.get("file_name")
            if not isinstance(path, str) or not isinstance(finding, str) or not isinstance(phrase, str):
                raise fail(file, row, "the annotation needs label_text, a category with a name and an image with path")
            sides = [item.get(key, image.get(key)) for key in ("width", "height")]
            yield _Row(
                row=row,
                name=stem_of(path),
                path=path,
                finding=finding.strip(),
                phrase=phrase,
                box=numbers(item.get("bbox"), 4, file, row, "bbox"),
                size=(number(sides[0], file, row, "width"), number(sides[1], file, row, "height")),
                split="all",
            )


def _key(item: dict[str, Any], name: str = "id") -> str:
    """An id, of any type in the file; an entry without one has the id "None" and fits no other."""
    return repr(item.get(name, item))


class _Images:
    """Images by their path in the release, else by their name anywhere below the folder, which is walked only then."""

    def __init__(self, folder: Path, notes: list[Note]) -> None:
        self._folder, self._notes = folder, notes
        self._named: NamedImages | None = None

    def find(self, row: _Row, file: Path) -> Path:
        """The image of a row; if there is none, the path it should have. Raises DataError."""
        path = inside(self._folder, row.path, file, row.row)
        if has_file(path):
            return path
        self._named = self._named or NamedImages(self._folder, "", self._notes)
        return self._named.find(row.path, file, row.row, other=row.name)
