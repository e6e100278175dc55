"""Which files of a folder are masks of which image and class, and which are not read (docs/formats.md §9.8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

from ..file_rows import Note
from ..masks.mask_names import first_name, note_others, seems_further
from ..source.listing import tree
from .name_patterns import NamePattern
from .named_images import without_extension

Mask = tuple[Path, str, str]
"""A file, the name of its image, and its class, empty where its values are the classes."""


class MaskListing:
    """The masks below a folder by the form of their names, further masks of an image included.

    files: path -> name below the folder without the form's extension, of the files with this extension. images: the
    folder of the images, and what their names have after the names of masks. classes: the stated ones.
    """

    def __init__(
        self,
        folder: Path,
        form: NamePattern,
        files: Mapping[Path, str],
        images: tuple[Path, str],
        classes: Collection[str],
    ) -> None:
        self._form, self._images, self._classes = form, images, classes
        self._start = len(str(folder)) + 1
        self._ending = form.extension[form.extension.find(".") :] if "." in form.extension else ""
        aside = images[0] if images[0] != folder and images[0].is_relative_to(folder) else None
        named = {path: form.read(name + form.extension) for path, name in files.items()}
        self._direct = {pair for pair in named.values() if pair}
        self._further: list[Path] = []
        self._others: list[Path] = []
        self.masks: list[Mask] = []
        seen: set[tuple[str, str]] = set()
        self.joined: list[Path] = []
        for path in tree(folder):
            if aside is not None and path.is_relative_to(aside):
                continue
            pair = self._pair(path, named.get(path))
            if pair is None:
                self._others.append(path)
                continue
            self.masks.append((path, *pair))
            if pair in seen:
                self.joined.append(path)
            seen.add(pair)
        self._add_further()

    def notes(self, read: Collection[Path]) -> list[Note]:
        """The notes about files that are joined or not read; `read`: the files that the reader has read."""
        notes: list[Note] = []
        note_others([path for path in self._others if path not in read], f"another form than {self._form.text}", notes)
        for code, paths, text in (
            ("joined_masks", self.joined, "further masks of an image and class, which are joined with the first"),
            (
                "unread_mask",
                self._further,
                "files that seem to be further masks of an image, and are not read (to join them, name them as in "
                "a_mask.png and a_mask_1.png, with _mask behind {image} in the option files)",
            ),
        ):
            if paths:
                notes.append(Note(code, str(paths[0]), paths[0], None, f"{text}: {len(paths)}"))
        if doubtful := self._doubtful():
            path, image, finding = doubtful[0]
            text = (
                "masks in a folder below their class folder, which does not exist among the images (if it, or another "
                "one, is the class, name it in the option files, such as train/{class}/{image}.png): "
                f"the first is of the class '{finding}' and the image '{image}': {len(doubtful)}"
            )
            notes.append(Note("class_folder", finding, path, None, text))
        return notes

    def _pair(self, path: Path, named: tuple[str, str] | None) -> tuple[str, str] | None:
        """Image and class of a file; None: it is not read."""
        first = self._first(path)
        if first is None or (named and named[1] in self._classes):
            return named
        if not self._form.ends_with_image:
            # The number follows the class or a text of the form, so it cannot belong to the name of an image.
            is_further = first in self._direct or (
                not (named and self._is_image(named[0])) and self._is_image(first[0])
            )
            return first if is_further else named
        if first in self._direct and named and not self._is_image(named[0]) and self._is_image(first[0]):
            # It may also be the mask of an image that is missing: nothing in the name tells.
            self._further.append(path)
            return None
        return named

    def _doubtful(self) -> list[Mask]:
        """The masks whose class may be another folder: only without its folders is their image there."""
        if "{class}/{image}" not in self._form.text:
            return []
        return [
            (path, image, finding)
            for path, image, finding in self.masks
            if "/" in image
            and finding not in self._classes
            and image.split("/")[-2].lower() not in self._folders
            and self._is_image(image)
        ]

    def _add_further(self) -> None:
        """Adds the files of another form whose names are a mask's name with more behind, which no rule joins."""
        first = {self._stem(path).lower() for path, _, _ in self.masks}
        listed = {*self._further}
        others = (path for path in self._others if path not in listed)
        self._further += [path for path in others if seems_further(self._stem(path), first)]

    def _stem(self, path: Path) -> str:
        """The name of a file below the folder without the type of masks, empty for a file of another type."""
        name = str(path)[self._start :]
        return name[: len(name) - len(self._ending)] if name.lower().endswith(self._ending) else ""

    def _first(self, path: Path) -> tuple[str, str] | None:
        """Image and class of the first mask of which this one seems to be a further one, by a number at the end."""
        form, ending = self._form, self._ending
        first = first_name(self._stem(path))
        if first is None or not (first + ending).lower().endswith(form.extension):
            return None
        return form.read((first + ending)[: -len(form.extension) or None] + form.extension)

    def _is_image(self, name: str) -> bool:
        wanted = name + without_extension(self._images[1])
        return wanted in self._image_names or wanted.rpartition("/")[2] in self._image_names

    @cached_property
    def _image_names(self) -> frozenset[str]:
        """The names of the images, with and without their folders."""
        start = len(str(self._images[0])) + 1
        names = [without_extension(str(path)[start:]) for path in tree(self._images[0])]
        return frozenset([*names, *(name.rpartition("/")[2] for name in names)])

    @cached_property
    def _folders(self) -> frozenset[str]:
        """The names of the folders of the images, in lower case."""
        return frozenset(folder.lower() for name in self._image_names for folder in name.split("/")[:-1])
