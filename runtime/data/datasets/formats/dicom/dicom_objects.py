"""Annotations in DICOM: SEG, TID 1500 SR, GSPS and Parametric Maps (docs/formats.md §9.10)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from ......engines.errors import DataError, ImageError
from .....host.paths import has_folder
from ....images.size import image_size
from ...file_rows import fail
from ...masks.mask_files import StoredMask
from ...masks.mask_reader import MaskReader
from ...patients import is_placeholder
from ...region_shapes import MaskRuns
from ...source.listing import tree
from ..file_format import SHARED, FileFormat
from ..named_images import IMAGES
from ..shapes import Annotated, Place, Shape
from .dicom_files import DicomFile, dicom_files, guarded, read_object, text_of
from .dicom_graphics import LOST, NO_GRAPHIC, Graphic, layer_graphics, measured_graphics, report_images
from .dicom_masks import MaskFrame, map_frames, referenced_images, segment_frames, segment_names

_WITHOUT_AREA: Final = ("POINT", "MULTIPOINT", "INTERPOLATED", "COMPOUND")
_SHAPES: Final = ("CIRCLE", "ELLIPSE", "ELLIPSOID", "RECTANGLE", "MULTILINE", "INFINITELINE", "CUTLINE", "RANGELINE")
_MISSING: Final = {
    "gsps": "a presentation state says how an image is shown; name the class of its graphics in the option graphics",
    "pm": "a parametric map has no class; name it in the option maps, and set threshold",
    "other": "an object of this kind is not read",
    "template": "a structured report by another template than 1500 is not read",
}


class DicomObjects(FileFormat):
    """DICOM objects below `<root>/annotations/` that refer to the images below `<root>/images/` by their UID.

    An image that an object refers to is a case, with or without a region. Patients are known by a hash of their ID.
    """

    name = "dicom"
    title = "DICOM"
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the objects, default annotations",
        "threshold": "of fractional segmentations and parametric maps: inside is this value and more; default none",
        "graphics": "the class of the graphics of presentation states, or a table of their layers such as "
        '{FINDINGS = "Mass"}; default none, they are not read',
        "maps": "the class of parametric maps, default none, they are not read",
        "rename": 'classes by the names in the files, a table such as {"Pleural effusion" = "Effusion"}; default none',
        **SHARED,
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.path_option("annotations", "annotations")
        self.threshold = self._threshold()
        self.maps = self.text_option("maps", "-") if "maps" in self.options else ""
        self.rename = self._table("rename")
        given = self.options.get("graphics")
        self.graphics: dict[str, str] | str = given.strip() if isinstance(given, str) else self._table("graphics")
        if not has_folder(self.annotations):
            raise DataError(f"The folder {self.annotations} of the annotations does not exist; correct the root.")
        files = list(dicom_files(self.annotations))
        self._objects = [item for item in files if item.object_type != "image"]
        if not self._objects:
            raise DataError(
                f"The folder {self.annotations} holds no DICOM object that annotates an image; correct the root or the "
                "option annotations."
            )
        self._paths = self._image_paths(files)
        self._sizes: dict[str, tuple[int, int] | None] = {}
        self._masks = MaskReader()
        self._described: set[str] = set()
        annotated = list(self._annotated())
        self._use(annotated, self.texts_option("classes") or self._classes_seen(annotated))
        self._early += self._masks.notes()

    def _classes_seen(self, annotated: Sequence[Annotated]) -> tuple[str, ...]:
        """The classes with a region or a mark, and the classes of segments without a pixel: they were looked for."""
        return tuple(sorted({shape.finding for item in annotated for shape in item.shapes} | self._described))

    def _threshold(self) -> float | None:
        given = self.options.get("threshold")
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise self.option_error("threshold", f"must be a number, not {given!r}")
        return float(given)

    def _table(self, key: str) -> dict[str, str]:
        given = self.options.get(key, {})
        if not isinstance(given, dict) or not all(isinstance(name, str) and name.strip() for name in given.values()):
            raise self.option_error(key, "must be a table of texts")
        return {str(name).strip(): text.strip() for name, text in given.items()}

    def sources(self) -> Sequence[Path]:
        """The annotation objects."""
        return [item.path for item in self._objects]

    def image_folders(self) -> Sequence[Path]:
        """The folder of the images, unless it holds the annotations too."""
        return () if self.annotations.is_relative_to(self.images) else (self.images,)

    def image_names(self) -> Collection[str]:
        """The images below their folder; DICOM files may have any name."""
        start = len(str(self.images)) + 1
        return [str(path)[start:] for path in self._paths.values()]

    def _image_paths(self, files: list[DicomFile]) -> dict[str, Path]:
        """UID -> image. A PNG or JPEG file has the UID as its name."""
        if self.images != self.annotations:
            files = list(dicom_files(self.images, strict=False))
        paths = {item.uid: item.path for item in files if item.object_type == "image"}
        for path in tree(self.images):
            if path.suffix.lower() in IMAGES[2:]:
                paths.setdefault(path.stem, path)
        return paths

    def _annotated(self) -> Iterator[Annotated]:
        images: dict[str, Annotated] = {}
        skipped: dict[str, list[Path]] = {}
        for item in self._objects:
            reason, shapes = guarded((item.path, None), lambda item=item: self._read(item))  # type: ignore[misc]
            if reason:
                skipped.setdefault(reason, []).append(item.path)
            for uid, shape in shapes:
                if uid not in images:
                    images[uid] = self._about(uid, item.path)
                images[uid].shapes += [shape] if shape else []
        for reason, paths in skipped.items():
            text = f"{_MISSING[reason]}; objects that are not used: {len(paths)}"
            self.note("other_file", str(paths[0]), (paths[0], None), text)
        return iter(images.values())

    def _about(self, uid: str, file: Path) -> Annotated:
        path = self._paths.get(uid)
        if path is None:
            return Annotated(f"{uid}.dcm", file)
        name = str(path)[len(str(self.images)) + 1 :]
        patient = None
        if path.suffix.lower() not in IMAGES[2:]:
            patient = text_of(read_object(path, "PatientID"), "PatientID") or None
        # A placeholder is no person's ID, and its hash would look like one.
        if patient and not is_placeholder(patient):
            patient = hashlib.sha256(patient.encode()).hexdigest()[:12]
        return Annotated(name, file, patient=patient)

    def _read(self, item: DicomFile) -> tuple[str, list[tuple[str, Shape | None]]]:
        """Why an object is not used, else empty; and the shapes of the images that it refers to, None: nothing."""
        file, object_type = item.path, item.object_type
        if object_type == "rtstruct":
            raise fail(
                file,
                None,
                "an RT Structure Set is drawn in millimetres of a frame of reference, which a radiograph does not "
                "have; export its contours as a Segmentation, or take it out of the folder",
            )
        if (
            object_type == "other"
            or (object_type == "gsps" and not self.graphics)
            or (object_type == "pm" and not self.maps)
        ):
            return object_type, []
        data = read_object(file)
        if object_type == "seg":
            return "", self._segments(data, file)
        if object_type == "pm":
            return "", [self._mask(frame, file) for frame in map_frames(data, file, self.threshold)]
        if object_type == "gsps":
            return "", [self._graphic(graphic, file, self._layer(graphic)) for graphic in layer_graphics(data, file)]
        images = report_images(data)
        if images is None:
            return "template", []
        known = [uid for uid in images if uid in self._paths]
        graphics = measured_graphics(data, known or images, file)
        shapes = [self._graphic(graphic, file, self._class(graphic.names)) for graphic in graphics]
        return "", [*((uid, None) for uid in known), *shapes]

    def _segments(self, data: Any, file: Path) -> list[tuple[str, Shape | None]]:
        """The shapes of a Segmentation. An image that it refers to without a frame is negative, as is a class."""
        segments = segment_names(data, file)
        shapes = [self._mask(frame, file) for frame in segment_frames(data, file, segments, self.threshold)]
        drawn = {shape.finding for _, shape in shapes if shape}
        for number, names in segments.items():
            finding = self._class(names)
            if not finding:
                raise fail(file, None, f"the segment {number} has neither label nor type")
            self._described.add(finding)
            if finding not in drawn:
                self.note("empty_mask", finding, (file, None), f"the segment {number} has no pixel; taken as negative")
        return [*((uid, None) for uid in referenced_images(data) if uid in self._paths), *shapes]

    def _class(self, names: tuple[str, ...]) -> str:
        """The class of several names: from the option `rename`, else the first name."""
        return next((self.rename[name] for name in names if name in self.rename), names[0] if names else "")

    def _layer(self, graphic: Graphic) -> str:
        return self.graphics if isinstance(self.graphics, str) else self.graphics.get(graphic.names[0], "")

    def _mask(self, frame: MaskFrame, file: Path) -> tuple[str, Shape | None]:
        finding = self._class(frame.names) if frame.names else self.maps
        if not finding:
            raise fail(file, frame.number, "the segment of the frame has neither label nor type")
        if frame.images > 1 and frame.values.any():
            text = f"the frame names {frame.images} images as its source; its region is of the first"
            self.note("disagreement", finding, (file, frame.number), text)
        return frame.uid, self.shape(lambda: self._drawn(frame, file, finding), (file, frame.number), finding)

    def _drawn(self, frame: MaskFrame, file: Path, finding: str) -> Shape | None:
        """The region of a frame; None if it is empty. Raises DataError."""
        size = self._size(frame.uid)
        if size not in (None, frame.values.shape):
            height, width = frame.values.shape
            raise fail(
                file, frame.number, f"the frame is {width} x {height}, its image {self._paths[frame.uid].name} is not"
            )
        where = (file, frame.number)
        try:
            mask = self._masks.region(StoredMask(frame.values), finding, where, threshold=frame.threshold)
        except ImageError as error:
            raise fail(*where, f"the mask of the frame cannot be used: {error}") from error
        return Shape(finding, MaskRuns.of(mask), frame.number) if mask.any() else None

    def _size(self, uid: str) -> tuple[int, int] | None:
        """(height, width) of an image; None if it is not there or cannot be read, which is reported elsewhere."""
        if uid not in self._sizes:
            try:
                self._sizes[uid] = image_size(self._paths[uid]) if uid in self._paths else None
            except ImageError:
                self._sizes[uid] = None
        return self._sizes[uid]

    def _square(self, uid: str) -> bool:
        """Whether the pixels of an image are square, or nothing says that they are not."""
        path = self._paths.get(uid)
        if path is None or path.suffix.lower() in IMAGES[2:]:
            return True
        header = read_object(path, "PixelSpacing", "ImagerPixelSpacing")
        spacing = header.get("PixelSpacing") or header.get("ImagerPixelSpacing") or (1, 1)
        down, across = guarded((path, None), lambda: map(float, spacing))
        return math.isclose(down, across, rel_tol=1e-4)

    def _graphic(self, graphic: Graphic, file: Path, finding: str) -> tuple[str, Shape | None]:
        where: Place = (file, graphic.number)
        if graphic.graphic_type == NO_GRAPHIC:
            self.note("unused_parts", finding, where, "the measurement group has no graphic; it is not used")
            return graphic.uid, None
        if not finding:
            named = f"the graphic of {' or '.join(graphic.names)}" if graphic.names else "a graphic without a finding"
            self.note(
                "unknown_class", graphic.names[0] if graphic.names else "", where, f"{named} has no class; not used"
            )
            return graphic.uid, None
        return graphic.uid, self.shape(lambda: self._shape(graphic, finding, where), where, finding)

    def _shape(self, graphic: Graphic, finding: str, where: Place) -> Shape:
        graphic_type, points = graphic.graphic_type, graphic.points
        if graphic_type == LOST:
            raise fail(*where, f"the viewer stored no graphic of what was drawn as '{finding}'; draw it again there")
        if graphic.square and not self._square(graphic.uid):
            problem = "the viewer stores wrong coordinates on an image whose pixels are not square"
            raise fail(*where, f"{problem}; paint a segmentation instead")
        if graphic_type in _WITHOUT_AREA or (
            graphic_type == "POLYLINE" and (len(points) < 4 or points[0] != points[-1])
        ):
            return self.without_area(finding, graphic_type.lower(), where)
        if graphic_type in ("POLYLINE", "POLYGON"):
            return self.polygon(finding, points[:-1] if points[0] == points[-1] else points, where)
        if graphic_type == "CIRCLE" and len(points) == 2:
            radius = math.dist(*points)
            return self.ellipse(finding, points[0], (radius, radius), where)
        if graphic_type == "ELLIPSE" and len(points) == 4:
            (ax, ay), (bx, by), c, d = points
            angle = math.degrees(math.atan2(by - ay, bx - ax))
            radii = (math.hypot(bx - ax, by - ay) / 2, math.dist(c, d) / 2)
            return self.ellipse(finding, ((ax + bx) / 2, (ay + by) / 2), radii, where, angle)
        shown = graphic_type if graphic_type in _SHAPES else "of unknown type"
        raise fail(*where, f"a graphic {shown} of {len(points)} points is not read")
