"""Result files -> arrays of counts and scores, one cell at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...metrics_gpu.sweep.counts import Counts
from ..data.images.contents import ABSENT
from .folder_lock import has_writer
from .integrity import at_levels, fault_in_part, fault_in_table
from .run_json import read_run
from .schema import AGAIN, WITHOUT_MODEL, count_faults, read_parts, reading
from .storage import region_digests, result_fault

if TYPE_CHECKING:
    import pyarrow as pa

# `maps.load_maps` reads the maps and regions, which are most of a file's bytes.
_COLUMNS = (
    "case_id", "patient_id", "finding", "status", "label", "logit", "logit_negative", "region_area", "argmax", "hit",
    "degenerate", "sub_pixel", "region_fault", "area", "overlap",
)  # fmt: skip
_IMAGE = "image_hash"  # versions 2 and 3 lack it
_RUNNING = "An evaluation is writing to {} now: what it has not finished is missing; repeat this command when it ends."
_JOINED = ("named", "contents", "positive", "labels", "logits", "negatives", "counted", "sub_pixel")


@dataclass(frozen=True)
class CellRows:
    """One finished cell: its entry in run.json, images by status, and its rows as arrays.

    Of all cases: case_ids, and patients, a name for each case's patient; the case's own where none is known, and named,
    bool [cases], where one is; contents uint64 [cases, 2], the `image_hash` of the file that a model read, zeros where
    no model read it or the hash is not known; positive bool [cases, C], whether it has a finding by the truth: a label
    of 1, or a region. Of the N readable images: case_of intp [N] (index into `case_ids`); labels int8 [N, C], -1 if
    unknown; logits float32 [N, C]; negatives float32 [N, C], NaN where a class has no negative prompt. Of the P pairs
    with a region: counts, image_of intp [P] (index of the image, below N), class_of intp [P] (index into `findings`)
    and sub_pixel bool [P].
    faults: kind -> number of regions with a fault of this kind (docs/datasets.md §0.3), whether they count or not.
    protocol: the name of that the maps were swept by. boxed: whether the rows are of predicted boxes, which have no
    threshold. equalised: whether the model read images whose histogram was equalised. attempt: why a later attempt to
    evaluate the cell failed or was skipped, so that this result was kept; empty for none. read_truth: reads `truth`.
    """

    model: str
    dataset: str
    entry: Mapping[str, Any]
    cases: int
    missing: int
    unreadable: int
    findings: tuple[str, ...]
    case_ids: tuple[str, ...]
    patients: tuple[str, ...]
    named: NDArray[np.bool_]
    contents: NDArray[np.uint64]
    positive: NDArray[np.bool_]
    case_of: NDArray[np.intp]
    labels: NDArray[np.int8]
    logits: NDArray[np.float32]
    negatives: NDArray[np.float32]
    counts: Counts
    image_of: NDArray[np.intp]
    class_of: NDArray[np.intp]
    sub_pixel: NDArray[np.bool_]
    read_truth: Callable[[], NDArray[np.uint64]] = field(repr=False, compare=False)
    faults: Mapping[str, int] = field(default_factory=dict)
    protocol: str = "default"
    boxed: bool = False
    equalised: bool = False
    attempt: str = ""

    @cached_property
    def truth(self) -> NDArray[np.uint64]:
        """uint64 [P]: a digest of the region of each pair, read when it is first needed. Raises RunError."""
        return self.read_truth()

    @property
    def unnamed(self) -> int:
        """The number of cases whose patient is not known."""
        return int((~self.named).sum())

    @property
    def scored(self) -> bool:
        """Whether the model gives scores of labels; baselines, and maps and boxes from files, have none, nor have
        phrases."""
        if "phrases" in self.entry.get("ingredients", {}):
            return False
        return self.entry["weights"] not in WITHOUT_MODEL and self.logits.shape[1] > 0

    @property
    def limit(self) -> int | None:
        """The limit of the evaluation if it excluded cases. Older runs do not store the number of cases: there, a
        reached limit counts."""
        limit, every = self.entry["ingredients"].get("limit"), self.entry.get("dataset_cases")
        return limit if limit == self.cases and (every is None or limit < every) else None

    @property
    def view(self) -> str:
        """What was changed in every image (docs/datasets.md §0.9); empty: nothing."""
        return str(self.entry.get("view", ""))

    @property
    def tiles(self) -> str:
        """How every image was divided (docs/saliency.md §6); empty: not at all."""
        return str(self.entry.get("tiles", ""))


class StoredRun:
    """A run directory open for reading: `data` is run.json, `unfinished` says why a cell has no result, `running` is a
    sentence where an evaluation is writing there now, else empty.

    models, datasets: those with a cell that was begun, in the order of the last configuration, then as they were run.
    finished: (model, dataset) of every finished cell, in the order they were run. skipped: those of `unfinished` that
    were skipped: a model and a dataset that do not go together, or a name that was mistyped.
    """

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self.path = path
        self.data = data
        self.running = _RUNNING.format(path) if has_writer(path) else ""
        self.unfinished: dict[tuple[str, str], str] = {}
        self.skipped: dict[tuple[str, str], str] = {}
        self._done: dict[tuple[str, str], Mapping[str, Any]] = {}
        for entry in data["cells"].values():
            state, reason, again = entry.get("state"), "", "run the same eval command again"
            if state in ("failed", "skipped"):
                reason = f"{state}: {entry.get('reason', 'no reason was noted')}"
            elif state == "running" and self.running:
                reason = "being evaluated now"
            elif state != "done":
                reason = f"not finished; {again}"
            elif fault := result_fault(path / entry["file"], entry["key"]):
                reason = f"its result file {entry['file']} {fault}; {again}"
            if reason:
                self.unfinished[entry["model"], entry["dataset"]] = reason
                if state == "skipped":
                    self.skipped[entry["model"], entry["dataset"]] = reason.removeprefix("skipped: ")
            else:
                self._done[entry["model"], entry["dataset"]] = entry
        self.finished = [*self._done]
        begun = [entry for entry in data["cells"].values() if entry.get("state") != "skipped"]
        names = [dict.fromkeys(entry[kind] for entry in begun) for kind in ("model", "dataset")]
        first = (data["config"].get(key, ()) for key in ("bundles", "datasets"))
        self.models, self.datasets = (
            list(dict.fromkeys([*(name for name in told if name in found), *found]))
            for told, found in zip(first, names, strict=True)
        )

    def reader(self, dataset: str) -> str:
        """The name of the dataset's reader, empty if the run does not store it."""
        told = [entry.get("reader") for entry in self.data["cells"].values() if entry["dataset"] == dataset]
        configured = self.data["config"].get("datasets", {}).get(dataset, {}).get("reader")
        return str(next(filter(None, [*told, configured]), ""))

    def cell(self, model: str, dataset: str) -> CellRows:
        """One finished cell. Raises RunError when there is none, or its result file cannot be read or is damaged."""
        entry = self.entry(model, dataset)
        return _read_cell(self.path / entry["file"], entry)

    def table(self, model: str, dataset: str) -> pa.Table:
        """The rows of a finished cell as they are stored, without maps and regions. Raises RunError as `cell`."""
        import pyarrow as pa

        entry = self.entry(model, dataset)
        return pa.concat_tables(_parts(self.path / entry["file"], entry, ("model", "dataset", *_COLUMNS, "reason")))

    def entry(self, model: str, dataset: str) -> Mapping[str, Any]:
        """The entry of a finished cell in run.json. Raises RunError when there is none."""
        if (model, dataset) in self._done:
            return self._done[model, dataset]
        reason = self.unfinished.get((model, dataset), "not evaluated")
        raise RunError(f"{self.path} has no result of {model} on {dataset}: {reason}.")

    def cells(self) -> Iterator[CellRows]:
        """Finished cells, one in memory at a time. Raises RunError for a result file that is damaged."""
        for entry in self._done.values():
            yield _read_cell(self.path / entry["file"], entry)


