"""Which images are lateral: words of the frame are about frontal ones (docs/words.md §4)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import DataError
from ...datasets.attributes.lookup import look_up
from ...datasets.dataset import Dataset
from ..questions import Questions

_LATERAL: Final = ("lateral", "ll", "rl")


def lateral_rows(questions: Questions, dataset: Dataset) -> NDArray[np.bool_]:
    """bool [cases]: the attributes of the case say that it is lateral. An unknown view is taken as frontal."""
    try:
        attributes = look_up([case.case_id for case in questions.cases], dataset).cases
    except DataError:  # a table of attributes that does not fit says nothing about views
        return np.zeros(len(questions.cases), np.bool_)
    return np.array([str(case.get("view", "")).casefold() in _LATERAL for case in attributes], np.bool_)
