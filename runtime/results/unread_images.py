"""The cases of a finished cell that could not be read, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import DataError
from .schema import WITHOUT_MODEL
from .storage import read_columns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Unread:
    """Numbers of missing and unreadable cases, and the reason of the first of each; empty if there is none.

    wanted: cases whose files exist and had to be read; needed: those, and the missing ones. `maps`: what was to be
    read are saliency maps, not images; of those degenerate counts the readable cases with a map that is constant or not
    finite, and first_degenerate is one.
    """

    missing: int
    unreadable: int
    wanted: int
    needed: int
    why_missing: str
    why_unreadable: str
    maps: bool
    degenerate: int = 0
    first_degenerate: str = ""

    def mostly_lost(self, *, part: bool) -> bool:
        """Whether a half of what had to be read is missing, or more than half of it gives no number; `part`: what is
        missing does not count, because only a part is meant."""
        lost = self.unreadable + self.degenerate
        gone = 2 * self.missing >= self.needed or 2 * (self.missing + lost) > self.needed
        return 2 * lost > self.wanted or (not part and self.missing > 0 and gone)

    def words(self, dataset: str) -> str:
        """The end of the last line of a cell of `dataset`; empty if everything was read."""
        if not self.missing and not self.unreadable and not self.degenerate:
            return ""
        what = "saliency maps" if self.maps else "images"
        text = f"{self.missing} {what} missing, {self.unreadable} unreadable"
        if self.maps and self.missing:
            text += f"; the first missing one: {self.why_missing}"
        if self.unreadable:
            text += f"; the first unreadable one: {self.why_unreadable}"
        if self.degenerate:
            text += f"; {self.degenerate} constant or not finite, {self.first_degenerate} first"
        return text if self.maps else f"{text} (xbench-fast datasets check {dataset} --decode names them)"

    def sentence(self, dataset: str) -> str:
        """The error for a cell that is `mostly_lost`."""
        if 2 * (self.unreadable + self.degenerate) <= self.wanted:
            return self._missing_sentence(dataset)
        if self.degenerate:
            lost = f"{self.unreadable} cases have unreadable saliency maps and {self.degenerate} constant or not finite"
            why = self.why_unreadable.rstrip(".") or f"the first is of {self.first_degenerate}"
            return f"{lost} ones, of {self.wanted} with a region, so its numbers stand for the others: {why}."
        what = "cases with a region have unreadable saliency maps" if self.maps else "images are unreadable"
        more = "" if self.maps else f"; xbench-fast datasets check {dataset} --decode names them"
        reason = self.why_unreadable.rstrip(".")
        return f"{self.unreadable} of {self.wanted} {what}, so its numbers stand for the others: {reason}{more}."

    def _missing_sentence(self, dataset: str) -> str:
        subject = "saliency maps of the cases with a region" if self.maps else "images"
        share = f"{self.missing} of {self.needed} {subject} ({self.missing / self.needed:.0%}) are missing"
        if lost := self.unreadable + self.degenerate:
            share += f" and {lost} are unreadable" + (", constant or not finite" if self.degenerate else "")
        rest = self.needed - self.missing - lost
        why = self.why_missing.rstrip(".")
        return (
            f"{share}, so its numbers stand for the other {rest}: {why}; correct the paths, or say that only a part is "
            f"meant, with part = true in [datasets.{dataset}] of the configuration file or --data-option "
            f"{dataset}.part=true."
        )


def unread_cases(path: Path, findings: int, weights: str) -> Unread:
    """Reads the result file of a finished cell, with `findings` rows per case. Raises DataError when it is damaged."""
    import pyarrow as pa

    try:
        table = read_columns(path, ["case_id", "status", "reason", "region_area", "finding", "degenerate"])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({error}); delete that file and run the same command again.") from error
    first = table.take(np.arange(0, table.num_rows, findings))
    status = np.array(first["status"].to_pylist())
    area = table["region_area"].fill_null(0).to_numpy().reshape(-1, findings)
    wanted = status != "missing"
    if weights in WITHOUT_MODEL:  # these read only what belongs to a region
        wanted &= (status == "unreadable") | (area > 0).any(axis=1)
    flat = table["degenerate"].fill_null(False).to_numpy() & (weights == "maps")
    lost = flat.reshape(-1, findings).any(axis=1)
    reasons = {}
    for name in ("missing", "unreadable"):
        (places,) = np.nonzero(status == name)
        first_row = first.take(places[:1]).to_pylist()
        reasons[name] = f"{first_row[0]['case_id']}: {first_row[0]['reason']}" if first_row else ""
    return Unread(
        missing=int((status == "missing").sum()),
        unreadable=int((status == "unreadable").sum()),
        wanted=int(wanted.sum()),
        needed=int((wanted | (status == "missing")).sum()),
        why_missing=reasons["missing"],
        why_unreadable=reasons["unreadable"],
        maps=weights == "maps",
        degenerate=int(lost.sum()),
        first_degenerate=_pair(table, flat),
    )


def _pair(table: pa.Table, flat: NDArray[np.bool_]) -> str:
    """The first of these rows, as a case and a finding."""
    (rows,) = np.nonzero(flat)
    first_row = table.take(rows[:1]).to_pylist()
    return f"{first_row[0]['case_id']}: {first_row[0]['finding']}" if first_row else ""
