"""The user's saliency maps as a model: a folder with one map for each (case, finding).

A map has one of these names, whose separators and letters may differ from the dataset's (`map_names`):

    <case>/<finding>.npy        <case>_<finding>.npy        <case>_<finding>_map.npy (CheXlocalize)
    <case>.npz                  one array for each finding, by its name

It is a `.npy` file, an `.npz` file with one array, or a grey PNG of 8 or 16 bits; two-dimensional, of any size and
scale, and covers the whole image. Pickles are not read, because reading a pickle can run code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ....engines.errors import ConfigError, DataError
from ...data.datasets.source.listing import tree
from ...host.paths import has_file, has_folder
from .map_arrays import SUFFIXES, MapFile, maps_in
from .map_names import NamedMaps

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case

PREFIX = "maps:"
KEPT_SIDE = 64
KEPT_CELLS = KEPT_SIDE * KEPT_SIDE  # larger maps would take more space in a result than all other data


class MapFolder:
    """The maps in `folder`. Raises ConfigError when the folder does not exist."""

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
        for path, content in self._contents.items():
            sha.update(f"{self._key(path)}\0{content}\n".encode(errors="surrogatepass"))
        return sha.hexdigest()

    @cached_property
    def _contents(self) -> dict[Path, str]:
        """File -> hash of its content, empty where it cannot be read: its cases are unreadable, until it can be."""
        contents = dict.fromkeys(self._paths, "")
        for path in contents:
            with suppress(OSError), path.open("rb") as stream:
                contents[path] = hashlib.file_digest(stream, "sha256").hexdigest()
        return contents

    def of(self, cases: Sequence[Case], classes: Sequence[str]) -> CaseMaps:
        """The maps of the pairs of a dataset. Raises DataError if no map is of one, or a name means two."""
        return CaseMaps(self, NamedMaps(self._listed(), cases, classes), cases, classes)

    def _listed(self) -> Iterator[Sequence[tuple[str, MapFile]]]:
        for path, content in self._contents.items():
            key = self._key(path).rpartition(".")[0]
            yield (list(maps_in(key, path)) if content else [(key, MapFile(path, problem="it was not readable"))])

    @cached_property
    def _paths(self) -> list[Path]:
        below = [path for path in tree(self.folder) if has_file(path)]
        paths = sorted(path for path in below if path.suffix.lower() in SUFFIXES)
        if not paths:
            pickled = sum(path.suffix.lower() == ".pkl" for path in below)
            more = f"; it has {pickled} pickles, which are not read: save their maps with numpy.save" if pickled else ""
            raise DataError(f"{self.folder} holds no maps, no .npy, .npz or .png files{more}.")
        return paths

    def _key(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


class CaseMaps:
    """The maps of a folder, found by case and finding of a dataset."""

    def __init__(self, folder: MapFolder, named: NamedMaps, cases: Sequence[Case], classes: Sequence[str]) -> None:
        self.folder, self._named, self._classes = folder, named, classes
        self._example = f"{cases[0].case_id}/{classes[0].replace('/', '_')}.npy" if cases and classes else ""
        if not named.fits:
            raise DataError(
                f"None of the {named.count} maps in {folder.folder} is of a case and a class of the dataset: the first "
                f"is called '{named.unfit[0]}', one of the dataset is called '{self._example}'."
            )

    @property
    def description(self) -> str:
        """What the rows depend on: all files, and the pairs that they are of."""
        folder, held = self.folder.folder, self._named.pairs.items()
        pairs = sorted((*pair, item.path.relative_to(folder).as_posix(), item.member or "") for pair, item in held)
        return hashlib.sha256(f"{self.folder.digest} {pairs}".encode(errors="surrogatepass")).hexdigest()

    @property
    def unused(self) -> str:
        """A sentence about maps of no case and class; empty if there are none."""
        unfit = self._named.unfit
        if not unfit:
            return ""
        return (
            f"{len(unfit)} of {self._named.count} maps in {self.folder.folder} are of no case and class of the dataset "
            f"and are not used, '{unfit[0]}' first; one of the dataset is called '{self._example}'"
        )

    def find(self, case_id: str, finding: str) -> MapFile | None:
        """The map of a case and finding; None if the folder has none."""
        return self._named.find(case_id, finding)

    def findings(self, cases: Iterable[Case]) -> list[str]:
        """The classes for which any of these cases has a map."""
        case_ids = [case.case_id for case in cases]
        return [name for name in self._classes if any(self.find(case, name) is not None for case in case_ids)]

    def size(self, cases: Iterable[Case], findings: Iterable[str]) -> tuple[int, int] | None:
        """Height and width of the maps of regions if all are equal, else None."""
        wanted = list(findings)
        map_files = (self.find(case.case_id, name) for case in cases for name in wanted if name in case.regions)
        shapes = {item.shape for item in map_files if item is not None and not item.problem}
        return shapes.pop() if len(shapes) == 1 else None


def split_maps(models: Iterable[str]) -> tuple[list[MapFolder], list[str]]:
    """The folders of maps among the names of models, and the other names. Raises ConfigError."""
    names = list(models)
    chosen = dict.fromkeys(name for name in names if name.startswith(PREFIX))
    folders: dict[str, MapFolder] = {}
    for text in chosen:
        folder = MapFolder(Path(text.removeprefix(PREFIX)).expanduser())
        if folder.name in folders:
            raise ConfigError(
                f"Two folders of maps are called '{folder.name}': {folders[folder.name].folder} and {folder.folder}; "
                "rename one of them."
            )
        folders[folder.name] = folder
    return list(folders.values()), [name for name in names if name not in chosen]
