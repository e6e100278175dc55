"""What `boxes check` says of a file of words, without a score (docs/words.md §5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.answers.answered import BoxAnswers, BoxFile
from ...data.answers.questions import Questions
from ...data.answers.words.class_answers import Remark, WordState
from ...data.answers.words.views import lateral_rows
from ...data.datasets.dataset import Dataset
from .true_zones import TrueZones, side_check
from .word_scoring import WordScoring


def check_words(file: BoxFile, questions: Questions, dataset: Dataset) -> tuple[dict[str, Any], str]:
    """The counters of a file of words as `words`, and a sentence if its sides seem to be those of the image. Raises
    DataError for masks of lungs that cannot be read."""
    assert file.thorax is not None
    zones = TrueZones.of(questions, file.thorax)
    scoring = WordScoring(file, questions, zones, lateral_rows(questions, dataset))
    said = {
        "positive": _counts(file.positives),
        "negative": _counts(file.negatives),
        "not_frontal": scoring.not_frontal,
        "texts": {state: list(texts) for state, texts in file.unused_texts.items()},
    }
    return {"words": said}, side_check(file, zones, np.asarray(scoring.frontal(file.positives)))


def _counts(answers: BoxAnswers) -> dict[str, int]:
    """Answers by state and by remark."""
    words = answers.words or ()
    counts = {state.name.lower(): sum(answer.state is state for answer in words) for state in WordState}
    counts |= {str(remark.name).lower(): sum(remark in answer.remarks for answer in words) for remark in Remark}
    return counts | {"skipped": sum(answer.skipped for answer in words)}
