"""What a report puts into one set of tables: the results of one protocol and the differences between their models."""

from __future__ import annotations

from dataclasses import dataclass

from ..comparing.model_differences import Differences, find_differences
from ..results.numbers.blocks import split_by_protocol
from ..results.numbers.run_numbers import Results

__all__ = ["Block", "find_blocks"]


@dataclass(frozen=True)
class Block:
    """The results of one protocol and the differences between their models."""

    results: Results
    differences: Differences


def find_blocks(results: Results) -> tuple[Block, ...]:
    """A block for each protocol that occurs; one, of everything, if there is only one."""
    return tuple(Block(part, find_differences(part)) for part in split_by_protocol(results))
