"""Divides one evaluation among several independent processes: each evaluates a part (shard) of every dataset.

A shard is a sequence of whole chunks. Batches never cross a chunk, so a shard's engine gets the same batches as in an
undivided evaluation, and its rows are bit-identical. `merging` merges the shards.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ....engines.errors import ConfigError


@dataclass(frozen=True)
class Shard:
    """Part `index` of `of` parts, counted from 1."""

    index: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From "2/8". Raises ConfigError."""
        found = re.fullmatch(r"\s*(\d{1,6})\s*/\s*(\d{1,6})\s*", text)
        shard = cls(int(found[1]), int(found[2])) if found else cls(0, 0)
        if not 1 <= shard.index <= shard.of:
            raise ConfigError(f"--shard {text} is not of the form I/N with I from 1 to N, such as 2/8.")
        return shard

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def to_json(self) -> dict[str, Any]:
        """For an entry in run.json."""
        return {"index": self.index, "of": self.of}

    def span(self, dataset: str, cases: int, chunk: int) -> range:
        """The positions of this shard's cases in a dataset of `cases` cases; an empty range if it gets none.

        The shards of a dataset are consecutive, cover it, and differ by at most one chunk. The dataset's name decides
        which of them gets one chunk less, so that many small datasets do not all go to the same shard.
        """
        chunks = -(-cases // chunk)
        place = (self.index - 1 + zlib.crc32(dataset.encode())) % self.of
        first, stop = place * chunks // self.of, (place + 1) * chunks // self.of
        return range(min(first * chunk, cases), min(stop * chunk, cases))


def shard_folder(out: Path, shard: Shard) -> Path:
    """The run directory of a shard of the evaluation whose directory is `out`."""
    return out / f"shard-{shard.index}-of-{shard.of}"


def is_shard_folder(name: str) -> bool:
    """Whether a folder's name has the form that `shard_folder` gives."""
    return re.fullmatch(r"shard-\d+-of-\d+", name) is not None
