"""One line of a JSON Lines file of boxes -> an answer, fitted to its image (docs/boxes.md §1, §2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .answered import State
from .bad_line import BadLine
from .coordinate_frames import VIEWED, Budget, Size, View, ordered, placed_axes, view_of
from .dialects.dialect_registry import DIALECTS, JSON, parse
from .fitting import FittedAnswer, fit
from .line_keys import REFUSALS, Settings, finish_of, four_numbers, score_list
from .questions import Place, Questions
from .unread_answers import excerpt_of


def asked_by(line: Mapping[str, Any], questions: Questions) -> tuple[int, list[Place]]:
    """A case of the image of a line, and the pairs that it answers: several if one phrase is used for several findings,
    none if it has no region. Raises BadLine."""
    case = _text(line, "case")
    if "phrase" in line:
        finding = _text(line, "finding") if "finding" in line else None
        return questions.places_of_phrase(case, _text(line, "phrase"), finding)
    finding = _text(line, "finding")
    row = questions.case(case)
    return row, [questions.pair_number(row, questions.finding(finding))]


def convention(line: Mapping[str, Any], settings: Settings) -> str:
    """The coordinate convention of a line in words: its dialect, or its frame and, unless it is xyxy, its order."""
    frame = settings.frame if settings.order == "xyxy" else f"{settings.frame} {settings.order}"
    if "text" not in line:
        return frame or ""
    return f"{JSON} {frame}" if settings.dialect == JSON else settings.dialect or ""


def read_answer(line: Mapping[str, Any], settings: Settings, row: int, questions: Questions) -> FittedAnswer:
    """The answer of a line about the case at the position `row`. Raises BadLine."""
    if "sides" in settings.line_keys or settings.sides != "patient":
        raise BadLine("sides", "sides is a key of the dialects text and zones; leave it out")
    if "boxes" in line and "text" in line:
        raise BadLine("text", "the line has both boxes and text; leave one of them out")
    if "boxes" not in line and "text" not in line:
        raise BadLine("boxes", "the line has neither boxes nor text; if the model found nothing, write []")
    answer = (_from_text if "text" in line else _from_boxes)(line, settings, row, questions)
    return finished(answer, line)


def finished(answer: FittedAnswer, line: Mapping[str, Any]) -> FittedAnswer:
    """The answer of a line with what its key `finish` says: cut off, or refused. Raises BadLine."""
    finish = finish_of(line)
    answer.truncated |= finish == "length"
    if finish in REFUSALS and answer.state != State.ANSWERED:
        answer.state, answer.excerpt = State.REFUSED, ""
    return answer


def _from_boxes(line: Mapping[str, Any], settings: Settings, row: int, questions: Questions) -> FittedAnswer:
    if settings.frame is None:
        raise BadLine("frame", "boxes need a frame; write it in the header or in the line, such as pixels or unit")
    boxes = four_numbers(line["boxes"])
    scores = score_list(line["scores"], len(boxes)) if "scores" in line else None
    size = size_of_line(settings, row, questions, needed=bool(boxes))
    view = _view(settings, settings.frame, size, settings.view)
    if not boxes:
        return FittedAnswer(State.SILENT, size or (0, 0))
    assert size is not None
    answer = _placed(settings.frame, size, view)
    fit(answer, [ordered(box, settings.order) for box in boxes], scores)
    answer.state = State.ANSWERED if answer.boxes else State.UNPARSABLE
    answer.excerpt = "" if answer.boxes else excerpt_of(json.dumps(line["boxes"]))
    return answer


def _from_text(line: Mapping[str, Any], settings: Settings, row: int, questions: Questions) -> FittedAnswer:
    text = line["text"]
    if not isinstance(text, str):
        raise BadLine("text", "text is not a text; write the model's raw answer in quotes")
    if "scores" in line:
        raise BadLine("scores", "scores belong to boxes, and a raw text has none; leave scores out, or write boxes")
    if settings.dialect is None:
        raise BadLine("dialect", "text needs a dialect; write the dialect of the model", "", DIALECTS)
    dialect = DIALECTS[settings.dialect]
    if dialect.frame and "frame" in settings.line_keys and settings.frame != dialect.frame:
        problem = f"the dialect {settings.dialect} has the frame {dialect.frame}, not {settings.frame}"
        raise BadLine("frame", f"{problem}; leave frame out")
    frame = dialect.frame or settings.frame
    if frame is None:
        raise BadLine("frame", f"the dialect {JSON} needs a frame; write it in the header or in the line")
    parsed = parse(settings.dialect, text, key=settings.key, order=settings.order, thoughts=settings.thoughts)
    size = size_of_line(settings, row, questions, needed=bool(parsed.boxes))
    view = _view(settings, frame, size, dialect.view or settings.view)
    answer = FittedAnswer(State.NO_BOX_IN_TEXT, size or (0, 0))
    if parsed.boxes:
        assert size is not None
        answer = _placed(frame, size, view)
        fit(answer, parsed.boxes, None, truncate=dialect.whole_pixels)
    answer.illegal += parsed.illegal
    answer.truncated, answer.tag, answer.labels = parsed.truncated, parsed.tag, parsed.labels
    if answer.boxes:
        answer.state = State.ANSWERED
    elif parsed.boxes or parsed.illegal or parsed.meant:
        # What answers a phrase repeats it, and a phrase is a text of a report, which no message holds.
        answer.state, answer.excerpt = State.UNPARSABLE, "" if "phrase" in line else excerpt_of(text)
    elif parsed.empty:
        answer.state = State.SILENT
    return answer


def _placed(frame: str, size: Size, view: Size | None) -> FittedAnswer:
    return FittedAnswer(State.ANSWERED, size, axes=placed_axes(frame, size, view), cropped=frame == "crop")


def size_of_line(settings: Settings, row: int, questions: Questions, *, needed: bool) -> Size | None:
    """Width and height of the original image. Raises BadLine when they are needed and nobody states them."""
    stated = settings.size
    dataset_size = questions.size(row) if needed or stated is not None else None
    if stated is not None and dataset_size is not None and stated != dataset_size:
        sizes = f"{stated[0]} x {stated[1]}, and the dataset says {dataset_size[0]} x {dataset_size[1]}"
        raise BadLine("size", f"size is {sizes}; correct it, or leave it out")
    if needed and stated is None and dataset_size is None:
        raise BadLine("size", "the size of the image is not known, since its file cannot be read; write size")
    return dataset_size or stated


def _view(settings: Settings, frame: str, size: Size | None, view: View | None) -> Size | None:
    """What the model saw of an image, for frames that need it. Raises BadLine."""
    if frame not in VIEWED:
        return None
    if view is None:
        whose = f"the dialect {settings.dialect}" if settings.frame != frame else f"the frame {frame}"
        raise BadLine("view", f"{whose} needs view, the width and height of what the model saw; write it")
    if isinstance(view, Budget) and frame != "resized":
        raise BadLine("view", f"the frame {frame} needs [width, height] as view")
    if size is None:
        return None
    try:
        return view_of(view, size)
    except ValueError as error:
        raise BadLine("view", f"the image has {size[0]} x {size[1]} pixels, and {error}") from None


def _text(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    if isinstance(value, str) and value:
        return value
    if key not in line:
        other = ", or a phrase" if key == "finding" else ""
        raise BadLine(key, f"the line has no {key}; write it as the dataset spells it{other}")
    raise BadLine(key, f"{key} is not a text; write it as the dataset spells it, in quotes")
