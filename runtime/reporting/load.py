"""Result files -> arrays, one cell at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...metrics_gpu.counts import Counts
from ..evaluation.rundir import read_run
from ..evaluation.schema import THRESHOLD_COUNT
from ..evaluation.storage import stored_key

__all__ = ["CellRows", "Run", "load_run"]


@dataclass(frozen=True)
class CellRows:
    """One finished cell: its entry in run.json, images by status, and its rows as arrays.

    Of the N readable images: labels int8 [N, C], -1 where the dataset does not say; logits float32 [N, C]; negatives
    float32 [N, C], NaN where a class has no negative prompt. Of the P pairs with a region: counts, class_of intp [P]
    (index into `findings`) and rescued bool [P].
    """

    model: str
    dataset: str
    entry: Mapping[str, Any]
    cases: int
    missing: int
    unreadable: int
    findings: tuple[str, ...]
    labels: NDArray[np.int8]
    logits: NDArray[np.float32]
    negatives: NDArray[np.float32]
    counts: Counts
    class_of: NDArray[np.intp]
    rescued: NDArray[np.bool_]


class Run:
    """A run directory open for reading: `data` is run.json, `unfinished` says why a cell has no result."""

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self.path = path
        self.data = data
        self.unfinished: dict[tuple[str, str], str] = {}
        self._done: list[Mapping[str, Any]] = []
        for entry in data["cells"].values():
            reason = _why_not(path, entry)
            if reason is None:
                self._done.append(entry)
            else:
                self.unfinished[entry["model"], entry["dataset"]] = reason

    @property
    def models(self) -> list[str]:
        """All models of the run, in the order of the last configuration, then as they were run."""
        return self._ordered("model", self.data["config"].get("bundles", []))

    @property
    def datasets(self) -> list[str]:
        """All datasets of the run, in the order of the last configuration, then as they were run."""
        return self._ordered("dataset", self.data["config"].get("datasets", {}))

    def _ordered(self, kind: str, first: Iterable[str]) -> list[str]:
        found = dict.fromkeys(entry[kind] for entry in self.data["cells"].values())
        return list(dict.fromkeys([*(name for name in first if name in found), *found]))

    def cells(self) -> Iterator[CellRows]:
        """Finished cells, one in memory at a time. Raises RunError for a result file that cannot be read."""
        for entry in self._done:
            yield _read_cell(self.path / entry["file"], entry)


def load_run(path: Path) -> Run:
    """Opens a run directory. Raises RunError when it is none."""
    return Run(path, read_run(path))


def _why_not(path: Path, entry: Mapping[str, Any]) -> str | None:
    state = entry.get("state")
    if state in ("failed", "skipped"):
        return f"{state}: {entry.get('reason', 'no reason was noted')}"
    if state != "done":
        return "not finished; run the same eval command again"
    if stored_key(path / entry["file"]) != entry["key"]:
        return "its result file is missing or damaged; run the same eval command again"
    return None


def _read_cell(path: Path, entry: Mapping[str, Any]) -> CellRows:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path} cannot be read ({error}); run the same eval command again.") from error
    findings = tuple(entry["findings"])
    # Rows are written case by case, each with all findings in this order.
    if table.num_rows % len(findings) or table["finding"].to_pylist() != [*findings] * (
        table.num_rows // len(findings)
    ):
        raise RunError(
            f"{path} does not hold one row per case and finding; delete it and run the same eval command again."
        )
    status = table["status"].to_numpy()[:: len(findings)]
    rows = table.filter(pc.equal(table["status"], "ok"))
    pairs = rows.filter(rows["area"].is_valid())
    shape = (-1, len(findings))
    return CellRows(
        model=entry["model"],
        dataset=entry["dataset"],
        entry=entry,
        cases=len(status),
        missing=int((status == "missing").sum()),
        unreadable=int((status == "unreadable").sum()),
        findings=findings,
        labels=rows["label"].fill_null(-1).to_numpy().reshape(shape),
        logits=rows["logit"].to_numpy().reshape(shape),
        negatives=rows["logit_negative"].fill_null(float("nan")).to_numpy().reshape(shape),
        counts=Counts(
            area=_counts(pairs["area"]),
            overlap=_counts(pairs["overlap"]),
            region=pairs["region_area"].to_numpy(),
            argmax=pairs["argmax"].to_numpy(),
            hit=pairs["hit"].to_numpy(),
            degenerate=pairs["degenerate"].to_numpy(),
        ),
        class_of=np.array([findings.index(name) for name in pairs["finding"].to_pylist()], np.intp),
        rescued=pairs["rescued"].to_numpy(),
    )


def _counts(column: Any) -> NDArray[np.int32]:
    flat: NDArray[np.int32] = column.combine_chunks().flatten().to_numpy()
    return flat.reshape(-1, THRESHOLD_COUNT)
