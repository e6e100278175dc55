"""Line 8 of a card, from the study of subgroups: that of the run where it is of this result, else a new one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....engines.errors import RunError, XBenchError
from ...host.config import DatasetConfig
from ...reporting.studies.material import Material
from ...reporting.studies.study_cell import StudyCell
from ...reporting.studies.study_outcome import Rows
from ...reporting.studies.subgroups.subgroup_sources import attributes_digest, attributes_of
from ...reporting.studies.subgroups.subgroups_study import study_subgroups
from ...results.studied import read_study, stale
from .card import CardLine, CardNumber, judged_line, rows_of, unjudged_line


class GroupStudies:
    """The studies of subgroups of a run. folders: current ones of datasets. stored: whether those in the run directory,
    which are of all pairs, are used."""

    def __init__(self, folders: Mapping[str, DatasetConfig] | None, *, stored: bool = True) -> None:
        self._folders = folders or {}
        self._use_stored = stored
        self._new: dict[tuple[str, str], tuple[Mapping[str, Rows], tuple[str, ...]]] = {}
        self._hashes: dict[tuple[str, str, str], tuple[str, str]] = {}

    def line(self, cell: StudyCell, block: Material) -> CardLine:
        """Line 8: the largest gap between groups that was tested."""
        asked, reasons = _Asked(), list[str]()
        for file in sorted(block.path.glob("studies/subgroups*/subgroups.json")) if self._use_stored else ():
            try:
                record = read_study(file)
                if not _names(record, cell):
                    continue
                asked = _Asked.of(record, cell.dataset, self._folders)
                why, unsure = self._other(record, cell, block, asked)
                if not why:
                    notes = [f"tested by {', '.join(asked.by)} alone"] if asked.by else []
                    return _line(cell, record, f"{file.parent}/subgroups.md", [*notes, *unsure])
                reasons.append(f"the study in {file.parent} {why}, and is not shown")
            except RunError as error:
                reasons.append(f"{str(error).rstrip('.')}; the study is not shown")
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                reasons.append(f"{file} does not have what this version reads ({error!r:.100}); the study is not shown")
        data, remarks = self._made(cell.dataset, block, asked)
        rows = rows_of(data.get("summary", ()), cell)
        command = asked.command(cell.dataset, block)
        if not rows:
            why = "; ".join((*reasons, *remarks)) or "no attribute divides its cases"
            return unjudged_line(8, "not run", why, command=command)
        reasons = [f"{line}: this one is made anew" for line in reasons]
        return _line(cell, data, f"xbench-fast study subgroups {block.path}", [*reasons, *remarks])

    def _other(
        self, record: Mapping[str, Any], cell: StudyCell, block: Material, asked: _Asked
    ) -> tuple[str, list[str]]:
        """Why a study is not of this result, as `stale` says it, and what of it could not be compared."""
        (now,) = block.basis([(cell.model, cell.dataset)])
        attributes, why = self._attributes(cell.dataset, block, asked)
        current = {"attributes": attributes} if attributes else {}
        unsure = f"the attributes are those of the study, because they cannot be read now: {why}"
        return stale(record, [now | current], block.sampling.settings), [] if current else [unsure]

    def _attributes(self, dataset: str, block: Material, asked: _Asked) -> tuple[str, str]:
        """The hash of the attributes of a dataset as they are now, empty if they cannot be read, and why not."""
        key = dataset, block.protocol, asked.table
        if key not in self._hashes:
            table = Path(asked.table) if asked.table else None
            try:
                attributes, remarks = attributes_of(block, dataset, self._folders, table)
                digest = "" if attributes is None else attributes_digest(block, dataset, attributes)
                self._hashes[key] = digest, "; ".join(remarks)
            except XBenchError as error:
                self._hashes[key] = "", str(error)
        return self._hashes[key]

    def _made(self, dataset: str, block: Material, asked: _Asked) -> tuple[Mapping[str, Rows], tuple[str, ...]]:
        key = dataset, block.protocol
        if key not in self._new:
            of_dataset = Material(
                block.run, tuple(cell for cell in block.cells if cell.dataset == dataset), (), block.sampling
            )
            tables = [f"{dataset}={asked.table}"] if asked.table else []
            try:
                outcome = study_subgroups(of_dataset, by=asked.by, tables=tables, datasets=self._folders)
                self._new[key] = outcome.data, outcome.remarks
            except XBenchError as error:
                reason = str(error).split(" has no results on cases with attributes: ")[-1]
                self._new[key] = {}, (reason.rstrip("."),)
        return self._new[key]


@dataclass(frozen=True)
class _Asked:
    """What a written study was asked of a dataset: only some attributes, and those of a table; empty for its own."""

    by: tuple[str, ...] = ()
    table: str = ""

    @staticmethod
    def of(record: Mapping[str, Any], dataset: str, folders: Mapping[str, DatasetConfig]) -> _Asked:
        """A table of the configuration counts only while the configuration is not known."""
        settings = record["settings"]
        table = settings["tables"].get(dataset, "")
        if not table and dataset not in folders:
            table = settings["configured"].get(dataset, "")
        return _Asked(tuple(settings["by"]), table)

    def command(self, dataset: str, block: Material) -> str:
        """The command that makes the study."""
        table = shlex.quote(f"{dataset}={self.table}") if self.table else f"{dataset}=FILE"
        by = "".join(f" --by {shlex.quote(name)}" for name in self.by)
        return f"xbench-fast study subgroups {shlex.quote(str(block.path))} --attributes {table}{by}"


def _names(record: Mapping[str, Any], cell: StudyCell) -> bool:
    """Whether a study is of the model and dataset of a cell."""
    return any((each["model"], each["dataset"]) == (cell.model, cell.dataset) for each in record["results"])


def _line(cell: StudyCell, data: Mapping[str, Rows], table: str, notes: Sequence[str]) -> CardLine:
    (row,) = rows_of(data["summary"], cell)
    tested, left = row["tested"], row["not_tested"]
    counts = f"{tested} gap{'s' * (tested != 1)} tested, {left} not tested for want of patients"
    if not tested:
        why = f"no gap could be tested: each of two groups needs 20 patients; {counts}"
        return replace(unjudged_line(8, "cannot tell", why), notes=tuple(notes))
    same_groups = {key: row[key] for key in ("attribute", "first", "second")}
    (gap, *_) = rows_of(data["gaps"], cell, measure="pointing", **same_groups)
    groups = f"{row['attribute']}: {row['first']} - {row['second']}"
    number = CardNumber.of(
        row,
        "standardised",
        what=f"largest standardised gap of pointing, {groups}",
        label=groups,
        unit="gap",
        baseline=f"{row['patients_first']} and {row['patients_second']} patients",
        pairs=gap["pairs_first"] + gap["pairs_second"],
        patients=gap["patients_first"] + gap["patients_second"] - gap["patients_in_both"],
        family=tested,
        criterion="an interval that holds 0 and is narrower than 0.1",
        word=row["verdict"],
    )
    return judged_line(8, [number], table=table, notes=notes, told=counts)
