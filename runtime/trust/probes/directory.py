"""The trust directory: trust.json, the rows of each probe in cells/, and tables beside them.

It is no run directory: rows of changed images and weights must never stand among those of an evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....engines.errors import RunError
from ....engines.file_names import joined, plain_stem
from ....engines.strict_json import CHECKSUM, checksum_of
from ...results.folder_lock import LOCK_FILE
from ...results.run_directory import LockedFolder, now
from ...results.storage import KEY_FIELD, CellFiles, write_json
from .probe import IDENTITY

if TYPE_CHECKING:
    import pyarrow as pa

    from .probe_images import Row

TRUST_FILE: Final = "trust.json"
_SCHEMA: Final = 1
_AGAIN = "delete that file and run trust again: what is in cells/ is reused."


def read_trust(path: Path) -> dict[str, Any]:
    """The content of trust.json in the trust directory `path`. Raises RunError when there is none or it is damaged."""
    source = path / TRUST_FILE
    if not source.is_file():
        raise RunError(
            f"{path} is no trust directory: it holds no {TRUST_FILE}; make one with xbench-fast trust --out {path}."
        )
    try:
        data = json.loads(source.read_text(encoding="utf-8"))
        whole = isinstance(data, dict) and data.get(CHECKSUM) == checksum_of(data)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{source} cannot be read ({error}); {_AGAIN}") from error
    if not whole or not isinstance(data, dict):
        raise RunError(f"{source} is damaged: its checksum does not match; {_AGAIN}")
    if data.get("schema") != _SCHEMA:
        raise RunError(f"{source} was written by another version; use a new --out directory.")
    with suppress(KeyError, TypeError, AttributeError):  # readers of entries check them
        names = ("model", "dataset", "probe")
        data["cells"] = {joined(*(entry[name] for name in names)): entry for entry in data["cells"].values()}
    return data


class TrustDirectory(LockedFolder):
    """A trust directory open for writing, by one process at a time."""

    file, schema = TRUST_FILE, _SCHEMA
    kind, writer = "trust", "trust command"
    ours = (LOCK_FILE, "cells")
    made_later = ("trust.csv", "trust.txt", "errors")

    def _read(self) -> dict[str, Any]:
        return read_trust(self.path)

    def entry(self, model: str, dataset: str, probe: str) -> dict[str, Any]:
        """What is recorded of a cell; empty when it was never started."""
        return dict(self._data["cells"].get(joined(model, dataset, probe), {}))

    def record(self, entry: Mapping[str, Any]) -> None:
        """Replaces the entry of a cell, which names `model`, `dataset` and `probe`. Raises RunError."""
        name = joined(entry["model"], entry["dataset"], entry["probe"])
        self._data["cells"][name] = {**entry, "updated": now()}
        self.save()

    def give_up(self, model: str, dataset: str, probe: str, reason: str) -> None:
        """Records that a cell failed; an earlier result that is finished is kept. Raises RunError."""
        if self.entry(model, dataset, probe).get("state") != "done":
            self.record({"model": model, "dataset": dataset, "probe": probe, "state": "failed", "reason": reason})

    def save(self) -> None:
        self._data["updated"] = now()
        body = {name: value for name, value in self._data.items() if name != CHECKSUM}
        write_json(self.path / TRUST_FILE, {**body, CHECKSUM: checksum_of(body)})

    def files(self, model: str, dataset: str, probe: str, key: str) -> CellFiles:
        """The files of the cell with this content key."""
        return CellFiles(self.cells, plain_stem(model, dataset, probe), key)


def rows_as_table(columns: Mapping[str, str], rows: Iterable[Row], key: str) -> pa.Table:
    """The rows of a probe with these columns, after `IDENTITY`, as a table whose footer has the cell's key. A value
    that a row does not have, or that is NaN, is null."""
    import pyarrow as pa

    fields = [pa.field(name, pa.type_for_alias(alias)) for name, alias in {**IDENTITY, **columns}.items()]
    schema = pa.schema(fields, {KEY_FIELD: key})
    return pa.Table.from_pylist([{name: _plain(value) for name, value in row.items()} for row in rows], schema)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value
