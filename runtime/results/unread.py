"""The cases of a finished cell that could not be read, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...engines.errors import DataError
from .schema import WITHOUT_MODEL
from .storage import read_columns

__all__ = ["Unread", "unread_cases"]


@dataclass(frozen=True)
class Unread:
    """Numbers of missing and unreadable cases, and the reason of the first of each; empty if there is none.

    wanted: cases whose files exist and had to be read. `maps`: what was to be read are saliency maps, not images.
    """

    missing: int
    unreadable: int
    wanted: int
    why_missing: str
    why_unreadable: str
    maps: bool

    @property
    def most(self) -> bool:
        """Whether more than half of what had to be read is unreadable."""
        return 2 * self.unreadable > self.wanted

    def words(self, dataset: str) -> str:
        """The end of the last line of a cell of `dataset`; empty if everything was read."""
        if not self.missing and not self.unreadable:
            return ""
        what = "saliency maps" if self.maps else "images"
        text = f"{self.missing} {what} missing, {self.unreadable} unreadable"
        if self.maps and self.missing:
            text += f"; the first missing one: {self.why_missing}"
        if self.unreadable:
            text += f"; the first unreadable one: {self.why_unreadable}"
        return text if self.maps else f"{text} (xbench-fast datasets check {dataset} --decode names them)"

    def sentence(self, dataset: str) -> str:
        """The error for a cell of which `most` is unreadable."""
        what = "cases with a region have unreadable saliency maps" if self.maps else "images are unreadable"
        more = "" if self.maps else f"; xbench-fast datasets check {dataset} --decode names them"
        reason = self.why_unreadable.rstrip(".")
        return f"{self.unreadable} of {self.wanted} {what}, so its numbers stand for the others: {reason}{more}."


def unread_cases(path: Path, findings: int, weights: str) -> Unread:
    """Reads the result file of a finished cell, with `findings` rows per case. Raises DataError when it is damaged."""
    import pyarrow as pa

    try:
        table = read_columns(path, ["case_id", "status", "reason", "region_area"])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged ({error}); delete that file and run the same command again.") from error
    first = table.take(np.arange(0, table.num_rows, findings))
    status = np.array(first["status"].to_pylist())
    area = table["region_area"].fill_null(0).to_numpy().reshape(-1, findings)
    wanted = status != "missing"
    if weights in WITHOUT_MODEL:  # these read only what belongs to a region
        wanted &= (status == "unreadable") | (area > 0).any(axis=1)
    reasons = {}
    for name in ("missing", "unreadable"):
        (places,) = np.nonzero(status == name)
        told = first.take(places[:1]).to_pylist()
        reasons[name] = f"{told[0]['case_id']}: {told[0]['reason']}" if told else ""
    return Unread(
        missing=int((status == "missing").sum()),
        unreadable=int((status == "unreadable").sum()),
        wanted=int(wanted.sum()),
        why_missing=reasons["missing"],
        why_unreadable=reasons["unreadable"],
        maps=weights == "maps",
    )
