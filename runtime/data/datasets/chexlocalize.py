"""CheXlocalize: radiologists' masks on CheXpert's validation and test images (docs/published-datasets.md §5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ...host.paths import has_file
from .chexlocalize_shapes import compare, read_polygons, read_segmentations
from .dataset import UNCERTAIN_LABELS, Case, Dataset, Note, OfficialCounts, Region
from .file_rows import fail
from .readers.human_benchmark import read_benchmark
from .readers.reader_marks import RADIOLOGIST, ReaderMarks
from .source.csv_cells import label_of
from .source.csv_files import read_csv
from .source.image_names import portable_name, without_extension
from .source.listing import files_in
from .source.spelling import FixedClasses

Labels = dict[str, int | None]

_OPACITY = "Airspace Opacity"
_VIEW = re.compile(r"(patient[0-9]{1,9})[/_](study[0-9]{1,9})(?:[/_](view[0-9]{1,9}_(?:frontal|lateral)))?")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".dcm")


class CheXlocalize(Dataset):
    """`<root>/CheXpert/<split>/patient.../study.../view....jpg`, `CheXpert/<split>_labels.csv` and the JSON files of
    `<root>/CheXlocalize`.

    Regions are the released masks, or the polygons if there are no masks. Labels are given per study and inherited
    by all its views, so a view can be positive without a region. Any of the 13 CheXpert observations may have regions;
    the public release has ten.
    """

    name = "chexlocalize"
    title = "CheXlocalize"
    classes = (
        _OPACITY, "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Enlarged Cardiomediastinum", "Fracture",
        "Lung Lesion", "Pleural Effusion", "Pleural Other", "Pneumonia", "Pneumothorax", "Support Devices",
    )  # fmt: skip
    card = """Source: CheXlocalize (Stanford AIMI), radiologists' masks of ten findings on CheXpert's validation (234
images) and test (668 images) sets.
Access: Stanford AIMI account and research use agreement; non-commercial, no redistribution.
Cite: Saporta et al., Nature Machine Intelligence 2022; Irvin et al., CheXpert, AAAI 2019.
Split: the test set with several views per study; that the paper used all of it is a guess. The paper's tables have 13
classes; Fracture, Pleural Other and Pneumonia have no masks in the public release."""
    option_help: ClassVar[Mapping[str, str]] = {
        "split": "test (default) or val",
        "frontal_only": "true: leave out lateral images, default false",
        "regions": "segmentations (default, else polygons where that file is absent) or polygons",
        "crosscheck": "classes (default): note where masks and polygons name other classes; pixels: compare them drawn",
        "segmentations": "the JSON file of masks, default CheXlocalize/gt_segmentations_<split>.json",
        "polygons": "the JSON file of polygons, default CheXlocalize/gt_annotations_<split>.json",
        "labels": "the label file, default CheXpert/<split>_labels.csv",
        "images": "the folder of the patients, default CheXpert/<split>",
        "reader_masks": "masks of reader:radiologist, default CheXlocalize/hb_segmentations_<split>.json",
        "reader_points": "points of reader:radiologist, default CheXlocalize/hb_salient_pt_<split>.json",
        **UNCERTAIN_LABELS,
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split = self.choice_option("split", ("test", "val"), "test")
        self.frontal_only = self.flag_option("frontal_only")
        self.crosscheck = self.choice_option("crosscheck", ("classes", "pixels"), "classes")
        source = self.choice_option("regions", ("segmentations", "polygons"), "segmentations")
        masks = self.path_option("segmentations", f"CheXlocalize/gt_segmentations_{self.split}.json")
        polygons = self.path_option("polygons", f"CheXlocalize/gt_annotations_{self.split}.json")
        self.polygons = polygons if source == "polygons" or "polygons" in self.options or has_file(polygons) else None
        fallback = not has_file(masks) and self.polygons is not None and "segmentations" not in self.options
        self.segmentations = None if source == "polygons" or fallback else masks
        self.is_fallback = fallback and source != "polygons"
        also = ("CheXpert/valid", "CheXpert/valid.csv") if self.split == "val" else ()
        self.images = self.first_path("images", f"CheXpert/{self.split}", *also[:1])
        self._listed: dict[Path, list[Path]] = {}
        self.labels = self.first_path("labels", f"CheXpert/{self.split}_labels.csv", *also[1:])

    def sources(self) -> Sequence[Path]:
        """The label file and the JSON files in use."""
        return [self.labels, *(file for file in (self.segmentations, self.polygons) if file is not None)]

    def image_folders(self) -> Sequence[Path]:
        """The folder of the patients; none if the lateral views are excluded."""
        return () if self.frontal_only else (self.images,)

    def attribute_file(self) -> Path | None:
        """The label file; only the validation set's has view, sex and age."""
        return self.labels

    def official(self) -> OfficialCounts | None:
        """Number of images, for the validation set also of masks; None if the test set excludes the lateral views."""
        if self.split == "val":
            return OfficialCounts(234 - 32) if self.frontal_only else OfficialCounts(234, 643)
        return None if self.frontal_only else OfficialCounts(668)

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per image of the label file, then images that only have regions. Raises DataError."""
        files = self.segmentations, self.polygons
        masks = read_segmentations(files[0], self._keys, self.classes, notes) if files[0] else None
        outlines = read_polygons(files[1], self._keys, self.classes, notes) if files[1] else None
        if masks is not None and outlines is not None:
            compare(masks, outlines, self.crosscheck == "pixels", notes)
        if self.is_fallback and self.polygons:
            text = "there is no file of masks; the polygons are drawn instead"
            notes.append(Note("fallback", "polygons", self.polygons, None, text))
        shapes = masks if masks is not None else outlines
        assert shapes is not None
        images, studies = self._read_labels(notes)
        keys = dict.fromkeys([*images, *shapes.regions])
        cases = []
        for key in keys:
            patient, study, view = self._keys(key) or ("", "", "")
            row, labels = images.get(key) or studies.get((patient, study)) or (None, None)
            if self.frontal_only and view.endswith("lateral"):
                continue
            regions = shapes.regions.get(key, {})
            self._check(key, row, labels, regions, notes)
            cases.append(
                Case(
                    case_id=key,
                    image=self._image(patient, study, view),
                    labels=labels or {c: 1 if c in regions else None for c in self.classes},
                    regions={c: regions[c] for c in self.classes if c in regions},
                    split=self.split,
                    patient_id=patient,
                    rows=() if row is None else (row,),
                    size=shapes.sizes.get(key),
                )
            )
        return cases

    def reader_marks(self, reader: str) -> ReaderMarks | str:
        """The human benchmark: masks and points of radiologists who did not draw the regions. Raises DataError."""
        if reader != RADIOLOGIST:
            return super().reader_marks(reader)
        masks = self.path_option("reader_masks", f"CheXlocalize/hb_segmentations_{self.split}.json")
        points = self.path_option("reader_points", f"CheXlocalize/hb_salient_pt_{self.split}.json")
        lacking = [file for file in (masks, points) if not has_file(file)]
        if lacking:
            return f"the human benchmark needs the file {lacking[0]} (docs/published-datasets.md §5)"
        return read_benchmark(masks, points, self._keys, self.classes, self.cases())

    @staticmethod
    def _keys(text: str) -> tuple[str, str, str] | None:
        """(patient, study, view) of a key `patient1_study1_view1_frontal`, or of a path; None: another form."""
        view = _VIEW.fullmatch("/".join(without_extension(portable_name(text)).split("/")[-3:]))
        return None if view is None or view[3] is None else (view[1], view[2], view[3])

    def _check(
        self, key: str, row: int | None, labels: Labels | None, regions: Mapping[str, Region], notes: list[Note]
    ) -> None:
        if labels is None:
            text = f"'{key}' has no label; findings without a region are unknown"
            notes.append(Note("not_annotated", key, self.labels, None, text))
            return
        for finding in regions:
            if labels[finding] in (0, None):
                label = "is 0" if labels[finding] == 0 else "is not given"
                text = f"'{key}' has a region of '{finding}', but its label {label}"
                notes.append(Note("disagreement", key, self.labels, row, text))

    def _read_labels(
        self, notes: list[Note]
    ) -> tuple[dict[str, tuple[int, Labels]], dict[tuple[str, str], tuple[int, Labels]]]:
        """Row and labels by image, and by study; a row without a view applies to all images of its study on disk."""
        file = self.labels
        images: dict[str, tuple[int, Labels]] = {}
        studies: dict[tuple[str, str], tuple[int, Labels]] = {}
        columns: dict[str, str] = {}
        for row, cells in read_csv(file, ("Path",)):
            columns = columns or self._label_columns(cells, notes)
            path = without_extension(portable_name(cells["Path"]).rstrip("/"))
            parts = _VIEW.fullmatch("/".join(path.split("/")[-3 if "view" in path.rpartition("/")[2] else -2 :]))
            if parts is None:
                raise fail(file, row, f"the path {path[:200]!r} does not end like patient1/study1/view1_frontal.jpg")
            patient, study, view = parts[1], parts[2], parts[3]
            labels: Labels = {
                finding: label_of(cells[columns[finding]], file, row, f"the label of '{finding}'")
                for finding in self.classes
            }
            if studies.setdefault((patient, study), (row, labels))[1] != labels:
                text = f"{patient}/{study} has other labels here than in row {studies[patient, study][0]}"
                notes.append(Note("disagreement", f"{patient}/{study}", file, row, text))
            views = [view] if view else sorted({path.stem for path in self._files(patient, study)})
            for name in views:
                key = f"{patient}_{study}_{name}"
                if key in images:
                    raise fail(file, row, f"'{key}' was listed in row {images[key][0]} before")
                if self._keys(key):
                    images[key] = row, labels
        return images, studies

    def _label_columns(self, header: Mapping[str, str], notes: list[Note]) -> dict[str, str]:
        """Finding -> its column of the label file, in any spelling. Raises DataError for one without."""
        classes, release = FixedClasses(self.classes, {"Lung Opacity": _OPACITY}), "Lung Opacity" in header
        columns = classes.columns([name for name in header if name != _OPACITY or not release], self.labels)
        notes += classes.notes(self.labels)
        lacking = [finding for finding in self.classes if finding not in columns]
        if lacking:
            names = ", ".join("Lung Opacity" if finding == _OPACITY else finding for finding in lacking)
            remark = f"; Lung Opacity is {_OPACITY} in the regions" if _OPACITY in lacking else ""
            raise fail(self.labels, 1, f"the header lacks {names}{remark}")
        return columns

    def _files(self, patient: str, study: str) -> list[Path]:
        """The image files of a study, listed once."""
        folder = self.images / patient / study
        if folder not in self._listed:
            self._listed[folder] = [path for path in files_in(folder, _SUFFIXES) if path.name.startswith("view")]
        return self._listed[folder]

    def _image(self, patient: str, study: str, view: str) -> Path:
        """The image of a view, with any file extension; the path it should have, if there is none."""
        path = self.images / patient / study / f"{view}.jpg"
        return path if has_file(path) else next((p for p in self._files(patient, study) if p.stem == view), path)
