"""The numbers of the code that decides results. A number is part of the key of what was computed with that code.

Raise a number when a change of the code can change a value: results with the lower number are then computed again.
A change that changes no value, such as a rename, leaves the number alone, so nothing is computed again.
`tests/none/results/test_code_numbers.py` fails until one of the two is decided for each change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NUMBERS: Final[Mapping[str, int]] = {
    # Rows of an engine on the CPU, of one on a GPU, of a live model, of a baseline, of a folder of maps, and of boxes.
    "cpu": 1,
    "gpu": 1,
    "live": 1,
    "baseline": 1,
    "maps": 2,  # a good map could count as unreadable, when another thread parsed a header at the same time
    # Words such as "isn't", "- effusion: none" and "apical, left" were misread, and an answer `B 3` of the dialect grid
    # counted as silent, not as unparsable. Sides behind several places, "right lung clear" and "absent effusion" too.
    "boxes": 3,
    # What all readers of datasets share. Raising it computes everything again, also with readers of users.
    "reading": 1,
    # Pixels from an image file, prepared for a model; the same by DALI; regions on the evaluation grid.
    "pixels": 1,
    "dali": 1,
    "masks": 1,
    # Images in tiles, and changed images, with where their maps belong.
    "tiles": 1,
    "view": 1,
    # DICOM objects of answers: a number in their UIDs.
    "dicom": 2,  # odd values of a film's header were copied as they were, e.g. directions that are none
    # Several prompt sets are asked of an encoded image, whose last bits differ with some engines and precisions.
    "trust prompts": 2,
    # Graphics that belong to a measurement of a report were not seen: all that the viewer OHIF stores.
    "reader dicom": 2,
}
"""Part of the code -> its number. The changelog of a part is a comment behind each number above 1: what was wrong.

Not listed is a part that still has 1: `reader NAME` of a built-in dataset and `trust NAME` of a probe."""


def code_number(part: str) -> str:
    """The number of a part as it stands in keys, such as "cpu-1"."""
    return f"{part}-{NUMBERS.get(part, 1)}"
