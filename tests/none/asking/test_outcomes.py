"""What a reply of a server means (docs/ask.md §5), and how many requests are under way."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.runtime.asking.asked_file import finish_of_record
from xbench_fast.runtime.asking.gate import Gate
from xbench_fast.runtime.asking.outcomes import Expected, ReplyOutcome, outcome_of, shown_error
from xbench_fast.runtime.host.http.http_client import Reply
from xbench_fast.runtime.host.http.waits import retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
EXPECTED = Expected("m", ("other",), ("sk-secret",))


def of(status: int = 200, body: Any = None, retry: str | None = None) -> ReplyOutcome:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return outcome_of(Reply(status, data, retry), EXPECTED, NOW)


def answer(content: Any = "[]", finish: Any = "stop", model: Any = "m", **message: Any) -> dict[str, Any]:
    return {"model": model, "choices": [{"message": {"content": content, **message}, "finish_reason": finish}]}


@pytest.mark.parametrize(
    ("body", "kind", "text", "finish"),
    [
        (answer(), "answer", "[]", "stop"),
        (answer(finish="length"), "truncated", "[]", "length"),
        (answer(None), "empty", "", "stop"),
        (answer("", "content_filter"), "refused", "", "content_filter"),
        (answer(None, refusal="No."), "refused", "No.", "refusal"),
        (answer("", refusal=""), "empty", "", "stop"),
        (answer(None, "length", reasoning_content="[1]"), "truncated", "", "length"),
        (answer(finish="eos"), "answer", "[]", "other"),
        (answer(finish=None), "answer", "[]", "other"),
        (answer([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "answer", "ab", "stop"),
        (answer([{"type": "thinking", "thinking": "[1]"}, {"type": "text", "text": "a"}]), "answer", "a", "stop"),
        (answer("\ud800x"), "answer", "\ufffdx", "stop"),
        (answer("key sk-secret"), "answer", "key [removed]", "stop"),
    ],
)
def test_answers(body: dict[str, Any], kind: str, text: str, finish: str) -> None:
    outcome = of(body=body)
    assert (outcome.kind, outcome.record["text"], finish_of_record(outcome.record)) == (kind, text, finish)


def test_thoughts_are_kept_and_are_no_answer() -> None:
    record = of(body=answer("", reasoning_content="[[1, 2, 3, 4]]")).record
    assert record["reasoning"] == "[[1, 2, 3, 4]]" and record["text"] == ""


@pytest.mark.parametrize(
    ("model", "kind"),
    [("m", "answer"), ("m-2024-08-06", "answer"), ("other", "answer"), (None, "answer"), ("m-mini", "other_model")],
)
def test_the_model_that_answers(model: str | None, kind: str) -> None:
    assert of(body=answer(model=model)).kind == kind


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": [{"message": {"content": 1}}]}',
     b'{"a": 1, "a": 2}', b"[NaN]", b"[" * 100_000, b"\xff", b'{"choices": [{"message": {"content": []}}]}'],
)  # fmt: skip
def test_garbage_is_tried_again(body: bytes) -> None:
    outcome = of(body=body)
    assert (outcome.kind, outcome.garbage) == ("again", True)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "again"), (503, "again"), (500, "again"), (408, "again"), (400, "rejected"), (401, "stop"), (403, "stop"),
     (404, "stop"), (413, "stop"), (422, "stop"), (301, "stop"), (307, "stop"), (418, "stop")],
)  # fmt: skip
def test_status(status: int, kind: str) -> None:
    outcome = of(status, {})
    assert (outcome.kind, outcome.congested) == (kind, status in (429, 503))


def test_a_long_wait_and_a_used_up_quota_end_the_run() -> None:
    assert of(429, {}, "300").wait == 300 and of(429, {}, "301").kind == "stop"
    assert of(429, {"error": {"code": "insufficient_quota", "message": "x"}}).kind == "stop"
    assert of(429, {"error": {"type": "insufficient_quota"}}).kind == "stop"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("2", 2.0), ("Thu, 01 Jan 2026 12:00:03 GMT", 3.0), ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0), ("soon", None),
     (None, None), ("-1", None)],
)  # fmt: skip
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


def test_errors_are_shown_without_images_and_keys() -> None:
    body = {"error": {"message": "bad data:image/png;base64,AAAA+/= for sk-secret\n" + "x" * 900}}
    reason = of(400, body).reason
    assert "AAAA" not in reason and "sk-secret" not in reason and "\n" not in reason and len(reason) < 600
    assert shown_error("a\n b") == "a b"
    assert of(400, {"detail": ["\u00e9t\u00e9"]}).reason.endswith('["\u00e9t\u00e9"]')
    assert "base64" not in of(422, {"detail": [{"input": {"url": "data:image/png;base64,AAAA"}}]}).reason


@settings(max_examples=150, deadline=None)
@given(status=st.sampled_from([200, 400, 429, 500]), body=st.binary(max_size=200))
def test_any_bytes_are_no_answer_that_was_not_sent(status: int, body: bytes) -> None:
    outcome = outcome_of(Reply(status, body), EXPECTED, NOW)
    assert outcome.kind in ("again", "rejected")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["choices", "message", "content", "error", "usage", "model", "refusal"]), inner, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(status=st.sampled_from([200, 400, 404, 429, 500]), value=JSON)
def test_any_document_is_read_without_an_exception(status: int, value: Any) -> None:
    outcome = outcome_of(Reply(status, json.dumps(value).encode()), EXPECTED, NOW)
    assert outcome.kind in ("again", "rejected", "stop", "other_model", "answer", "empty", "refused", "truncated")


@pytest.mark.parametrize("depth", [300, 600, 900, 100_000])
def test_a_deep_document_is_no_answer(depth: int) -> None:
    for deep in (b"[" * depth + b"]" * depth, b'{"error": ' * depth + b"1" + b"}" * depth):
        assert [outcome_of(Reply(status, deep), EXPECTED, NOW).kind for status in (200, 400)] == ["again", "rejected"]


def test_a_date_after_the_id_has_digits_of_ascii() -> None:
    names = ["m", "m-2024-08-06", "m-20240806", "m-\uff12\uff10", "m-", "m--", "m-a", "M", "mm"]
    assert [name for name in names if Expected("m").is_model(name)] == names[:3]


def test_a_failure_with_status_200_is_told() -> None:
    outcome = of(200, {"error": {"message": "out of memory", "code": 500}})
    assert outcome.garbage and outcome.reason == "the answer has no choice with a text: out of memory"
    assert of(200, {"id": 1}).reason == of(200, {"error": None}).reason == "the answer has no choice with a text"


def test_a_count_is_a_number_of_tokens() -> None:
    usage = {
        "prompt_tokens": 10**400,
        "completion_tokens": -1,
        "total_tokens": True,
        "a": 1.0,
        "b": "2",
        "c": 0,
        "d": 7,
    }
    choices = [{"message": {"content": "x"}, "finish_reason": "stop"}]
    assert of(200, {"choices": choices, "usage": usage}).record["usage"] == {"c": 0, "d": 7}


def test_the_first_request_goes_alone_and_a_busy_server_halves_once() -> None:
    gate = Gate(8)
    first = gate.enter()
    assert first is not None and gate.limit == 1
    gate.leave(first, congested=False, answered=True)
    assert gate.limit == 8
    entered = [gate.enter() for _ in range(8)]
    for place in entered[:4]:
        assert place is not None
        gate.leave(place, congested=True, answered=False)
    assert gate.limit == 4, "requests that were under way together halve once"
    for place in entered[4:]:
        assert place is not None
        gate.leave(place, congested=False, answered=True)
    for _ in range(15):
        gate.leave(gate.enter() or 0, congested=False, answered=True)
    assert gate.limit == 4
    gate.leave(gate.enter() or 0, congested=False, answered=True)
    assert gate.limit == 5, "20 answers in a row add one"


def test_nothing_enters_a_stopped_gate() -> None:
    gate = Gate(1)
    assert gate.enter() == 0
    waiting: list[int | None] = []
    thread = threading.Thread(target=lambda: waiting.append(gate.enter()))
    thread.start()
    gate.stop()
    thread.join(10)
    assert waiting == [None] and gate.enter() is None
    gate.pause(60)  # returns at once
