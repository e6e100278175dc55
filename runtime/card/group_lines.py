"""Line 8 of a card, from the study of subgroups: that of the run where it is of this result, else a new one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ...engines.errors import XBenchError
from ..host.config import DatasetConfig
from ..studies.material import Material
from ..studies.outcome import Rows
from ..studies.study_cell import StudyCell
from ..studies.subgroups.study import study_subgroups
from .card import CardLine, CardNumber, judged_line, unjudged_line

__all__ = ["GroupStudies"]


class GroupStudies:
    """The studies of subgroups of a run. folders: current ones of datasets. stored: whether those in the run directory,
    which are of all pairs, are used."""

    def __init__(self, folders: Mapping[str, DatasetConfig] | None, *, stored: bool = True) -> None:
        self._folders = folders
        self._use_stored = stored
        self._new: dict[tuple[str, str], tuple[Mapping[str, Rows], tuple[str, ...]]] = {}

    def line(self, cell: StudyCell, block: Material) -> CardLine:
        """Line 8: the largest gap between groups that was tested."""
        stored = _stored(cell, block) if self._use_stored else None
        if stored is not None:
            data, folder, notes = stored
            return _line(cell, data, f"{folder}/subgroups.md", notes)
        data, remarks = self._made(cell.dataset, block)
        asked = f"xbench-fast study subgroups {block.path}"
        rows = _rows(data.get("summary", ()), cell.model, cell.dataset)
        if not rows:
            why = "; ".join(remarks) or "no attribute divides its cases"
            command = f"xbench-fast study subgroups {shlex.quote(str(block.path))} --attributes {cell.dataset}=FILE"
            return unjudged_line(8, "not run", why, command=command)
        return _line(cell, data, asked, remarks)

    def _made(self, dataset: str, block: Material) -> tuple[Mapping[str, Rows], tuple[str, ...]]:
        key = dataset, block.protocol
        if key not in self._new:
            own = Material(
                block.run, tuple(cell for cell in block.cells if cell.dataset == dataset), (), block.sampling
            )
            try:
                outcome = study_subgroups(own, datasets=self._folders)
                self._new[key] = outcome.data, outcome.remarks
            except XBenchError as error:
                told = str(error).split(" has no results on cases with attributes: ")[-1]
                self._new[key] = {}, (told.rstrip("."),)
        return self._new[key]


def _stored(cell: StudyCell, block: Material) -> tuple[Mapping[str, Rows], str, list[str]] | None:
    """The study in the run directory that is of this result, its folder, and what it leaves out."""
    for file in sorted(block.path.glob("studies/subgroups*/subgroups.json")):
        try:
            record = json.loads(file.read_bytes())
            key = cell.rows.entry.get("key")
            named = [(each["model"], each["dataset"]) for each in record["results"] if each["key"] == key]
            rows = [row for name in named for row in _rows(record["summary"], *name)]
            if key is None or not rows:
                continue
            by = record["settings"].get("by", ())
            gaps = [row for name in named for row in _rows(record["gaps"], *name)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        notes = [f"tested by {', '.join(by)} alone"] if by else []
        renamed = {"model": cell.model, "dataset": cell.dataset}
        data = {"summary": [row | renamed for row in rows], "gaps": [row | renamed for row in gaps]}
        return data, str(file.parent), notes
    return None


def _line(cell: StudyCell, data: Mapping[str, Rows], table: str, notes: Sequence[str]) -> CardLine:
    (row,) = _rows(data["summary"], cell.model, cell.dataset)
    tested, left = row["tested"], row["not_tested"]
    said = f"{tested} gap{'s' * (tested != 1)} tested, {left} not tested for want of patients"
    if not tested:
        return unjudged_line(8, "cannot tell", f"no gap could be tested: each of two groups needs 20 patients; {said}")
    gap = next(
        each
        for each in _rows(data["gaps"], cell.model, cell.dataset)
        if each["measure"] == "pointing" and all(each[key] == row[key] for key in ("attribute", "first", "second"))
    )
    groups = f"{row['attribute']}: {row['first']} - {row['second']}"
    number = CardNumber(
        what=f"largest standardised gap of pointing, {groups}",
        label=groups,
        unit="gap",
        value=row["standardised"],
        low=row["standardised_low"],
        high=row["standardised_high"],
        baseline=f"{row['patients_first']} and {row['patients_second']} patients",
        pairs=gap["pairs_first"] + gap["pairs_second"],
        patients=gap["patients_first"] + gap["patients_second"] - gap["patients_in_both"],
        p=row["standardised_p"],
        p_bound=row["standardised_p_bound"],
        p_holm=row["standardised_p_holm"],
        family=tested,
        criterion="an interval that holds 0 and is narrower than 0.1",
        word=row["verdict"],
    )
    return judged_line(8, "the map", [number], table=table, notes=notes, told=said)


def _rows(rows: Rows, model: str, dataset: str) -> list[dict[str, Any]]:
    return [dict(row) for row in rows if (row["model"], row["dataset"]) == (model, dataset)]
