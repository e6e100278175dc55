"""The run directory, open for writing: run.json (what was run, on what, and the state of every cell) and cells/."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

from ...engines.errors import ConfigError, RunError
from ...engines.file_names import joined, plain_stem, unique_stem
from ...engines.strict_json import checksum_of
from ...engines.visible_text import visible_text
from ..host.machine_record import code_version, describe_machine
from .folder_lock import LOCK_FILE, lock_folder
from .run_json import RUN_FILE, RUN_SCHEMA, read_run, store_run
from .runs.shards import is_shard_folder
from .storage import CellFiles, is_draft, remove_drafts, result_fault


class LockedFolder(ABC):
    """A folder whose cells/ one process at a time writes.

    Opening raises RunError when the folder holds something else, or another process has it open. Derived classes say
    what it is: `file`, which records its content, the words for the folder and its `writer`, and the names beside it.
    """

    file: ClassVar[str]
    schema: ClassVar[int]
    kind: ClassVar[str]
    writer: ClassVar[str]
    ours: ClassVar[tuple[str, ...]]
    made_later: ClassVar[tuple[str, ...]] = ()
    _constants: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells = path / "cells"
        self._lock: IO[str] | None = None
        self._data: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._check_place()
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(self.path)
        except OSError as error:
            raise RunError(
                f"The {self.kind} directory {self.path} cannot be written: {error.strerror}; choose another --out."
            ) from error
        if self._lock is None:
            raise RunError(f"Another {self.writer} is writing to {self.path}; wait for it, or choose another --out.")
        try:
            for folder in (self.path, self.cells, *self.cells.glob("*.parts")):
                remove_drafts(folder)
            if (self.path / self.file).is_file():
                self._data = self._read()
        except RunError:
            self._lock.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def keep_traceback(self, model: str, dataset: str) -> Path:
        """Writes the traceback of the current exception to errors/, where that is possible; returns the file's path."""
        note = self.path / "errors" / f"{unique_stem(joined(model, dataset))}.txt"
        with suppress(OSError):
            note.parent.mkdir(exist_ok=True)
            note.write_text(visible_text(traceback.format_exc()), encoding="utf-8")
        return note

    def begin(self, config: Mapping[str, Any]) -> None:
        """Records the configuration of this invocation. Raises RunError.

        `file` is written only if it differs from what it holds in more than the time: a run in which every cell is
        reused leaves it, and so a report that states it, as they are.
        """
        begun = {
            "schema": self.schema,
            "created": self._data.get("created", now()),
            "updated": self._data.get("updated"),
            "code_version": code_version(),
            "machine": describe_machine(),
            **self._constants,
            "config": dict(config),
            "cells": self._data.get("cells", {}),
        }
        changed = checksum_of(begun) != checksum_of(self._data)
        self._data = begun
        if changed:
            self.save()

    @abstractmethod
    def save(self) -> None:
        """Writes `file`, whole or not at all, with the time as `updated`. Raises RunError."""

    @abstractmethod
    def _read(self) -> dict[str, Any]:
        """What `file` holds. Raises RunError when it is damaged."""

    def _check_place(self) -> None:
        if not self.path.exists() or (self.path / self.file).is_file():
            return
        # The file may have been deleted because it was damaged: folders made from its results are allowed.
        known = (*self.ours, *self.made_later) if (self.path / "cells").is_dir() else self.ours
        if not self.path.is_dir() or any(
            item.name not in known and not is_shard_folder(item.name) and not is_draft(item.name)
            for item in self.path.iterdir()
        ):
            raise RunError(
                f"{self.path} exists and is no {self.kind} directory; choose an empty or new folder with --out."
            )


class RunDirectory(LockedFolder):
    """A run directory open for writing, by one process at a time."""

    file, schema = RUN_FILE, RUN_SCHEMA
    kind, writer = "run", "evaluation"
    ours = (LOCK_FILE, "cells", "images", "prepared")
    made_later = ("report", "studies", "errors")  # names that have a meaning only next to results
    _constants: ClassVar[Mapping[str, Any]] = {"seeds": []}  # no random numbers: baseline:chance is drawn by a hash

    def _read(self) -> dict[str, Any]:
        return read_run(self.path)

    def cell(self, model: str, dataset: str) -> dict[str, Any] | None:
        """The entry of a cell in run.json; None when it was never started."""
        found = self._data["cells"].get(joined(model, dataset))
        return dict(found) if isinstance(found, dict) else None

    def set_cell(self, model: str, dataset: str, state: str, **details: Any) -> None:
        """Replaces a cell's entry and writes run.json. Raises RunError."""
        entry = {"model": model, "dataset": dataset, "state": state, **details, "updated": now()}
        self._data["cells"][joined(model, dataset)] = entry
        self.save()

    def check_model(self, model: str, variant_of: str | None) -> None:
        """Raises ConfigError if the name is that of another model here: MODEL@SET can also be the name of a folder.
        variant_of: the bundle whose prompt set it is."""
        for entry in self._data["cells"].values():
            if entry.get("model") == model and "key" in entry and entry.get("variant_of") != variant_of:
                one, other = (
                    f"a prompt set of the bundle {bundle}" if bundle else "a model of its own"
                    for bundle in (entry.get("variant_of"), variant_of)
                )
                raise ConfigError(
                    f"'{model}' is {one} in {self.path}, and {other} here; rename the model, or choose another folder "
                    "with --out."
                )

    def give_up(self, model: str, dataset: str, state: str, reason: str) -> bool:
        """Records that a cell was not computed, and returns whether it has a finished result that is kept.

        `state` is `failed` or `skipped`. A finished cell whose file exists is kept, and its entry gets this as
        `last_attempt`. Raises RunError.
        """
        entry = self.cell(model, dataset)
        if entry is None or entry["state"] != "done" or result_fault(self.path / entry["file"], entry["key"]):
            self.set_cell(model, dataset, state, reason=reason)
            return False
        entry["last_attempt"] = {"state": state, "reason": reason, "at": now()}
        self._data["cells"][joined(model, dataset)] = entry
        self.save()
        return True

    def forget_attempt(self, model: str, dataset: str) -> None:
        """Removes the entry `last_attempt` of `give_up`: the latest attempt succeeded. Raises RunError."""
        if self._data["cells"][joined(model, dataset)].pop("last_attempt", None) is not None:
            self.save()

    def forget(self, cells: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Removes the entries of cells, (model, dataset), and writes run.json; returns the other entries. Raises
        RunError."""
        for cell in cells:
            self._data["cells"].pop(joined(*cell), None)
        self.save()
        return list(self._data["cells"].values())

    def save(self) -> None:
        self._data["updated"] = now()
        store_run(self.path, self._data)

    def files(self, model: str, dataset: str, key: str) -> CellFiles:
        """The files of the cell with content key `key`."""
        return CellFiles(self.cells, plain_stem(model, dataset), key)


def now() -> str:
    """The time, as files state it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
