"""The images of a folder by their names: of one folder by file name, or of whole trees by stem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ....engines.errors import DataError
from ...host.paths import has_folder
from ..files import Note, fail
from .image_names import inside, portable_name
from .listing import is_hidden, tree

__all__ = ["ImageFolder", "ImageTree", "by_portable_name"]


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
        self.folder = folder
        self._names: Mapping[str, str] = {}
        try:
            listed = (path.name for path in folder.iterdir() if not is_hidden(path.name))
            self._names = by_portable_name(listed, folder)
        except (FileNotFoundError, NotADirectoryError):
            notes.append(Note("no_images_folder", str(folder), folder, None, "the folder of the images does not exist"))
        except OSError as error:
            raise DataError(f"The folder {folder} of the images cannot be listed: {error.strerror}.") from error

    def path(self, name: str, file: Path, row: int | None) -> Path:
        """The path of `name` inside the folder. Raises DataError for a name that points outside it."""
        path = inside(self.folder, name, file, row)
        on_disk = self._names.get(portable_name(name))
        return path if on_disk is None else self.folder / on_disk

    def find(self, stem: str, suffixes: Sequence[str], file: Path, row: int | None) -> Path:
        """The first existing `stem` + suffix; if none exists, the path with the first suffix. Raises DataError."""
        for suffix in suffixes:
            if portable_name(stem + suffix) in self._names:
                return self.path(stem + suffix, file, row)
        return self.path(stem + suffixes[0], file, row)


class ImageTree:
    """Images anywhere below some folders, found by file stem; the tree is walked once."""

    def __init__(self, folders: Sequence[Path], suffixes: Sequence[str], notes: list[Note]) -> None:
        """Lists all files with one of `suffixes`; of two with one stem the earlier suffix, then the earlier path wins.

        The second is noted as a duplicate, as is a folder that does not exist. Links to folders are followed.
        """
        self.folder, self._suffix = folders[0], suffixes[0]
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

    def stems(self) -> set[str]:
        """The stems of all images."""
        return set(self._paths)

    def find(self, stem: str, file: Path, row: int | None) -> Path:
        """The image named `stem`; if there is none, a path in the first folder. Raises DataError."""
        path = self._paths.get(portable_name(stem))
        return path if path is not None else inside(self.folder, stem + self._suffix, file, row)
