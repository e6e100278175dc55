"""A folder of masks, PNG or NIfTI: one class a file, or several by their values (docs/formats.md §9.8, §9.9)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from .....engines.errors import DataError, ImageError
from ..file_rows import fail
from ..masks.mask_files import StoredMask, read_png
from ..masks.mask_reader import MaskReader
from ..region_shapes import MaskRuns
from .empty_class_names import says_nothing
from .file_format import SHARED, FileFormat
from .mask_listing import MaskListing
from .mask_values import read_values
from .name_patterns import NamePattern
from .shapes import Annotated, Shape


class MaskFolder(FileFormat):
    """Mask files below a folder, found by the form of their names."""

    form: ClassVar[str]
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the masks, default masks",
        "files": "names of the masks below that folder, with {image} and {class}; default {class}/{image}.png, or "
        "{image}.png with values",
        "values": 'classes by value or colour, as a table such as {Mass = 1} or {Mass = "#ff0000"}, or a file; '
        "default none: pixels above 0 are the class in the file's name",
        "threshold": "of masks that are not binary: inside is this value and more; default above 0",
        "resized": "true: masks may have another size than their images, and are resized with them; default false",
        **SHARED,
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.path_option("annotations", "masks")
        self.resized = self.flag_option("resized")
        self.values, self._values_file = read_values(
            self.options.get("values"), self.root, partial(self.option_error, "values")
        )
        self.threshold = self._threshold()
        default = self.form.removeprefix("{class}/") if self.values else self.form
        self.files = NamePattern(
            self.text_option("files", default), self.texts_option("classes"), partial(self.option_error, "files")
        )
        if self.values is None and not self.files.by_class:
            raise DataError(
                f"The names {self.files.text} of the masks of the dataset '{self.name}' name no class; say which value "
                "is which class in the option values."
            )
        self._paths: list[Path] = []
        self._masks = MaskReader("; set the option threshold, or values where they are classes")
        stated = tuple(self.values.classes) if self.values and not self.files.by_class else ()
        self._use(self._annotated(), self.texts_option("classes") or stated)
        self._early += self._masks.notes()

    def _threshold(self) -> float | None:
        """The option `threshold`. Raises ConfigError."""
        given = self.options.get("threshold")
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
            raise self.option_error("threshold", f"must be a number above 0, not {given!r}")
        if self.values:
            raise self.option_error("threshold", "has no meaning with values; leave one of the two out")
        return float(given)

    @abstractmethod
    def _load(self, path: Path) -> StoredMask:
        """What a mask file stores. Raises ImageError."""

    def _beside(self, path: Path) -> Sequence[Path]:
        """The other files that a mask consists of."""
        return ()

    def sources(self) -> Sequence[Path]:
        """The masks, and the file of the classes."""
        return [*([self._values_file] if self._values_file else []), *self._paths]

    def _annotated(self) -> Iterable[Annotated]:
        below = self.files_below(self.annotations, self.files.extension, "annotations")
        files = {path: name for name, path in below}
        images = (self.images, self.suffix)
        listing = MaskListing(self.annotations, self.files, files, images, self.texts_option("classes"))
        items: dict[str, Annotated] = {}
        for path, image, finding in listing.masks:
            self._paths += [path, *self._beside(path)]
            drawn = self.shape(partial(self._shapes, path, finding), (path, None), finding)
            shapes, size = ([drawn], None) if isinstance(drawn, Shape) else drawn
            item = items.setdefault(image, Annotated(image, path))
            item.size = item.size or size
            if size not in (None, item.size):
                problem = f"the mask is {size[1]} x {size[0]}, {item.file.name} of the same image is not"
                raise fail(path, None, problem)
            item.shapes += shapes
        self._early += listing.notes({*self.sources()})
        for item in items.values():
            item.size = item.size if self.resized else None
            yield item

    def _shapes(self, path: Path, finding: str) -> tuple[list[Shape], tuple[int, int]]:
        """The shapes of a mask file of the class `finding`, empty: by its values; and the size of the mask."""
        where = (path, None)
        try:
            stored = self._load(path)
            if self.values is None:
                masks = {"": self._masks.region(stored, finding, where, threshold=self.threshold)}
            else:
                labels = self._masks.classes(stored, finding, where, colours=self.values.colours)
                masks, rest = self.values.split(labels)
                if rest:
                    self.note("unknown_class", rest[0], where, self.values.note_text(labels, rest))
        except ImageError as error:
            raise DataError(f"The mask {path} cannot be read: {error}.") from error
        shapes = []
        for name, mask in masks.items():
            if finding and name and name != finding:
                note = f"the value of '{name}' in a file of '{finding}'; not used"
                self.note("disagreement", name, where, note)
            elif mask.any() and not (name and says_nothing(name, self.nothing)):
                if name:
                    self._masks.region(StoredMask(mask), name, where)
                shapes.append(Shape(finding or name, MaskRuns.of(mask)))
        if not shapes and finding:
            least = "above 0" if self.threshold is None else f"of {self.threshold:g} or more"
            note = f"the mask has no pixel {least}; taken as negative"
            if self.threshold is not None and stored.values.max(initial=0) > 0:
                note += f" (its largest value is {np.max(stored.values):g})"
            self.note("empty_mask", finding, where, note)
        size = stored.values.shape[:2]
        return shapes, (size[0], size[1])


class PngMasks(MaskFolder):
    """`<root>/masks/<class>/<image>.png` next to `<root>/images/`, or other names by the option `files`.

    Any value above 0 is inside, so 0 and 1 mean the same as 0 and 255; with `values` each value or colour is a class.
    """

    name = "masks"
    title = "Masks"
    form = "{class}/{image}.png"

    def _load(self, path: Path) -> StoredMask:
        return read_png(path)
