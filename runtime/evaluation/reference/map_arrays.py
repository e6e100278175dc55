"""Files of saliency maps: what each holds, by its header, and its values (docs/own-maps.md)."""

from __future__ import annotations

import math
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageAccessError, ImageError, RunError, is_of_the_machine, words_of

SUFFIXES = (".npy", ".npz", ".png")
_NUMBERS = "fiub"  # kinds of types

# NumPy parses a header with ast.literal_eval, and CPython (3.11.7 here) keeps one depth counter of all threads for it:
# a thread that comes in between gets the SystemError "AST constructor recursion depth mismatch" for an undamaged file.
# 1 of 60,000 reads in 4 threads failed so while garbage was collected (github.com/python/cpython/issues/106905).
_PARSING = threading.Lock()


@dataclass(frozen=True)
class MapFile:
    """The location of a map: a file and a member of an archive. `shape`: (h, w); `problem`: why it cannot be read."""

    path: Path
    member: str | None = None
    shape: tuple[int, int] = (0, 0)
    problem: str = ""

    def read(self) -> NDArray[np.float32]:
        """float32 [h, w]. Raises ImageError, and RunError as `maps_in`."""
        if self.problem:
            raise ImageError(f"{self.path} cannot be read: {self.problem}.")
        try:
            if _suffix(self.path) == ".png":
                values = _read_png(self.path)
            else:
                with _opened(self.path, self.member) as stream:
                    values = _values(stream)
            with np.errstate(over="ignore"):  # a value that overflows becomes infinite, and the map is degenerate
                return np.ascontiguousarray(values.reshape(self.shape), np.float32)
        except ImageError:
            raise
        # zipfile, NumPy and Pillow can raise any exception on a damaged file.
        except Exception as error:
            raise ImageError(f"{self.path} cannot be read: {_damage(self.path, error)}.") from error


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def maps_in(key: str, path: Path) -> Iterator[tuple[str, MapFile]]:
    """The maps in a file: by its name `key`, and in an archive by its name and the name of each array.

    Raises RunError where the machine does not give the file, which was read before for the key of the rows: rows that
    count its maps as damaged would be taken for rows of these contents ever after.
    """
    try:
        if _suffix(path) == ".png":
            from ...data.images.png_jpeg import check_pixels
            from ...data.images.size import image_size

            size = image_size(path)
            check_pixels(size)
            yield key, MapFile(path, None, size)
        elif _suffix(path) == ".npy":
            yield key, _array(path, None)
        else:
            with zipfile.ZipFile(path) as archive:
                members = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(members) == 1:
                yield key, _array(path, members[0])
            for member in members:
                yield f"{key}/{member.removesuffix('.npy')}", _array(path, member)
    except Exception as error:  # as above
        yield key, MapFile(path, problem=_damage(path, error))


def _damage(path: Path, error: Exception) -> str:
    """The problem of a file that a library refuses. Raises RunError as `maps_in`."""
    if isinstance(error, RunError):
        raise error
    if isinstance(error, ImageAccessError) or is_of_the_machine(error):
        raise RunError(
            f"{path} cannot be read on this machine at this time ({words_of(error)}); run the same command again."
        ) from error
    return f"it is damaged or no file of this kind ({words_of(error)})"


def _array(path: Path, member: str | None) -> MapFile:
    """Reads the header of an array; does not allocate the size that it gives."""
    from ...data.images.png_jpeg import check_pixels

    try:
        with _opened(path, member) as stream:
            shape, _, dtype = _header(stream)
        sides = [side for side in shape if side != 1]
        sides = list(shape[-2:]) if len(sides) < 2 <= len(shape) else sides
        if len(sides) != 2 or sides[0] * sides[1] != math.prod(shape):
            return MapFile(path, member, problem=f"its array has the shape {shape}, a map has two dimensions")
        if dtype.kind not in _NUMBERS:
            return MapFile(path, member, problem=f"its array is of the type {dtype}, a map holds real numbers")
        check_pixels((sides[0], sides[1]))
    except Exception as error:  # as above
        return MapFile(path, member, problem=_damage(path, error))
    return MapFile(path, member, (sides[0], sides[1]))


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the first index changes fastest, and type of an array whose file begins here."""
    with _PARSING:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(stream)


def _values(stream: IO[bytes]) -> NDArray[Any]:
    """The array whose file begins here; any exception if there is none. Objects would be unpickled and are refused."""
    shape, columns_first, dtype = _header(stream)
    if dtype.kind not in _NUMBERS:
        raise ValueError(f"its array is of the type {dtype}")
    values = np.frombuffer(stream.read(math.prod(shape) * dtype.itemsize), dtype)
    return values.reshape(shape, order="F" if columns_first else "C")


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
