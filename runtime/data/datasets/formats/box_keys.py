"""What a file says of a box in addition to its four numbers: that it is turned, or written in another form
(docs/formats.md §9.1, §9.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from ..file_rows import fail
from .region_marks import letters
from .shapes import Corners, Place

_TURNS: Final = frozenset(
    {"rotation", "rotationangle", "rotationdeg", "rotationdegree", "rotationdegrees", "rotationrad"}
    | {"angle", "angledeg", "anglerad", "theta"}
)
_TURNED: Final = frozenset({"rbbox", "rbox", "obb", "rotatedbbox", "rotatedbox", "bboxrotated", "orientedbbox"})
_MODES: Final = {
    0: "x1, y1, x2, y2 in pixels", 1: "x, y, width, height in pixels", 2: "x1, y1, x2, y2 in fractions",
    3: "x, y, width, height in fractions", 4: "a turned box",
}  # fmt: skip
"""Detectron2's key `bbox_mode`."""


def attributes_of(entry: Mapping[str, Any]) -> dict[str, object]:
    """The attributes of an annotation, which are an object, or a list of objects, also {"name": ..., "value": ...}."""
    given = entry.get("attributes")
    attributes: dict[str, object] = {}
    for part in given if isinstance(given, list) else [given]:
        if isinstance(part, dict):
            attributes |= {str(part["name"]): part["value"]} if "name" in part and "value" in part else part
    return attributes


def stated_turn(keys: Mapping[str, object]) -> str | None:
    """The key that turns a box by an angle other than 0; None: no key does."""
    return next((key for key, value in keys.items() if value and letters(key) in _TURNS and _is_angle(value)), None)


def _is_angle(value: object) -> bool:
    try:
        angle = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        return False
    return math.isfinite(angle) and angle != 0


def refuse_other_boxes(entry: Mapping[str, object], where: Place, *, corners: bool, fractions: bool) -> None:
    """Raises DataError where an annotation says that bbox has another form, or has a turned box next to it."""
    turned = next((key for key, value in entry.items() if value and letters(key) in _TURNED), None)
    if turned is not None:
        raise fail(*where, f"the key '{turned}' is a turned box, which is not read; write its corners as a polygon")
    mode = entry.get("bbox_mode")
    if mode is None:
        return
    given = mode if isinstance(mode, int) and not isinstance(mode, bool) else -1
    if given != (2 if fractions else 0) + (not corners):
        meant = _MODES.get(given, f"{str(mode)[:40]!r}")
        raise fail(*where, f"bbox_mode says {meant}; set the options boxes and unit so that they say the same")


def share(one: Corners, other: Corners, margin: float = 0.0) -> float:
    """The intersection over union of two boxes, both larger by `margin` on each side."""
    (ax, ay, bx, by), (cx, cy, dx, dy) = one, other
    ax, ay, bx, by = ax - margin, ay - margin, bx + margin, by + margin
    cx, cy, dx, dy = cx - margin, cy - margin, dx + margin, dy + margin
    common = max(min(bx, dx) - max(ax, cx), 0.0) * max(min(by, dy) - max(ay, cy), 0.0)
    union = (bx - ax) * (by - ay) + (dx - cx) * (dy - cy) - common
    return common / union if union > 0 else 1.0
