"""What an archive says, right, cut and scrambled: one object or a reason, and no other error (docs/pacs.md §3)."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from xbench_fast.runtime.serving.archive.dicom_json import (
    INSTANCE,
    ROWS,
    entries_of,
    number_of,
    parse,
    store_answer,
    uid_of,
)
from xbench_fast.runtime.serving.protocol.multipart import PartError, body_of, only_object

HEAD = b"Content-Type: application/dicom;transfer-syntax=1.2.840.10008.1.2.1\r\nContent-Length: 9\r\n\r\n"
OBJECT = b"\r\n--\0\r\n\r\n--b\xff\r\n"  # what looks like the end of a part belongs to it


@pytest.mark.parametrize(
    ("kind", "boundary"),
    [
        ('multipart/related; type="application/dicom"; boundary=b-b', b"b-b"),
        ('Multipart/Related;BOUNDARY="b b"; type=application/dicom', b"b b"),
        ("multipart/related; boundary=b:b; start=x", b"b:b"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"preamble\r\n", b"\r\n"])
def test_one_object_is_taken_byte_for_byte(kind: str, boundary: bytes, before: bytes) -> None:
    body = before + b"--%s\r\n%s%s\r\n--%s--\r\nepilogue" % (boundary, HEAD, OBJECT, boundary)
    assert only_object(body, kind) == OBJECT
    for end in range(len(body) - len(b"--\r\nepilogue")):
        with pytest.raises(PartError) as caught:
            only_object(body[:end], kind)
        assert caught.value.cut or end < len(before) + 12 + len(boundary)


def test_a_request_has_each_object_once() -> None:
    kind, pieces = body_of([OBJECT, b"", b"x" * 9])
    boundary = kind.rpartition("boundary=")[2].encode()
    parts = b"".join(pieces).split(b"--" + boundary)
    assert [part.partition(b"\r\n\r\n")[2][:-2] for part in parts[1:-1]] == [OBJECT, b"", b"x" * 9]
    assert parts[-1] == b"--\r\n" and kind.startswith('multipart/related; type="application/dicom"')
    one, pieces = body_of([OBJECT])
    assert only_object(b"".join(pieces), one) == OBJECT


def test_scrambled_bodies_give_a_reason() -> None:
    draw = random.Random(1)
    body = b"--b\r\n%s%s\r\n--b--" % (HEAD, OBJECT)
    for _ in range(3000):
        scrambled = bytearray(body)
        for _ in range(draw.randint(1, 4)):
            scrambled[draw.randrange(len(body))] = draw.choice(b"\r\n-b\0:")
        with suppress(PartError):
            only_object(bytes(scrambled), draw.choice(["multipart/related; boundary=b", "multipart/related", ""]))


def value(of: Any) -> Any:
    return {"vr": "UI", "Value": [of]}


def test_values_of_another_form_count_as_absent() -> None:
    for wrong in (
        None,
        1,
        [],
        {},
        {"Value": None},
        {"Value": []},
        {"Value": 1},
        value(None),
        value(["1.2"]),
        value("x"),
    ):
        assert uid_of({INSTANCE: wrong}, INSTANCE) == "" and number_of({ROWS: wrong}, ROWS) in (None,)
    assert uid_of({INSTANCE: value("1.2/../3")}, INSTANCE) == "" == uid_of({INSTANCE: value("1." * 40)}, INSTANCE)
    assert uid_of({INSTANCE: value("1.2.3")}, INSTANCE) == "1.2.3"
    assert [number_of({ROWS: value(of)}, ROWS) for of in (7, "7", True, 7.5, "-1")] == [7, 7, None, None, None]


def test_what_became_of_objects() -> None:
    document = {
        "00081199": {"vr": "SQ", "Value": [{"00081155": value("1.2")}, 3, {"00081155": value("bad")}, {}]},
        "00081198": {
            "vr": "SQ",
            "Value": [{"00081155": value("1.3"), "00081197": value(272)}, {"00081155": value("1.2")}],
        },
    }
    answer = store_answer(document)
    assert (answer.stored, answer.failed) == (frozenset(), {"1.3": 272, "1.2": 0})  # in both lists: not stored
    assert store_answer([document]) == store_answer(None) == store_answer({"00081199": []})


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"[]", "text/html"), (b"[]", ""), (b"<a/>", "application/dicom+json"), (b"[NaN]", "application/json"),
     (b"[" * 100_000, "application/json"), (b"\xff", "application/json")],
)  # fmt: skip
def test_anything_but_json_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(ValueError):
        parse(body, kind)


def test_a_search_gives_a_list() -> None:
    assert entries_of(parse(json.dumps([{}, 1]).encode(), "application/dicom+json; charset=utf-8")) == [{}, {}]
    with pytest.raises(ValueError, match="no list"):
        entries_of({})
