"""From which share on answers that could not be read are said, and from which on they are an error."""

from __future__ import annotations

import pytest
from xbench_fast.runtime.data.answers.unread_answers import UnreadAnswers
from xbench_fast.runtime.reporting.tables.stamps import box_stamps


@pytest.mark.parametrize(
    ("count", "given", "many", "most"),
    [(0, 0, False, False), (0, 9, False, False), (1, 100, False, False), (2, 100, True, False), (49, 100, True, False),
     (50, 100, True, True), (1, 2, True, True), (1, 3, True, False), (9, 9, True, True)],
)  # fmt: skip
def test_one_in_a_hundred_is_left_unsaid_and_half_is_an_error(count: int, given: int, many: bool, most: bool) -> None:
    unread = UnreadAnswers(count, given)
    assert (unread.many, unread.most) == (many, most)
    assert ("most likely wrong" in unread.sentence) == most and bool(unread.sentence) == bool(count)


def test_of_words_one_in_ten_is_left_unsaid() -> None:
    for count, many in ((10, False), (11, True)):
        assert UnreadAnswers(count, 100, words=True).many is many
        told = {"unread": (count, 100), "words": {"uncertain": "present", "frame": "thorax"}}
        told["words"] |= {"not_frontal": 0, "frame_fixed": 0}
        said = [line for line in box_stamps([("words:a", told)]) if "could not be read" in line]
        assert said == ["words:a: 11 of 100 answers (11.0%) could not be read; they have no places"] * many


def test_answers_that_end_in_a_thought_are_lost_too() -> None:
    both = UnreadAnswers(4, 4, "line 2", 4)
    assert both.most and "4 end before any box" in both.sentence and "dialect" not in both.sentence
    assert "dialect or the frame" in UnreadAnswers(4, 4, "line 2", 1).sentence
