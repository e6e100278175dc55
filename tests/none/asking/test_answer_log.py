"""The log of answers: torn and damaged lines (docs/ask.md §5)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.asking.answer_log import LOG_FILE, AnswerLog, KeptAnswers

ASK = Path(__file__).parents[2] / "ask"
EXPECTED = json.loads((ASK / "store_torn_expected.json").read_text())
KEY = "ab" * 32


def test_a_torn_log(tmp_path: Path) -> None:
    shutil.copy(ASK / "store_torn.jsonl", tmp_path / LOG_FILE)
    (tmp_path / LOG_FILE).chmod(0o644)
    log = AnswerLog(tmp_path, "qwen3vl")
    keys = EXPECTED["keys"]
    assert [number for number, key in enumerate(keys) if log.has(key)] == EXPECTED["answered"]
    assert [number for number, key in enumerate(keys) if not log.has(key)] == EXPECTED["asked_again"]
    for number, text in EXPECTED["texts"].items():
        record = log.answer(keys[int(number)])
        assert record is not None and record["text"] == text
    assert (log.damaged, log.repeated, log.torn) == (
        EXPECTED["damaged_lines"], EXPECTED["repeated_keys"], EXPECTED["torn_bytes"],
    )  # fmt: skip
    log.append({"key": KEY, "kind": "answer", "text": "x"})
    log.close()
    size = EXPECTED["length_after"]
    content = (tmp_path / LOG_FILE).read_bytes()
    assert content[:size] == (ASK / "store_torn.jsonl").read_bytes()[:size]
    assert len((tmp_path / "log.torn").read_bytes()) == EXPECTED["torn_bytes"]
    crc, _, text = content[size:].rstrip(b"\n").partition(b" ")
    assert int(crc, 16) == zlib.crc32(text) and json.loads(text)["key"] == KEY
    assert AnswerLog(tmp_path, "qwen3vl").has(KEY)


def test_a_log_is_read_without_a_change(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be read: No such file"):
        KeptAnswers(tmp_path / "nothing", "qwen3vl")
    assert not (tmp_path / "nothing").exists()
    shutil.copy(ASK / "store_torn.jsonl", tmp_path / LOG_FILE)
    log = KeptAnswers(tmp_path, "qwen3vl")
    assert [number for number, key in enumerate(EXPECTED["keys"]) if log.has(key)] == EXPECTED["answered"]
    assert (log.damaged, log.repeated, log.torn) == (
        EXPECTED["damaged_lines"], EXPECTED["repeated_keys"], EXPECTED["torn_bytes"],
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == [LOG_FILE]
    assert (tmp_path / LOG_FILE).read_bytes() == (ASK / "store_torn.jsonl").read_bytes()


def test_another_dialect_or_version_is_refused(tmp_path: Path) -> None:
    AnswerLog(tmp_path, "qwen3vl").close()
    with pytest.raises(RunError, match="in the dialect qwen3vl, not json"):
        AnswerLog(tmp_path, "json")
    text = b'{"xbench_ask":2,"dialect":"json"}'
    (tmp_path / LOG_FILE).write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    with pytest.raises(RunError, match="has version 2"):
        AnswerLog(tmp_path, "json")


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AnswerLog(tmp_path, "json")
    log.append({"key": KEY, "kind": "answer", "text": "kept"})
    whole = os.write

    def half(file: int, data: bytes) -> int:
        return whole(file, data[:20])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RunError, match=f"{os.strerror(errno.ENOSPC)}.*What was kept before stays"):
        log.append({"key": "cd" * 32, "kind": "answer", "text": "lost"})
    monkeypatch.undo()
    with pytest.raises(RunError):  # it would be glued to the half line
        log.append({"key": "ef" * 32, "kind": "answer", "text": "glued"})
    again = AnswerLog(tmp_path, "json")
    record = again.answer(KEY)
    assert record is not None and record["text"] == "kept" and len(again.keys) == 1 and again.torn == 20


def test_no_line_has_a_line_feed_inside(tmp_path: Path) -> None:
    log = AnswerLog(tmp_path, "json")
    log.append({"key": KEY, "kind": "answer", "text": "a\nb\u2028c\r"})
    log.close()
    assert (tmp_path / LOG_FILE).read_bytes().count(b"\n") == 2
    record = AnswerLog(tmp_path, "json").answer(KEY)
    assert record is not None and record["text"] == "a\nb\u2028c\r"


@pytest.mark.parametrize(
    "record",
    [
        {"key": KEY, "kind": "answer", "text": "\ud800"},
        {"key": KEY, "kind": "answer", "text": None},
        {"key": "\ud800", "kind": "answer", "text": "x"},
        {"image": "a", "preparation": "p", "bytes": 1, "mtime_ns": 1, "pixels": 5, "size": [1, 1], "original": [1, 1]},
        {"image": "a", "preparation": "p", "bytes": 1, "mtime_ns": 1, "pixels": "\ud800", "size": [1, 1],
         "original": [1, 1]},
        {"image": "a", "preparation": "p", "bytes": 1e999, "mtime_ns": 1, "pixels": "ab", "size": [1, 1],
         "original": [1, 1]},
    ],
)  # fmt: skip
def test_a_record_of_another_form_says_nothing(record: dict[str, object], tmp_path: Path) -> None:
    """Its checksum is right, so another program wrote it."""
    AnswerLog(tmp_path, "json").close()
    text = json.dumps(record).encode()
    with (tmp_path / LOG_FILE).open("ab") as stream:
        stream.write(b"%08x %s\n" % (zlib.crc32(text), text))
    log = KeptAnswers(tmp_path, "json")
    assert not log.keys and not log.images


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 1700), junk=st.binary(max_size=80), at=st.integers(0, 1700))
def test_any_damage_gives_no_answer_that_was_not_sent(tmp_path: Path, cut: int, junk: bytes, at: int) -> None:
    whole = (ASK / "store_torn.jsonl").read_bytes()
    folder = tmp_path / "log"
    folder.mkdir(exist_ok=True)
    (folder / LOG_FILE).write_bytes((whole[:at] + junk + whole[at:])[: cut + len(junk)])
    try:
        log = AnswerLog(folder, "qwen3vl")
    except RunError:
        return
    sent = {"[]", '[{"bbox_2d": [1, 2, 3, 4]}]', "y"}
    for key in log.keys:
        record = log.answer(key.hex())
        assert record is not None and record["text"] in sent
    log.close()
