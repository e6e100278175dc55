"""The images of a folder by their names: of one folder by file name, or of whole trees by stem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from .....engines.errors import DataError
from ....host.paths import has_file, has_folder
from ..file_rows import Note, fail
from .image_names import inside, portable_name, stem_of
from .listing import is_hidden, tree


class AnyCase:
    """Names found in upper or lower case, as a file system of Windows or macOS finds them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    @cached_property
    def _folded(self) -> Mapping[str, str | None]:
        folded: dict[str, str | None] = {}
        for name in self._names:
            key = name.casefold()
            folded[key] = None if key in folded else name
        return folded

    def only(self, name: str) -> str | None:
        """The one name that differs from `name` in case alone; None if there is none, or several."""
        return self._folded.get(name.casefold())


def other_case(name: str, image: Path, file: Path, row: int | None) -> Note:
    """The note on an image that was found although its name has other letters than `name` in upper case."""
    text = f"'{name}' is the image {image.name}, whose name differs in upper and lower case"
    return Note("fallback", name, file, row, text)


def by_portable_name(names: Iterable[str], folder: Path) -> dict[str, str]:
    """`portable_name` -> the name on disk. Raises DataError for two files below `folder` that differ in form alone."""
    index: dict[str, str] = {}
    for name in names:
        other = index.setdefault(portable_name(name), name)
        if other != name:
            text = f"'{portable_name(name)}' is the name of two files, which differ in the form of their letters"
            raise fail(folder, None, f"{text}; rename one of them")
    return index


class ImageFolder:
    """The folder of a dataset's images: file names -> paths, by listing the folder once, not by one call per file."""

    def __init__(self, folder: Path, notes: list[Note]) -> None:
        """Lists `folder`; a folder that does not exist is noted, and every image is then missing."""
        self.folder, self._notes = folder, notes
        self._names: Mapping[str, str] = {}
        try:
            listed = (path.name for path in folder.iterdir() if not is_hidden(path.name))
            self._names = by_portable_name(listed, folder)
        except (FileNotFoundError, NotADirectoryError):
            notes.append(Note("no_images_folder", str(folder), folder, None, "the folder of the images does not exist"))
        except OSError as error:
            raise DataError(f"The folder {folder} of the images cannot be listed: {error.strerror}.") from error
        self._any_case = AnyCase(self._names)

    def named(self, name: str, suffixes: Sequence[str], file: Path, row: int | None) -> Path:
        """The image that a list calls `name`, with or without folders and extension: in the folder, else below it.

        If there is none, the path it should have in the folder. Raises DataError.
        """
        image = self.find(stem_of(name), suffixes, file, row)
        if "/" not in portable_name(name) or portable_name(image.name) in self._names:
            return image
        parts = Path(portable_name(name)).parts
        below = self.folder.joinpath(*parts) if ".." not in parts else image
        return below if below.is_relative_to(self.folder) and has_file(below) else image

    def path(self, name: str, file: Path, row: int | None) -> Path:
        """The path of `name` inside the folder. Raises DataError for a name that points outside it."""
        portable = portable_name(name)
        on_disk = self._names.get(portable) or self._in_other_case(portable, file, row)
        return inside(self.folder, name, file, row) if on_disk is None else self.folder / on_disk

    def find(self, stem: str, suffixes: Sequence[str], file: Path, row: int | None) -> Path:
        """The first existing `stem` + suffix; if none exists, the path with the first suffix. Raises DataError."""
        portable = portable_name(stem)
        for suffix in suffixes:
            on_disk = self._names.get(portable + suffix)
            if on_disk is not None:
                return self.folder / on_disk
        for suffix in suffixes:
            on_disk = self._in_other_case(portable + suffix, file, row)
            if on_disk is not None:
                return self.folder / on_disk
        return inside(self.folder, stem + suffixes[0], file, row)

    def _in_other_case(self, portable: str, file: Path, row: int | None) -> str | None:
        """The name on disk that differs from `portable` in case alone, which is noted."""
        other = self._any_case.only(portable)
        if other is None:
            return None
        self._notes.append(other_case(portable, self.folder / other, file, row))
        return self._names[other]


class ImageTree:
    """Images anywhere below some folders, found by file stem; the tree is walked once."""

    def __init__(self, folders: Sequence[Path], suffixes: Sequence[str], notes: list[Note]) -> None:
        """Lists all files with one of `suffixes`; of two with one stem the earlier suffix, then the earlier path wins.

        The second is noted as a duplicate, as is a folder that does not exist. Links to folders are followed.
        """
        self.folder, self._suffix, self._notes = folders[0], suffixes[0], notes
        self._paths: dict[str, Path] = {}
        ranks: dict[str, int] = {}
        rank = {suffix: order for order, suffix in enumerate(suffixes)}
        for folder in folders:
            if not has_folder(folder):
                text = "the folder of the images does not exist"
                notes.append(Note("no_images_folder", str(folder), folder, None, text))
            for path in tree(folder):
                stem, dot, suffix = portable_name(path.name).rpartition(".")
                order = rank.get((dot + suffix).lower())
                if order is None or not stem:
                    continue
                if stem in ranks and ranks[stem] == order:
                    text = f"there is also {path}; the first is used"
                    notes.append(Note("duplicate", stem, self._paths[stem], None, text))
                elif order < ranks.get(stem, len(rank)):
                    self._paths[stem], ranks[stem] = path, order
        self._any_case = AnyCase(self._paths)

    def stems(self) -> set[str]:
        """The stems of all images."""
        return set(self._paths)

    def find(self, stem: str, file: Path, row: int | None) -> Path:
        """The image named `stem`; if there is none, a path in the first folder. Raises DataError."""
        portable = portable_name(stem)
        if portable not in self._paths and (other := self._any_case.only(portable)):
            self._notes.append(other_case(stem, self._paths[other], file, row))
            portable = other
        path = self._paths.get(portable)
        return path if path is not None else inside(self.folder, stem + self._suffix, file, row)
