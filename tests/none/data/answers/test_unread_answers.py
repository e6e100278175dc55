"""From which share on answers that could not be read are said, and from which on they are an error."""

from __future__ import annotations

import pytest
from xbench_fast.runtime.data.answers.unread_answers import UnreadAnswers


@pytest.mark.parametrize(
    ("count", "given", "many", "most"),
    [(0, 0, False, False), (0, 9, False, False), (1, 100, False, False), (2, 100, True, False), (49, 100, True, False),
     (50, 100, True, True), (1, 2, True, True), (1, 3, True, False), (9, 9, True, True)],
)  # fmt: skip
def test_one_in_a_hundred_is_left_unsaid_and_half_is_an_error(count: int, given: int, many: bool, most: bool) -> None:
    unread = UnreadAnswers(count, given)
    assert (unread.many, unread.most) == (many, most)
    assert ("most likely wrong" in unread.sentence) == most and bool(unread.sentence) == bool(count)


def test_answers_that_end_in_a_thought_are_lost_too() -> None:
    both = UnreadAnswers(4, 4, "line 2", 4)
    assert both.most and "4 end before any box" in both.sentence and "dialect" not in both.sentence
    assert "dialect or the frame" in UnreadAnswers(4, 4, "line 2", 1).sentence
