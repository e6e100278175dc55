"""Which image files the rows of a result were made from: the hashes in its rows, and what is known of the files now.

A run directory keeps `images/<dataset>.parquet`: the state of each image file when it was read, and its hash. A file
whose state is unchanged need not be read again. The index can be deleted: the files are then read to answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.datasets.dataset import Case
from ..data.images.contents import Contents, FileState
from ..data.images.decode import decode_ahead
from ..host.machine_record import usable_cores
from .cell_key import relative_paths
from .schema import WITHOUT_MODEL
from .storage import CellFiles, write_table
from .stored_maps import image_hashes, index_file, whole_table

if TYPE_CHECKING:
    import pyarrow as pa


class ImageIndex:
    """The index of the images of one dataset, below `root`, in the run directory `run`."""

    def __init__(self, run: Path, dataset: str, root: Path) -> None:
        self._run, self._dataset = run, dataset
        self._root = root

    def load(self, contents: Contents) -> None:
        """Enters what the index knows; an index that is missing or damaged knows nothing."""
        schema = _schema()
        table = whole_table(index_file(self._run, self._dataset), schema.names, needed=True)
        if table is None or table.schema.types != schema.types:
            return
        if any(table[field.name].null_count for field in schema if not field.nullable):
            return
        columns = (table[name].to_pylist() for name in schema.names)
        for path, *state, content, height, width in zip(*columns, strict=True):
            size = None if height is None or width is None else (height, width)
            contents.known[self._root / path] = (*state, content, size)
        contents.news = False

    def save(self, contents: Contents) -> None:
        """Writes the index if there is news. Raises RunError."""
        if not contents.news:
            return
        import pyarrow as pa

        contents.news = False
        known = sorted(contents.known.items())
        rows = [
            (path, *state, content, *(size or (None, None)))
            for path, (_, (*state, content, size)) in zip(
                relative_paths((file for file, _ in known), self._root), known, strict=True
            )
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in _schema().names]
        table = pa.Table.from_pydict(dict(zip(_schema().names, columns, strict=True)), _schema())
        write_table(index_file(self._run, self._dataset), [table], _schema())


def rests_on_images(entry: Mapping[str, Any]) -> bool:
    """Whether the rows of a cell of run.json depend on the content of images: not those of `WITHOUT_MODEL`."""
    return entry.get("weights") not in WITHOUT_MODEL


def other_image(file: Path, cases: Sequence[Case], contents: Contents, *, whole: bool = True) -> str | None:
    """The id of the first case whose image is not the one that its rows in `file` were made from, or None.

    whole: the rows depend on the content of the images, otherwise on their sizes only, where they are not null.
    """
    kept = image_hashes(file)
    now = contents.hash_now if whole else contents.size_hash_now
    paths = {case.image: case for case in cases if kept.get(case.case_id) is not None}
    unknown = [path for path in paths if not contents.is_known(path, size=not whole)]
    workers = usable_cores()
    with closing(decode_ahead(now, unknown, workers, 4 * workers)) as hashes:
        for _ in hashes:  # `contents` keeps them
            pass
    return next((case.case_id for case in cases if kept.get(case.case_id) not in (None, now(case.image))), None)


def drop_parts_of_other_images(
    files: CellFiles, cases: Sequence[Case], chunk: int, contents: Contents, *, whole: bool
) -> None:
    """Deletes the result and the parts of a cell that were made from other images than those there now."""
    for index in range(-(-len(cases) // chunk)):
        if files.has_part(index):
            part = cases[index * chunk : (index + 1) * chunk]
            if other_image(files.part(index), part, contents, whole=whole) is not None:
                files.part(index).unlink(missing_ok=True)
    if files.final.is_file() and other_image(files.final, cases, contents, whole=whole) is not None:
        files.final.unlink(missing_ok=True)


def same_images(file: Path, parts: Collection[Path]) -> bool:
    """Whether the rows in `file` were made from the same images as those in `parts` together."""
    together: dict[str, bytes | None] = {}
    for part in parts:
        together |= image_hashes(part)
    return image_hashes(file) == together


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.uint64())
    state = [pa.field(name, kind, nullable=False) for name, kind in zip(FileState._fields, kinds, strict=True)]
    rest = [pa.field("content", pa.binary()), pa.field("height", pa.int32()), pa.field("width", pa.int32())]
    return pa.schema([pa.field("path", pa.string(), nullable=False), *state, *rest])
