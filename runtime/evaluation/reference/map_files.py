"""Reads the user's saliency maps: a folder with one map for each (case, finding).

A map has one of these names; spaces in a finding are spaces or underscores:

    <case>/<finding>.npy        <case>_<finding>.npy        <case>_<finding>_map.npy (CheXlocalize, in any subfolder)
    <case>.npz                  one array for each finding, by its name

It is a `.npy` file, an `.npz` file with one array, or a grey PNG of 8 or 16 bits; two-dimensional, of any size and
scale, and covers the whole image. Pickles are not read, because reading a pickle can run code.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ConfigError, DataError, ImageError
from ...host.paths import has_file, has_folder

if TYPE_CHECKING:
    from ...datasets.base import Case

__all__ = ["KEPT_CELLS", "KEPT_SIDE", "PREFIX", "MapFile", "MapFolder", "split_maps"]

PREFIX = "maps:"
KEPT_SIDE = 64
KEPT_CELLS = KEPT_SIDE * KEPT_SIDE  # larger maps would take more space in a result than all other data
_SUFFIXES = (".npy", ".npz", ".png")


@dataclass(frozen=True)
class MapFile:
    """The location of a map: a file and a member of an archive. `shape`: (h, w); `problem`: why it cannot be read."""

    path: Path
    member: str | None = None
    shape: tuple[int, int] = (0, 0)
    problem: str = ""

    def read(self) -> NDArray[np.float32]:
        """float32 [h, w]. Raises ImageError."""
        if self.problem:
            raise ImageError(f"{self.path} cannot be read: {self.problem}.")
        try:
            if _kind(self.path) == ".png":
                values = _read_png(self.path)
            else:
                with _opened(self.path, self.member) as stream:
                    values = np.lib.format.read_array(stream, allow_pickle=False)
            with np.errstate(over="ignore"):  # a value that overflows becomes infinite, and the map is degenerate
                return np.ascontiguousarray(values.reshape(self.shape), np.float32)
        except ImageError:
            raise
        # zipfile, NumPy and Pillow can raise any exception on a damaged file.
        except Exception as error:
            raise ImageError(f"{self.path} cannot be read: it is damaged ({error}).") from error


class MapFolder:
    """The maps in `folder`, found by case and finding. Raises ConfigError when there is no such folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not has_folder(folder):
            raise ConfigError(f"The folder {folder} of {PREFIX}{folder} does not exist; give the folder of the maps.")

    @property
    def name(self) -> str:
        """The model name of the maps in a run."""
        return PREFIX + (self.folder.name or self.folder.resolve().name)

    @cached_property
    def digest(self) -> str:
        """A hash of the names and contents of all files of maps."""
        sha = hashlib.sha256()
        for path in self._paths:
            try:
                with path.open("rb") as stream:
                    content = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                content = ""  # its cases are unreadable, until it can be read
            sha.update(f"{self._key(path)}\0{content}\n".encode(errors="surrogatepass"))
        return sha.hexdigest()

    def find(self, case_id: str, finding: str) -> MapFile | None:
        """The map of a case and finding; None if the folder has none."""
        for name in (finding, finding.replace(" ", "_")):
            for key in (f"{case_id}/{name}", f"{case_id}_{name}_map", f"{case_id}_{name}"):
                if key in self._files:
                    return self._files[key]
        whole = self._files.get(case_id)
        return whole if whole is not None and whole.problem else None

    def findings(self, cases: Iterable[Case], classes: Iterable[str]) -> list[str]:
        """The `classes` for which any case has a map."""
        known = [case.case_id for case in cases]
        return [name for name in classes if any(self.find(case, name) is not None for case in known)]

    def size(self, cases: Iterable[Case], findings: Iterable[str]) -> tuple[int, int] | None:
        """Height and width of the maps of regions if all are equal, else None."""
        wanted = list(findings)
        found = (self.find(case.case_id, name) for case in cases for name in wanted if name in case.regions)
        shapes = {item.shape for item in found if item is not None and not item.problem}
        return shapes.pop() if len(shapes) == 1 else None

    @cached_property
    def _paths(self) -> list[Path]:
        found = sorted(path for path in self.folder.rglob("*") if _kind(path) in _SUFFIXES and has_file(path))
        if not found:
            pickled = sum(1 for _ in self.folder.rglob("*.pkl"))
            more = f"; it has {pickled} pickles, which are not read: save their maps with numpy.save" if pickled else ""
            raise DataError(f"{self.folder} holds no maps, no .npy, .npz or .png files{more}.")
        return found

    @cached_property
    def _files(self) -> Mapping[str, MapFile]:
        files: dict[str, MapFile] = {}
        for path in self._paths:
            stem = self._key(path).rpartition(".")[0]
            # CheXlocalize file names are complete; the subfolder has no meaning.
            for key, item in _described(path.stem if stem.endswith("_map") else stem, path):
                if key in files:
                    raise DataError(f"{path} and {files[key].path} both hold the map of '{key}'; keep one of them.")
                files[key] = item
        return files

    def _key(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def split_maps(models: Iterable[str]) -> tuple[list[MapFolder], list[str]]:
    """The folders of maps among the names of models, and the other names. Raises ConfigError."""
    names = list(models)
    chosen = dict.fromkeys(name for name in names if name.startswith(PREFIX))
    found: dict[str, MapFolder] = {}
    for text in chosen:
        folder = MapFolder(Path(text.removeprefix(PREFIX)).expanduser())
        if folder.name in found:
            raise ConfigError(
                f"Two folders of maps are called '{folder.name}': {found[folder.name].folder} and {folder.folder}; "
                "rename one of them."
            )
        found[folder.name] = folder
    return list(found.values()), [name for name in names if name not in chosen]


def _kind(path: Path) -> str:
    return path.suffix.lower()


def _described(key: str, path: Path) -> Iterator[tuple[str, MapFile]]:
    """The maps in a file: by its name, and in an archive by its name and that of each array."""
    try:
        if _kind(path) == ".png":
            from ...images.png_jpeg import check_pixels
            from ...images.size import image_size

            size = image_size(path)
            check_pixels(size)
            yield key, MapFile(path, None, size)
        elif _kind(path) == ".npy":
            yield key, _array(path, None)
        else:
            with zipfile.ZipFile(path) as archive:
                members = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(members) == 1:
                yield key, _array(path, members[0])
            for member in members:
                yield f"{key}/{member.removesuffix('.npy')}", _array(path, member)
    except Exception as error:  # as above
        yield key, MapFile(path, problem=f"it is damaged or no file of this kind ({error})")


def _array(path: Path, member: str | None) -> MapFile:
    """Reads the header of an array; does not allocate the size that it gives."""
    from ...images.png_jpeg import check_pixels

    try:
        with _opened(path, member) as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, kind = read(stream)
        sides = [side for side in shape if side != 1]
        sides = list(shape[-2:]) if len(sides) < 2 <= len(shape) else sides
        if len(sides) != 2 or sides[0] * sides[1] != math.prod(shape):
            return MapFile(path, member, problem=f"its array has the shape {shape}, a map has two dimensions")
        if kind.kind not in "fiub":
            return MapFile(path, member, problem=f"its array is of the type {kind}, a map holds real numbers")
        check_pixels((sides[0], sides[1]))
    except Exception as error:  # as above
        return MapFile(path, member, problem=f"it is damaged or no file of this kind ({error})")
    return MapFile(path, member, (sides[0], sides[1]))


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    if member is None:
        with path.open("rb") as stream:
            yield stream
    else:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            yield stream


def _read_png(path: Path) -> NDArray[np.integer]:
    from PIL import Image

    with Image.open(path, formats=("PNG",)) as image:
        if image.mode not in ("L", "I", "I;16", "I;16B"):
            raise ImageError(
                f"{path} cannot be read: its pixels are of the kind '{image.mode}'; a map is grey, not coloured."
            )
        return np.asarray(image)
