"""Pascal VOC: one XML file per image, with boxes (docs/datasets.md §9.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ....engines.errors import ConfigError
from ..files import fail
from .file_format import SHARED, FileFormat
from .shapes import Annotated, Shape
from .xml_tree import Element, read_xml

__all__ = ["PascalVoc"]


class PascalVoc(FileFormat):
    """`<root>/Annotations/<image>.xml` beside `<root>/JPEGImages/` or `<root>/images/`.

    The first pixel of an image is 1 and the last one of a box is part of it, unless `origin` is 0: many tools write
    corners from 0 whose ends are no part of the box.
    """

    name = "voc"
    title = "Pascal VOC"
    folders = ("JPEGImages", "images")
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the XML files, default Annotations",
        "origin": "1 (default): corners count pixels from 1, inclusive; or 0: positions from 0, as CVAT writes",
        **SHARED,
        "images": "the folder of the images, default JPEGImages, else images; subfolders are searched",
    }

    mends: Mapping[str, str] = dict.fromkeys(
        ("smaller", "larger"), "state the size of the annotated images in size of the XML files"
    )

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.path_option("annotations", "Annotations")
        self.origin = self._origin()
        self._files: list[Path] = []
        self._zeros: list[Element] = []
        self._use(self._annotated())
        if self._zeros:
            text = (
                f"corners that are 0, though the first pixel is 1: {len(self._zeros)}; if this tool counts from 0, set "
                "the option origin to 0"
            )
            self.note("disagreement", self.name, self._zeros[0].where, text)

    def _origin(self) -> int:
        given = self.options.get("origin", 1)
        if given not in (0, 1) or isinstance(given, bool):
            raise ConfigError(f"The option 'origin' of the dataset '{self.name}' must be 1 or 0, not {given!r}.")
        return int(str(given))

    def sources(self) -> Sequence[Path]:
        """The XML files."""
        return self._files

    def _annotated(self) -> Iterator[Annotated]:
        for name, file in self.files_below(self.annotations, ".xml", "annotations"):
            self._files.append(file)
            top = read_xml(file, "annotation")
            height, width = top.side("size", "height"), top.side("size", "width")
            size = (height, width) if height and width else None
            shapes = [self._shape(item) for item in top.all("object")]
            yield Annotated(name, file, None, shapes, size, other=top.content("filename"))

    def _shape(self, item: Element) -> Shape:
        finding, box = item.content("name"), item.first("bndbox")
        if not finding:
            raise fail(*item.where, "the object has no name")
        if box is None:
            raise fail(*item.where, f"the object '{finding}' has no bndbox; only boxes are read")
        x1, y1, x2, y2 = (box.value(key) for key in ("xmin", "ymin", "xmax", "ymax"))
        if self.origin and min(x1, y1) == 0:
            self._zeros.append(box)
        return self.box(finding, (x1 - self.origin, y1 - self.origin, x2, y2), box.where)
