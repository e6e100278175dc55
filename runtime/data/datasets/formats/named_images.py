"""The images of a folder, found by the names that annotations have for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

from ....host.paths import has_folder
from ..file_rows import Note, fail
from ..source.image_index import AnyCase, by_portable_name, other_case
from ..source.image_names import IMAGES, inside, portable_name, without_extension
from ..source.listing import tree

__all__ = ["IMAGES", "NamedImages", "without_extension"]


class NamedImages:
    """All images below a folder, which is walked once.

    `suffix` is what follows the name of an annotation in the name of its image, with or without the image's extension:
    "_frontal" or "_frontal.png".
    """

    def __init__(self, folder: Path, suffix: str, notes: list[Note], names: Collection[str] | None = None) -> None:
        """Lists `folder`; one that does not exist is noted, and every image is then missing. names: of the images below
        it, None: the files with an extension of images."""
        self.folder, self.suffix, self.notes = folder, suffix, notes
        self._files: dict[str, Path] = {}
        self._stems: dict[str, list[str]] = defaultdict(list)
        self._last: dict[str, list[str]] = defaultdict(list)
        self._used: set[str] = set()
        if not has_folder(folder):
            notes.append(Note("no_images_folder", str(folder), folder, None, "the folder of the images does not exist"))
        start = len(str(folder)) + 1
        listed = (str(path)[start:] for path in tree(folder)) if names is None else names
        for name, on_disk in by_portable_name(listed, folder).items():
            stem = without_extension(name)
            self._files[name] = folder / on_disk
            if names is not None or stem != name:
                self._stems[stem].append(name)
        for stem in self._stems:
            self._last[stem.rpartition("/")[2]].append(stem)
        self._any_case = AnyCase(self._stems), AnyCase(self._last)

    def find(self, name: str, file: Path, row: int | None, other: str = "") -> Path:
        """The image that an annotation calls `name`, with or without folders and extension, or else `other`.

        A name without folders is also found in a subfolder. If the image does not exist, the path it should have.
        Raises DataError for a name that leads out of the folder, or that two images in subfolders have.
        """
        name = portable_name(name)
        wanted = without_extension(name) + self.suffix if self.suffix else name
        path = inside(self.folder, wanted, file, row)
        names = self._named(wanted, file, row) or (self._named(portable_name(other), file, row) if other else [])
        for stated in (wanted, other):
            if not names and stated and (names := self._in_other_case(portable_name(stated))):
                self.notes.append(other_case(stated, self._files[names[0]], file, row))
        if not names:
            return path if without_extension(wanted) != wanted else path.with_name(f"{path.name}.png")
        self._used.update(names)
        self._note_other(other, names[0], file, row)
        for second in names[1:]:
            text = f"there is also {self._files[second]}; the first is used"
            self.notes.append(Note("duplicate", without_extension(second), self._files[names[0]], None, text))
        return self._files[names[0]]

    def _named(self, name: str, file: Path, row: int | None) -> list[str]:
        """The files of this name, or of this name and any extension, the first to be used."""
        if name in self._files:
            return [name]
        stem = without_extension(name)
        if stem not in self._stems:
            others = self._last.get(stem.rpartition("/")[2], [])
            if len(others) > 1:
                text = f"'{name}' can be {others[0]} or {others[1]} in {self.folder}; name the folder too"
                raise fail(file, row, text)
            stem = others[0] if others else ""
        return self._by_rank(stem)

    def _note_other(self, other: str, used: str, file: Path, row: int | None) -> None:
        """Notes that `other` is the name of another image than the one that is used."""
        stem = without_extension(portable_name(other)).rpartition("/")[2]
        if stem in self._last and stem != without_extension(used).rpartition("/")[2]:
            text = f"it is called like the image {used}, but names {other} inside, which is there too; {used} is used"
            self.notes.append(Note("disagreement", without_extension(used), file, row, text))

    def _in_other_case(self, name: str) -> list[str]:
        """The files whose name differs from this one in upper and lower case alone, if these have one name."""
        stem = without_extension(name)
        full_names, last = self._any_case
        other = full_names.only(stem)
        if other is None and (end := last.only(stem.rpartition("/")[2])) and len(self._last[end]) == 1:
            other = self._last[end][0]
        return [] if other is None else self._by_rank(other)

    def _by_rank(self, stem: str) -> list[str]:
        return sorted(self._stems.get(stem, []), key=lambda name: _rank(name[len(stem) :]))

    def unused(self) -> Iterator[tuple[str, Path]]:
        """(name without extension, path) of the images that `find` did not return, in the order of their names."""
        for stem in sorted(self._stems):
            if not self._used.intersection(self._stems[stem]):
                yield stem, self._files[self._stems[stem][0]]


def _rank(extension: str) -> int:
    return IMAGES.index(extension.lower()) if extension else len(IMAGES)
