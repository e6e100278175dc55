"""A line of words in a file of boxes -> the answers that it gives, drawn on their image (docs/words.md §1, §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....metrics_gpu.zones.thorax_places import mirrored_places, rectangles_of
from ..answered import State
from ..bad_line import BadLine
from ..dialects.parsed import has_numbers_in_bracket
from ..dialects.thoughts import answer_part
from ..entry import asked_by, finished, size_of_line
from ..fitting import FittedAnswer, fit
from ..line_keys import Settings
from ..questions import Place, Questions
from ..unread_answers import excerpt_of
from .class_answers import NO_REMARK, Remark, WordsAnswer, WordState, class_answer, unstated
from .grammar import read_words
from .place_groups import Places
from .statements import WordsReading
from .thorax_frames import ThoraxFrames
from .zone_codes import ZoneCodes, read_zones

TEXT = "text"
"""The dialect of sentences; a line of it may leave out finding and phrase."""

_STATES = {
    WordState.ANSWERED: State.ANSWERED,
    WordState.NOT_READ: State.UNPARSABLE,
    WordState.FOREIGN: State.UNPARSABLE,
    WordState.EMPTY: State.NO_BOX_IN_TEXT,
}
"""As an answer of boxes; the others are silent."""


def word_answers(
    line: Mapping[str, Any], settings: Settings, questions: Questions, frames: ThoraxFrames
) -> tuple[bool, list[tuple[Place, FittedAnswer]]]:
    """Whether a line is about one finding, and the answers of its pairs. Raises BadLine, and DataError for masks."""
    text = _checked_text(line, settings)
    asked = "finding" in line or "phrase" in line
    if not asked and settings.dialect != TEXT:
        raise BadLine("finding", f"only the dialect {TEXT} may leave out finding and phrase; write one of them")
    if asked:
        row, places = asked_by(line, questions)
    else:
        row, places = _of_report(line, questions)
    read = _zones(text, settings) if settings.dialect != TEXT else _sentences(text, settings)
    drawing = _Drawing(settings, row, questions, frames)
    answers = []
    for place in places:
        name = questions.pair(place).asked
        if isinstance(read, ZoneCodes):
            answers.append((place, drawing.of_codes(read, text)))
        else:
            words = class_answer(read, name, asked=asked, uncertain=frames.options.uncertain)
            remark = Remark.BOX_IN_TEXT if has_numbers_in_bracket(text) else NO_REMARK
            answers.append((place, drawing.of_words(words, remark, text, cut=read.cut)))
    return asked, [(place, finished(answer, line)) for place, answer in answers]


def _checked_text(line: Mapping[str, Any], settings: Settings) -> str:
    if "boxes" in line:
        raise BadLine("boxes", f"boxes are not read by a dialect, and the dialect is {settings.dialect}; leave it out")
    if "text" not in line:
        raise BadLine("text", "the line has no text; write the model's raw answer")
    text = line["text"]
    if not isinstance(text, str):
        raise BadLine("text", 'text is not a text; write the model\'s raw answer in quotes, "" if it says nothing')
    if "scores" in line:
        raise BadLine("scores", "scores belong to boxes, and a raw text has none; leave scores out, or write boxes")
    if "frame" in settings.line_keys:
        raise BadLine("frame", f"the dialect {settings.dialect} is drawn on a frame of the thorax; leave frame out")
    return text


def _of_report(line: Mapping[str, Any], questions: Questions) -> tuple[int, list[Place]]:
    """The pairs of a report: all of its image that have a region, or whose finding is annotated absent."""
    case = line.get("case")
    if not isinstance(case, str) or not case:
        raise BadLine("case", "the line has no case; write it as the dataset spells it")
    row = questions.case(case)
    columns = range(len(questions.classes))
    places = [questions.pair_number(at, column) for at in questions.of_image(row) for column in columns]
    return row, [place for place in places if questions.has_region(place) or questions.label(place) == 0]


def _sentences(text: str, settings: Settings) -> WordsReading:
    return read_words(text, settings.thoughts, mirrored=settings.sides == "image")


def _zones(text: str, settings: Settings) -> ZoneCodes:
    return read_zones(answer_part(text, settings.thoughts)[0], mirrored=settings.sides == "image")


class _Drawing:
    """Draws the answers of one line."""

    def __init__(self, settings: Settings, row: int, questions: Questions, frames: ThoraxFrames) -> None:
        self._settings, self._row, self._questions, self._frames = settings, row, questions, frames

    def of_codes(self, codes: ZoneCodes, text: str) -> FittedAnswer:
        state = WordState.ANSWERED if codes.places.names else WordState.NOT_READ if codes.illegal else WordState.DENIED
        if not codes.given:
            state = WordState.EMPTY
        answer = self.of_words(WordsAnswer(state, codes.places), unstated(codes.places), text, cut=False)
        if state is WordState.DENIED and not codes.none:
            answer.state = State.NO_BOX_IN_TEXT
        answer.illegal = codes.illegal
        return answer

    def of_words(self, words: WordsAnswer, remark: Remark, text: str, *, cut: bool) -> FittedAnswer:
        names = words.places.names
        if self._frames.options.mirrored:
            names = mirrored_places(names)
        size = size_of_line(self._settings, self._row, self._questions, needed=bool(names))
        answer = FittedAnswer(_STATES.get(words.state, State.SILENT), size or (0, 0), truncated=cut)
        if names:
            assert size is not None
            frame, is_fixed = self._frames.frame(self._row)
            fit(answer, [frame.pixels(rectangle, size) for rectangle in rectangles_of(names)], None)
            answer.written = ()
            remark |= Remark.FRAME_FIXED if is_fixed else NO_REMARK
        if answer.state == State.UNPARSABLE or words.state == WordState.OTHER:
            answer.excerpt = excerpt_of(text)
        places = Places(names, words.places.sides_stated, words.places.levels_stated)
        answer.words = WordsAnswer(words.state, places, words.remarks | remark, words.size, words.skipped)
        return answer
