"""The words of a trust card's lines: what does not apply, and when a line passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from xbench_fast.metrics_gpu.trust.verdicts import Criterion
from xbench_fast.runtime.reporting.studies.study_cell import StudyCell
from xbench_fast.runtime.trust.card.card import WORDS, CardNumber, judged_line
from xbench_fast.runtime.trust.card.probe_lines import why_no_passes


@pytest.mark.parametrize(
    ("number", "weights", "entry", "why"),
    [
        (5, "boxes", {"boxes": {"reader": "radiologist"}}, "a reader is no model"),
        (5, "boxes", {}, "the boxes are from a file"),
        (6, "maps", {}, "the maps are from a folder"),
        (7, "live", {}, "a model called from Python has no bundle"),
        (7, "published", {"ingredients": {"phrases": "x", "engine": "e fp32"}}, "this dataset asks phrases"),
        (4, "own", {"ingredients": {"engine": "onnxruntime-cpu int8"}}, "the weights are in INT8"),
        (5, "own", {"ingredients": {"engine": "onnxruntime-cpu int8"}}, ""),
        (4, "own", {}, ""),
        (3, "own", {"protocol": "medklip"}, "this result is by medklip; evaluate by the default protocol"),
        (7, "own", {"protocol": "mavl"}, "this result is by mavl"),
        (5, "own", {"ingredients": {"engine": "e fp32", "intensity": "equalised"}}, "prepares images"),
        (5, "own", {"protocol": "chexlocalize"}, ""),
    ],
)
def test_what_does_not_apply_says_why(number: int, weights: str, entry: dict[str, Any], why: str) -> None:
    entry = {"ingredients": {"engine": "onnxruntime-cpu fp32"}, **entry}
    made = str(entry.get("protocol", "default"))
    rows = SimpleNamespace(entry=entry, protocol=made, equalised="intensity" in entry["ingredients"])
    found = why_no_passes(cast(StudyCell, SimpleNamespace(weights=weights, rows=rows)), number)
    assert (why in found) and bool(why) == bool(found)


def numbers(*words: str, patients: int = 12, degenerate: int = 0) -> list[CardNumber]:
    return [
        CardNumber(
            "a", "a", "similarity", 0.1, pairs=30, patients=patients, word=cast(Any, word), degenerate=degenerate
        )
        for word in words
    ]


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "cannot tell"), "cannot tell"),
        (("pass", "void", "cannot tell"), "void"),
        (("pass", "fail", "void"), "fail"),
    ],
)
def test_a_line_passes_only_if_each_of_its_numbers_does(words: tuple[str, ...], word: str) -> None:
    beside = CardNumber("beside", "beside", "pointing", 0.5)
    line = judged_line(5, [*numbers(*words), beside], table="t")
    assert line.word == word and word in WORDS
    assert line.finding.startswith("On these 30 pairs of 12 patients ")


def test_the_edge_of_a_criterion_is_read_from_its_words() -> None:
    def edge(criterion: object) -> float | None:
        return CardNumber("a", "a", "gap", 0.1, criterion=str(criterion)).edge

    criteria = {Criterion(0.01): 0.01, Criterion(0.05, "below"): -0.05, Criterion(0, "below", 0.1, share=True): 0.1,
                Criterion(2e-5, "below", 0.5): 0.49998, Criterion(0.02, bound=-0.3): -0.28}  # fmt: skip
    for criterion, found in criteria.items():
        assert edge(criterion) == pytest.approx(found)
    assert edge("") is edge("an interval that holds 0 and is narrower than 0.1") is None


def test_the_word_stands_with_the_number_that_explains_it() -> None:
    assert judged_line(4, numbers("cannot tell", patients=1), table="").text == "cannot tell (1 patient)"
    void = judged_line(4, numbers("void", degenerate=7), table="")
    assert void.text == "void (7 of 30 maps are degenerate)"
