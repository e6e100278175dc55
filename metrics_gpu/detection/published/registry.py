"""The published scorers by name."""

from __future__ import annotations

from typing import Final

from .acc50 import ACC50
from .afloc import AFLOC
from .chex import CHEX
from .chexagent import CHEXAGENT
from .coco_detection import COCO_SCORER
from .radfact import RADFACT, RADFACT_BOXES
from .radvlm import RADVLM
from .rodeo import RODEO
from .scorer import Scorer

SCORERS: Final[dict[str, Scorer]] = {
    scorer.name: scorer
    for scorer in (RADVLM, CHEXAGENT, RADFACT, RADFACT_BOXES, AFLOC, CHEX, ACC50, RODEO, COCO_SCORER)
}
"""In the order in which tables print them."""
