"""A folder of masks, PNG or NIfTI: one class a file, or several by their values (docs/datasets.md §9.8, §9.9)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError, ImageError
from ..files import fail
from ..mask_files import decode_values, read_png
from ..region_shapes import MaskRuns
from .file_format import SHARED, FileFormat
from .file_names import NamePattern
from .mask_values import read_values
from .nothing import says_nothing
from .shapes import Annotated, Shape

__all__ = ["MaskFolder", "PngMasks"]


class MaskFolder(FileFormat):
    """Mask files below a folder, found by the form of their names."""

    form: ClassVar[str]
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the masks, default masks",
        "files": "names of the masks below that folder, with {image} and {class}; default {class}/{image}.png, or "
        "{image}.png with values",
        "values": 'classes by value or colour, as a table such as {Mass = 1} or {Mass = "#ff0000"}, or a file; '
        "default none: what is above 0 is the class of the file's name",
        "resized": "true: masks may have another size than their images, and are resized with them; default false",
        **SHARED,
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.path_option("annotations", "masks")
        self.resized = self.flag_option("resized")
        self.values, self._values_file = read_values(self.options.get("values"), self.root, self._told("values"))
        default = self.form.removeprefix("{class}/") if self.values else self.form
        self.files = NamePattern(self.text_option("files", default), self.texts_option("classes"), self._told("files"))
        if self.values is None and not self.files.by_class:
            raise DataError(
                f"The names {self.files.text} of the masks of the dataset '{self.name}' name no class; say which value "
                "is which class in the option values."
            )
        self._paths: list[Path] = []
        stated = tuple(self.values.classes) if self.values and not self.files.by_class else ()
        self._use(self._annotated(), self.texts_option("classes") or stated)

    def _told(self, key: str) -> str:
        return f"The option '{key}' of the dataset '{self.name}'"

    @abstractmethod
    def _load(self, path: Path) -> NDArray[Any]:
        """The values of a mask [H, W]; with colours their numbers. Raises ImageError."""

    def sources(self) -> Sequence[Path]:
        """The masks, and the file of the classes."""
        return [*([self._values_file] if self._values_file else []), *self._paths]

    def _annotated(self) -> Iterable[Annotated]:
        found: dict[str, Annotated] = {}
        others: list[Path] = []
        extension = self.files.extension
        for name, path in self.files_below(self.annotations, extension, "annotations"):
            read = self.files.read(name + extension)
            if read is None:
                others.append(path)
                continue
            self._paths.append(path)
            shapes, size = self._shapes(path, read[1])
            item = found.setdefault(read[0], Annotated(read[0], path, size=size))
            if item.size != size:
                told = f"the mask is {size[1]} x {size[0]}, {item.file.name} of the same image is not"
                raise fail(path, None, told)
            item.shapes += shapes
        if others:
            text = f"files of another form than {self.files.text}, which are not used: {len(others)}"
            self.note("other_file", str(others[0]), (others[0], None), text)
        for item in found.values():
            item.size = item.size if self.resized else None
            yield item

    def _shapes(self, path: Path, finding: str) -> tuple[list[Shape], tuple[int, int]]:
        """The shapes of a mask file of the class `finding`, empty: by its values; and the size of the mask."""
        try:
            values = self._load(path)
        except ImageError as error:
            raise DataError(f"The mask {path} cannot be read: {error}.") from error
        size = (values.shape[0], values.shape[1])
        masks, rest = self.values.split(values) if self.values else ({"": values > 0}, [])
        if rest:
            told = f"values without a class, which are not used: {', '.join(rest[:5])}{' ...' * (len(rest) > 5)}"
            self.note("unknown_class", rest[0], (path, None), told)
        shapes = []
        for name, mask in masks.items():
            if finding and name and name != finding:
                told = f"the value of '{name}' in a file of '{finding}'; not used"
                self.note("disagreement", name, (path, None), told)
            elif mask.any() and not (name and says_nothing(name, self.nothing)):
                shapes.append(Shape(finding or name, MaskRuns.of(mask)))
        if not shapes and finding:
            self.note("empty_mask", finding, (path, None), "the mask has no pixel above 0; taken as negative")
        return shapes, size


class PngMasks(MaskFolder):
    """`<root>/masks/<class>/<image>.png` beside `<root>/images/`, or other names by the option `files`.

    Any value above 0 is inside, so 0 and 1 or 0 and 255 read alike; with `values` each value or colour is a class.
    """

    name = "masks"
    title = "Masks"
    form = "{class}/{image}.png"

    def _load(self, path: Path) -> NDArray[Any]:
        values, colours = decode_values(read_png(path), rgba=bool(self.values and self.values.colours))
        if self.values is None:
            drawn = values > 0
            return np.asarray(drawn if drawn.ndim == 2 else drawn[..., :colours].any(axis=2))
        if self.values.colours:
            numbers = values[..., :3].astype(np.int64) @ np.array([65536, 256, 1])
            return np.where(values[..., 3] > 0, numbers, 0)
        if values.ndim == 3:
            if (values[..., :1] != values[..., :colours]).any():
                raise ImageError("it has colours, not values; state colours in the option values")
            values = values[..., 0]
        return values
