"""Grounded phrases as RadFact reads them: for each study a list of texts with boxes or null (docs/boxes.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ....engines.errors import DataError
from ..datasets.phrases.phrase_pairs import phrase_key
from .answered import State
from .bad_line import BadLine
from .box_file import FileReading
from .coco_results import annotations_given, is_coco_file
from .coordinate_frames import Corners, placed_axes
from .fitting import FittedAnswer, fit
from .line_keys import four_numbers
from .lines import JsonFile, opening
from .questions import Place, Questions

RADFACT: Final = "radfact"
_CORNERS: Final = ("x_min", "y_min", "x_max", "y_max")


def read_grounded_phrases(reading: FileReading) -> str:
    """Adds every pair of the studies in the file; the SHA-256 of the file.

    A text is matched to a finding or a phrase by `ReadOptions.mapping`, else if it is equal; upper and lower case do
    not count. The boxes of all texts of a pair are one answer, and a pair of a study without a text is silent. Raises
    DataError.
    """
    reading.file_format, reading.word = RADFACT, "entry"
    texts = _Texts(reading.questions, reading.options.mapping)
    file = JsonFile(reading.path)
    if opening(reading.path) != b"{" and not isinstance(file.document(), dict):
        raise DataError(f"{reading.path}: it is not a JSON object of studies; write their phrases under their names.")
    if '"images"' in file.text and is_coco_file(file.document()):
        raise annotations_given(reading.path)
    rows = []
    for study, phrases in file.entries():
        try:
            row = reading.questions.case(study)
            if not isinstance(phrases, list):
                raise BadLine(study[:80], "its value is not a list of phrases; write [] for none")
        except BadLine as error:
            reading.bad(error, reading.lines + 1)
            continue
        rows += reading.questions.of_image(row)
        _study(reading, texts, row, phrases)
    if reading.unmatched and reading.unmatched == reading.lines - reading.rejected:
        problem = "none of its texts is a finding or a phrase of the dataset"
        raise DataError(f"{reading.path}: {problem}; map texts to findings in a JSON file and name it: --mapping FILE.")
    reading.silence(dict.fromkeys(rows), range(len(reading.questions.classes)))
    return file.sha256


def _study(reading: FileReading, texts: _Texts, row: int, phrases: list[Any]) -> None:
    answers: dict[Place, tuple[int, list[Corners]]] = {}
    for phrase in phrases:
        reading.lines += 1
        try:
            text, boxes = _phrase(phrase)
            reading.sense("unit", boxes, reading.lines, text=False)
        except BadLine as error:
            reading.bad(error, reading.lines)
            continue
        places = texts.places(row, text)
        reading.unmatched += not places
        reading.conventions["unit"] += bool(places)
        for pair_number in places:
            answers.setdefault(pair_number, (reading.lines, []))[1].extend(boxes)
    for pair_number, (number, boxes) in answers.items():
        answer = FittedAnswer(State.SILENT)
        try:
            if boxes:
                size = reading.questions.size(row)
                if size is None:
                    raise BadLine("", "the size of the image is not known, since its file cannot be read; provide it")
                answer = FittedAnswer(State.ANSWERED, size, axes=placed_axes("unit", size, None))
                fit(answer, boxes, None)
                answer.state = State.ANSWERED if answer.boxes else State.UNPARSABLE
            reading.add([pair_number], number, answer)
        except BadLine as error:
            reading.bad(error, number)


def _phrase(phrase: Any) -> tuple[str, list[Corners]]:
    """The text and the corners of one phrase. Raises BadLine."""
    if not isinstance(phrase, dict) or not isinstance(phrase.get("text"), str):
        raise BadLine("text", "it is not an object with a text; write text and boxes")
    if not phrase.keys() <= {"text", "boxes"} or "boxes" not in phrase:
        raise BadLine("boxes", "it must have the keys text and boxes, and no others; write null for no box")
    boxes = phrase["boxes"]
    if boxes is None:
        return phrase["text"], []
    if not isinstance(boxes, list) or any(not isinstance(box, dict) or box.keys() != set(_CORNERS) for box in boxes):
        raise BadLine("boxes", f"boxes must be null or a list of objects with {', '.join(_CORNERS)}; correct it")
    return phrase["text"], four_numbers([[box[key] for key in _CORNERS] for box in boxes])


class _Texts:
    """Texts of reports -> the pairs of an image that they answer."""

    def __init__(self, questions: Questions, mapping: Path | None) -> None:
        self._questions = questions
        self._mapping: dict[str, str | None] = {}
        if mapping is not None:
            self._read(mapping)

    def _read(self, path: Path) -> None:
        document = JsonFile(path).document()
        if not isinstance(document, dict):
            raise DataError(
                f"{path}: it is not a JSON object; write texts as keys, and a finding, a phrase or null for each."
            )
        for text, name in document.items():
            if name is not None and not isinstance(name, str):
                raise DataError(
                    f"{path}: a text is mapped to {type(name).__name__}; write a finding, a phrase or null."
                )
            self._mapping[phrase_key(text)] = name

    def places(self, row: int, text: str) -> list[Place]:
        """The pairs of a case, or of its image, that a text answers; none if it is no finding and no phrase of it."""
        key = phrase_key(text)
        name = self._mapping.get(key, key)
        if name is None:
            return []
        column = self._findings.get(phrase_key(name))
        if column is not None:
            return [self._questions.pair_number(row, column)]
        try:
            return self._questions.places_of_phrase(self._questions.cases[row].case_id, name, None)[1]
        except BadLine:
            return []

    @cached_property
    def _findings(self) -> Mapping[str, int]:
        return {phrase_key(name): column for column, name in enumerate(self._questions.classes)}
