"""What a published scorer is: its name, the numbers it gives, and in one sentence where its rule misleads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..boxes import Answers
from ..overlaps import BoxOverlaps

Values = Mapping[str, float | None]
"""Name of a number -> its value, None where the authors' code gives none."""


@dataclass(frozen=True)
class Scorer:
    """name: as on the command line. source: repository and version that it equals. main: the number that papers quote.

    note: where the rule misleads. compute: the numbers of answers, given their table of IoUs.
    """

    name: str
    source: str
    main: str
    note: str
    compute: Callable[[Answers, BoxOverlaps], Values]
