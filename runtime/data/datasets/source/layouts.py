"""Where annotations and images lie below the root of a dataset, in the layouts that tools write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .....engines.errors import DataError
from ....host.paths import has_folder
from ..file_rows import fail
from .image_names import portable_name
from .listing import entries, tree


@dataclass(frozen=True)
class Layout:
    """What a format calls its folders, in the order in which they are searched.

    annotations: below the root or below the folder of one part, such as train; extension: of the annotation files.
    images: the same; endings: what the names of images end with.
    """

    annotations: Sequence[str]
    extension: str
    images: Sequence[str]
    endings: Sequence[str]

    def annotation_folder(self, root: Path) -> Path:
        """The first of `annotations` that holds a file, else `root` where files lie next to images of the same name.

        Else the one part in which one of these is so, else the first of `annotations`. Raises DataError for several
        parts: a number over training and test images together means nothing.
        """
        for name in self.annotations:
            if self._holds(root / name, (self.extension,)):
                return root / name
        if self.beside_images(root):
            return root
        parts = [part for folder in _listed(root) if (part := self._of_part(folder))]
        if len(parts) > 1:
            names = ", ".join(part.relative_to(root).as_posix() for part in parts)
            text = f"it holds annotations in several folders: {names}; name one of them in the option annotations"
            raise fail(root, None, text)
        return parts[0] if parts else root / self.annotations[0]

    def image_folder(self, root: Path, annotations: Path) -> Path:
        """The folder of the images that belong to the folder of annotations.

        That of the same part: images/val for labels/val, train/images for train/labels. Else the first of `images` that
        exists, else the annotations' own folder where it holds images, else the first of `images`.
        """
        places = [root / name for name in self.images]
        if annotations.is_relative_to(root) and (inner := annotations.relative_to(root).parts):
            rest = inner[1:]
            below = [root.joinpath(name, *rest) for name in self.images if rest]
            places = [*below, *(annotations.parent / name for name in self.images), *places]
        folder_of_images = next((folder for folder in places if has_folder(folder)), None)
        if folder_of_images is None and self._holds(annotations, self.endings):
            return annotations
        return folder_of_images or root / self.images[0]

    def beside_images(self, folder: Path) -> bool:
        """Whether an annotation lies directly in `folder`, next to an image of the same name."""
        stems: dict[bool, set[str]] = {True: set(), False: set()}
        for path in _listed(folder):
            if path.suffix.lower() in (self.extension, *self.endings):
                stems[path.suffix.lower() == self.extension].add(portable_name(path.stem).casefold())
        return bool(stems[True] & stems[False])

    def _of_part(self, folder: Path) -> Path | None:
        places = (folder / name for name in self.annotations)
        inner = next((subfolder for subfolder in places if self._holds(subfolder, (self.extension,))), None)
        return inner or (folder if self.beside_images(folder) else None)

    @staticmethod
    def _holds(folder: Path, endings: Sequence[str]) -> bool:
        return any(path.name.lower().endswith(tuple(endings)) for path in tree(folder))


def _listed(folder: Path) -> list[Path]:
    try:
        return entries(folder)
    except OSError as error:
        raise DataError(
            f"The folder {folder} cannot be listed: {error.strerror}; give the right to read it."
        ) from error
