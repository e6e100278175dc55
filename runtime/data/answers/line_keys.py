"""Checks the keys of a header and of a line of a JSON Lines file of boxes (docs/boxes.md §1)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..datasets.source.column_guess import WRITTEN
from .bad_line import BadLine
from .coordinate_frames import FRAMES, ORDERS, Corners, Size, View, read_size, read_view
from .dialects.dialect_registry import DIALECTS
from .dialects.thoughts import Tags

HEADER: Final = "xbench_boxes"
VERSION: Final = 1
LONGEST_KEY: Final = 80
"""Characters of the value of `key`."""

_MOST_TAGS: Final = 20
SIDES: Final = ("patient", "image")
"""Whose left and right words name."""

PROVENANCE: Final = (
    "model", "prompt", "commit", "dataset", "created", "seed", "attempts", "temperature", "note",
)  # fmt: skip
_SETTINGS: Final = ("dialect", "frame", "order", "size", "view", "key", "thoughts", "sides")
_HEADER: Final = (HEADER, *_SETTINGS, *PROVENANCE)
LINE_KEYS: Final = ("case", "finding", "phrase", "boxes", "text", "scores", "finish", *_SETTINGS, *PROVENANCE)
FINISHES: Final = ("stop", "length", "refusal", "content_filter", "other")
"""Why an answer ended, in the key `finish` of its line."""

REFUSALS: Final = ("refusal", "content_filter")

VIEW_NOT_PROVED: Final = "view not proved"
"""In the note of a header: nothing shows that the server kept the size of the image (docs/ask.md §3)."""
_WRITTEN: Final[Mapping[str, str]] = {
    word: key
    for key, words in {
        "case": (*WRITTEN["image"], "image", "images", "id", "caseid", "uid", "study", "studyid", "filepath"),
        "finding": (*WRITTEN["class"], "class", "categoryid", "findings", "pathology", "disease", "observation"),
        "phrase": ("sentence", "caption", "query", "expression", "question"),
        "boxes": (
            "box",
            "bbox",
            "bboxes",
            "bbox2d",
            "boundingbox",
            "boundingboxes",
            "rect",
            "rectangle",
            "coordinates",
        ),
        "text": ("answer", "response", "output", "prediction", "completion", "generatedtext", "raw"),
        "scores": ("score", "confidence", "confidences", "conf", "probability", "prob"),
        "frame": ("format", "coordinateframe", "coordinatesystem"),
        "order": ("boxformat", "bboxformat", "boxorder"),
        "size": ("imagesize", "imagewidth", "imageheight", "width", "height"),
        "view": ("inputsize", "resizedsize"),
        "finish": ("finishreason", "stopreason"),
    }.items()
    for word in words
}
"""What people and other formats call a key, as `plain_name` has it -> the key."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a header states for every line, or a line with its header's values filled in.

    line_keys: the keys that the line has itself.
    """

    dialect: str | None = None
    frame: str | None = None
    order: str = "xyxy"
    size: Size | None = None
    view: View | None = None
    key: str = "bbox_2d"
    thoughts: Tags = ()
    sides: str = "patient"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    line_keys: frozenset[str] = frozenset()


def header_settings(header: Mapping[str, Any]) -> Settings:
    """Raises BadLine."""
    version = header[HEADER]
    if version != VERSION or isinstance(version, bool):
        shown = _shown(version)
        raise BadLine(HEADER, f"the format has version {shown}, and {VERSION} is read here; write {VERSION}")
    return _settings(header, _HEADER, Settings())


def line_settings(line: Mapping[str, Any], header: Settings) -> Settings:
    """Raises BadLine."""
    if HEADER in line:
        raise BadLine(HEADER, "this line is a header; a file has one header, as its first line")
    return _settings(line, LINE_KEYS, header)


def _settings(line: Mapping[str, Any], valid: tuple[str, ...], above: Settings) -> Settings:
    keys = line.keys()
    if not keys <= set(valid):
        key = next(key for key in keys if key not in valid)
        raise BadLine(key[:80], f"'{key[:80]}' is not a key of the format", key, valid, _WRITTEN)
    if keys.isdisjoint(_SETTINGS) and keys.isdisjoint(PROVENANCE):
        return replace(above, provenance={}, line_keys=frozenset())
    for key in PROVENANCE:
        if key in keys:
            _check_provenance(key, line[key])
    return Settings(
        dialect=_word(line, "dialect", DIALECTS, above.dialect),
        frame=_word(line, "frame", FRAMES, above.frame),
        order=_word(line, "order", ORDERS, above.order) or above.order,
        size=_read(line, "size", read_size, above.size),
        view=_read(line, "view", read_view, above.view),
        key=_read(line, "key", _name, above.key),
        thoughts=_read(line, "thoughts", _tags, above.thoughts),
        sides=_word(line, "sides", SIDES, above.sides) or above.sides,
        provenance={key: line[key] for key in PROVENANCE if key in keys},
        line_keys=frozenset(key for key in _SETTINGS if key in keys),
    )


def _word(
    line: Mapping[str, Any], key: str, valid: Mapping[str, Any] | tuple[str, ...], above: str | None
) -> str | None:
    if key not in line:
        return above
    value = line[key]
    if not isinstance(value, str) or value not in valid:
        raise BadLine(key, f"there is no {key} {_shown(value)}", str(value)[:80], valid)
    return value


def _read(line: Mapping[str, Any], key: str, read: Callable[[Any], Any], above: Any) -> Any:
    if key not in line:
        return above
    try:
        return read(line[key])
    except ValueError as error:
        raise BadLine(key, f"{key} is {_shown(line[key])}; {error}") from None


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > LONGEST_KEY:
        raise ValueError(f"it must be the name of a key, of at most {LONGEST_KEY} characters")
    return value


def _tags(value: Any) -> Tags:
    """The tags of thoughts in a list of pairs."""
    fine = isinstance(value, list) and len(value) <= _MOST_TAGS
    for pair in value if fine else ():
        texts = isinstance(pair, list) and len(pair) == 2 and all(isinstance(tag, str) for tag in pair)
        fine = fine and texts and all(tag.strip() and len(tag) <= 80 for tag in pair) and pair[0] != pair[1]
    if not fine:
        raise ValueError(f'it must be a list of at most {_MOST_TAGS} pairs of tags, such as [["<plan>", "</plan>"]]')
    return tuple((start, end) for start, end in value)


def _check_provenance(key: str, value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise BadLine(key, f"{key} is not a finite number; write a number, a text or null") from None
    if key == "dataset" and not isinstance(value, str):
        raise BadLine(key, f"dataset is {_shown(value)}; write the dataset's name")


def finish_of(line: Mapping[str, Any]) -> str | None:
    """The value of `finish`, one of `FINISHES`; None without it. Raises BadLine."""
    return _word(line, "finish", FINISHES, None)


def four_numbers(boxes: Any) -> list[Corners]:
    """The value of `boxes`, a list of four finite numbers each. Raises BadLine."""
    if not isinstance(boxes, list):
        raise BadLine("boxes", f"boxes is {_shown(boxes)}; write a list, [] if the model looked and found nothing")
    corners: list[Corners] = []
    for number, box in enumerate(boxes, 1):
        if not isinstance(box, list) or len(box) != 4:
            raise BadLine("boxes", f"box {number} is {_shown(box)}, not a list of four numbers")
        a, b, c, d = (_finite(value, "boxes", f"box {number}") for value in box)
        corners.append((a, b, c, d))
    return corners


def score_list(scores: Any, count: int) -> list[float]:
    """The value of `scores`, a finite number for each of `count` boxes. Raises BadLine."""
    if not isinstance(scores, list) or len(scores) != count:
        have = f"{len(scores)} scores" if isinstance(scores, list) else _shown(scores)
        raise BadLine("scores", f"scores is {have} for {count} boxes; write one number a box")
    return [_finite(value, "scores", "a score") for value in scores]


def _finite(value: Any, key: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadLine(key, f"{what} has {_shown(value)}, which is not a number; write numbers without quotes")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadLine(key, f"{what} has a number that is not finite; write finite numbers")
    return number


def _shown(value: Any) -> str:
    """A value for a message, shortened."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}..."