def load_run(path: Path) -> StoredRun:
    """Opens a run directory. Raises RunError when it is not one."""
    return StoredRun(path, read_run(path))


def _parts(path: Path, entry: Mapping[str, Any], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows, some cases at a time. Raises RunError for rows that are not those of the cell."""
    import pyarrow.parquet as pq

    findings = entry["findings"]
    with reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for table in read_parts(file, columns, len(findings)):
            wanted = [*_COLUMNS, *(name for name in (_IMAGE,) if name in table.column_names)]
            fault = fault_in_table(table.schema, file.metadata.num_rows, entry, wanted)
            fault = fault or fault_in_part(table, findings)
            if fault:
                raise RunError(f"{path} is damaged: {fault}; {AGAIN}.")
            yield table


def _part_of(table: pa.Table, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Some cases of a cell, as fields of `CellRows` and as what `_read_cell` makes others of: status bool [2, cases],
    missing and unreadable; counted bool [rows], whether a row has counts; of_pairs intp [P], of the pairs among the
    rows of readable images."""
    import pyarrow.compute as pc

    each = len(entry["findings"])
    first = table.select(["case_id", "patient_id", "status"]).take(np.arange(0, table.num_rows, each))
    readable = pc.equal(table["status"], "ok")
    has_region = table["area"].is_valid()
    counted = pc.and_(readable, has_region)
    pairs = table.filter(counted)
    rows = table.select(["label", "logit", "logit_negative"]).filter(readable)
    area, overlap = (at_levels(pairs[name]) for name in ("area", "overlap"))
    region, argmax, hit = (pairs[name].to_numpy() for name in ("region_area", "argmax", "hit"))
    if entry["weights"] == "boxes":  # the first level is the whole image
        counts = Counts.of_masks(area[:, -1].copy(), overlap[:, -1].copy(), region, argmax, hit)
    else:
        counts = Counts(area, overlap, region, argmax, hit, pairs["degenerate"].to_numpy())
    return {
        "case_ids": first["case_id"].to_pylist(),
        "patients": [
            f"case {case}" if patient is None else patient
            for case, patient in zip(first["case_id"].to_pylist(), first["patient_id"].to_pylist(), strict=True)
        ],
        "named": first["patient_id"].is_valid().to_numpy(),
        "contents": _contents(table, entry, first["status"].to_pylist()),
        "status": np.array([pc.equal(first["status"], name).to_numpy() for name in ("missing", "unreadable")]),
        "positive": pc.or_(pc.equal(table["label"], 1).fill_null(False), counted).to_numpy().reshape(-1, each),
        "labels": rows["label"].fill_null(-1).to_numpy().reshape(-1, each),
        "logits": rows["logit"].to_numpy().reshape(-1, each),
        "negatives": rows["logit_negative"].fill_null(float("nan")).to_numpy().reshape(-1, each),
        "counted": counted.to_numpy(),
        "of_pairs": np.flatnonzero(has_region.filter(readable).to_numpy()),
        "counts": counts,
        "sub_pixel": pairs["sub_pixel"].to_numpy(),
        "faults": count_faults(table["region_fault"]),
    }


def _contents(table: pa.Table, entry: Mapping[str, Any], status: Sequence[str]) -> NDArray[np.uint64]:
    """`CellRows.contents` of some cases; `status`: of each."""
    if entry["weights"] in WITHOUT_MODEL or _IMAGE not in table.column_names:
        return np.zeros((len(status), 2), np.uint64)
    stored = table[_IMAGE].take(np.arange(0, table.num_rows, len(entry["findings"]))).to_pylist()
    known = [value if value and read == "ok" else ABSENT for value, read in zip(stored, status, strict=True)]
    return np.frombuffer(b"".join(known), "<u8").astype(np.uint64).reshape(-1, 2)


def _read_cell(path: Path, entry: Mapping[str, Any]) -> CellRows:
    findings, later = tuple(entry["findings"]), entry.get("last_attempt")
    each = len(findings)
    with reading(path):
        # The counts are most of the bytes: those of rows without a pair are in memory for one part at a time.
        parts = [_part_of(table, entry) for table in _parts(path, entry, (*_COLUMNS, _IMAGE))]
        found = {name: [part[name] for part in parts] for name in parts[0]}
        case_ids, patients = (tuple(chain.from_iterable(found[name])) for name in ("case_ids", "patients"))
        rows = {name: np.concatenate(found[name]) for name in _JOINED}
        status, counts = np.concatenate(found["status"], axis=1), Counts.concatenate(found["counts"])
        starts = np.cumsum([0, *(labels.size for labels in found["labels"][:-1])])
        places = np.concatenate([own + start for own, start in zip(found["of_pairs"], starts, strict=True)])
    return CellRows(
        model=entry["model"],
        dataset=entry["dataset"],
        entry=entry,
        cases=len(case_ids),
        missing=int(status[0].sum()),
        unreadable=int(status[1].sum()),
        findings=findings,
        case_ids=case_ids,
        patients=patients,
        named=rows["named"],
        contents=rows["contents"],
        positive=rows["positive"],
        case_of=np.flatnonzero(~status.any(axis=0)),
        labels=rows["labels"],
        logits=rows["logits"],
        negatives=rows["negatives"],
        counts=counts,
        image_of=places // each,
        class_of=places % each,
        sub_pixel=rows["sub_pixel"],
        read_truth=partial(region_digests, path, rows["counted"], counts.region),
        faults={name: sum(part[name] for part in found["faults"]) for name in found["faults"][0]},
        protocol=str(entry.get("protocol", "default")),
        boxed=entry["weights"] == "boxes",
        equalised=entry["ingredients"].get("intensity") == "equalised",
        attempt=f"{later['state']} on {later['at']}: {later['reason']}" if later else "",
    )
