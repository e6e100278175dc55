"""COCO's detection scores over all images and classes, as pycocotools computes them."""

from __future__ import annotations

import math
from typing import Final

from ..average_precision import ranked
from ..boxes import Answers
from ..overlaps import BoxOverlaps
from .scorer import Scorer, Values


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    """Without scores all boxes have the same rank, in the order of the images."""
    ranking = ranked(answers)
    precision = ranking.precision
    mean = {
        "AP": ranking.mean(precision[2:]),
        "AP50": ranking.mean(precision[2]),
        "AP75": ranking.mean(precision[7]),
        "AP@0.1": ranking.mean(precision[0]),
        "AP@0.25": ranking.mean(precision[1]),
        "AP@0.5": ranking.mean(precision[2]),
        **{f"AR{most}": ranking.mean(ranking.recall[m, 2:]) for m, most in enumerate((1, 10, 100))},
        **{f"AP@0.5_by_class.{name}": float(precision[2, c]) for c, name in enumerate(answers.names)},
    }
    return {name: None if math.isnan(value) else value for name, value in mean.items()}


COCO_SCORER: Final = Scorer(
    name="coco",
    source="pycocotools 2.0.11 COCOeval, bbox",
    main="AP",
    note="Without a score for each box the order of the images decides the ranking, and the value means nothing.",
    compute=_compute,
)
