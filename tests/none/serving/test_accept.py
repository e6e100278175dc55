"""What a client accepts, and what of it is answered (RFC 9110 §12.5.1)."""

from __future__ import annotations

import pytest
from xbench_fast.runtime.serving.http.accept import BINARY, JSON, accepted
from xbench_fast.runtime.serving.http.body_files import LINES, PICTURE
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest

FORMS = (JSON, PICTURE, LINES, BINARY)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("image/png", PICTURE),
        ("IMAGE/PNG; charset=x", PICTURE),
        ("image/png, application/json", PICTURE),
        ("application/json, image/png", JSON),
        ("application/json;q=0.5, image/png;q=0.8", PICTURE),
        ("application/jsonl", LINES),
        ("image/png;q=0.5, application/jsonl", LINES),
        ("application/jsonl, application/json", LINES),
        ("application/json, application/jsonl", JSON),
        ("*/*", JSON),
        ("", JSON),
        (" , ", JSON),
        ("application/*", JSON),
        ("image/*", PICTURE),
        ("image/*;q=0.2, */*;q=0.1", PICTURE),
        ("*/*, image/png", PICTURE),
        ("image/png;q=0.5, */*;q=0.8", JSON),
        ("image/png, */*;q=0.8", PICTURE),
        ("application/json;q=0, */*", PICTURE),
        ("application/*;q=0, */*", PICTURE),
        ("application/*;q=0, application/jsonl;q=0.1", LINES),
        ("application/octet-stream", BINARY),
        ("application/octet-stream;q=0.9, application/json", JSON),
        ("application/json, text/plain, */*", JSON),
        ("text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8", JSON),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", JSON),
        ("image/png;q=no, application/json", JSON),
    ],
)
def test_what_the_client_prefers(accept: str, form: str) -> None:
    assert accepted(accept.split("|"), FORMS) == form


def test_a_header_on_several_lines_is_one_list() -> None:
    assert accepted(["text/html", "image/png;q=0.5", "application/jsonl;q=0.4"], FORMS) == PICTURE
    assert accepted([], FORMS) == JSON and accepted([], (BINARY, JSON)) == BINARY


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "image/jpg",
        "text/*",
        "application/xml",
        "*/*;q=0",
        "image/png;q=0",
        "image/png;q=no",
        "image/png;q=nan",
        "image/png;q=2",
        "application/json;q=-1",
        "json",
    ],
)
def test_what_cannot_be_met_is_refused(accept: str) -> None:
    with pytest.raises(BadRequest, match=r"takes none of application/json, image/png, .*; send one of them") as caught:
        accepted([accept], FORMS)
    assert caught.value.http_status == 406


def test_a_header_of_many_media_types_is_not_read() -> None:
    """4 MB of them took 11 s, in which nobody else was answered."""
    assert accepted(["a/b," * 1000, "*/*"], FORMS) == FORMS[0]
    with pytest.raises(BadRequest, match="Accept header has more than 4096 characters") as caught:
        accepted(["a/b," * 1000, "a/b," * 25, "*/*"], FORMS)
    assert caught.value.http_status == 406


def test_one_form_is_the_answer_or_none() -> None:
    assert accepted(["text/plain;version=0.0.4;q=0.3, */*;q=0.1"], ("text/plain",)) == "text/plain"
    with pytest.raises(BadRequest, match="none of text/html"):
        accepted(["application/json"], ("text/html",))
