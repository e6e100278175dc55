"""A request whose body is an image file is the request of the JSON form."""

from __future__ import annotations

import base64
import json

import pytest
from xbench_fast.runtime.serving.http.codec import FILE_TYPES, JSON_TYPES, check_content_type, decode_infer
from xbench_fast.runtime.serving.http.files import QUERY, as_picture, decode_file, prefers_picture
from xbench_fast.runtime.serving.protocol.interface import DEFAULT_OUTPUTS
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest
from xbench_fast.runtime.serving.protocol.requests import check_request

FILE = b"\x89PNG\x00\xff"


def test_the_two_forms_are_one_request() -> None:
    query = [("finding", "Mass, left"), ("findings", "Effusion, Nodule"), ("tau", "0.25"), ("prompt_set", "other")]
    query += [("outputs", "boxes,findings"), ("output", "mask"), ("timeout", "5000000"), ("id", "41")]
    text = {
        "id": "41",
        "inputs": [
            {
                "name": "image",
                "datatype": "BYTES",
                "shape": [1],
                "data": [base64.b64encode(FILE).decode()],
                "parameters": {"content_type": "base64"},
            },
            {"name": "findings", "datatype": "BYTES", "shape": [3], "data": ["Mass, left", "Effusion", "Nodule"]},
        ],
        "outputs": [{"name": "boxes"}, {"name": "findings"}, {"name": "mask"}],
        "parameters": {"tau": 0.25, "prompt_set": "other", "timeout": 5_000_000},
    }
    assert {name for name, _ in query} == set(QUERY)
    assert decode_file("kad", FILE, query) == decode_infer("kad", json.dumps(text).encode(), None)
    plain = decode_file("kad", FILE, []).request
    assert plain.images == (FILE,) and plain.findings is None and plain.outputs == DEFAULT_OUTPUTS


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ([("findngs", "Mass")], "no query parameter 'findngs': did you mean 'findings'"),
        ([("tau", "0.1"), ("tau", "0.2")], "'tau' is given 2 times"),
        ([("tau", "half")], "'tau' must be a number"),
        ([("tau", "nan")], "tau is nan"),
        ([("timeout", "inf")], "timeout must be a number"),
        ([("timeout", "")], "'timeout' must be a number"),
        ([("prompt_set", "")], "'prompt_set' must be a string that is not empty"),
        ([("output", "logit")], "did you mean 'logits'"),
        ([("output", "mask"), ("outputs", "mask")], "duplicate output"),
        ([("finding", "Mass"), ("findings", "Mass")], "duplicate finding"),
        ([("finding", "x" * 9000)], "more than"),
    ],
)
def test_what_is_wrong_is_said(query: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        check_request(decode_file("kad", FILE, query).request)


@pytest.mark.parametrize("kind", ["image/webp", "multipart/form-data; boundary=x", "text/html", "application/pdf"])
def test_other_content_types_are_refused(kind: str) -> None:
    with pytest.raises(BadRequest, match="is not taken; send application/json") as caught:
        check_content_type(kind)
    assert caught.value.http_status == 415
    assert all(name in str(caught.value) for name in FILE_TYPES)


def test_content_types_that_are_taken() -> None:
    assert all(check_content_type(kind) for kind in (*FILE_TYPES, "Application/DICOM; transfer-syntax=*"))
    assert not any(check_content_type(kind) for kind in (*JSON_TYPES, "application/json; charset=utf-8"))


@pytest.mark.parametrize(
    ("accept", "picture"),
    [
        ("image/png", True),
        ("IMAGE/PNG; charset=x", True),
        ("image/png, application/json", True),
        ("application/json, image/png", False),
        ("application/json;q=0.5, image/png;q=0.8", True),
        ("image/png;q=0", False),
        ("image/png;q=no", False),
        ("image/png;q=nan", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_what_the_client_prefers(accept: str, picture: bool) -> None:
    assert prefers_picture(accept) == picture


def test_a_picture_shows_one_image() -> None:
    request = as_picture(decode_file("kad", FILE, [("finding", "Mass"), ("tau", "0.3")]).request)
    assert request.findings == ("Mass",) and request.tau == 0.3 and "overlay" in request.outputs
    with pytest.raises(BadRequest, match="shows one image, the request has 2"):
        as_picture(type(request)("kad", images=(FILE, FILE)))


@pytest.mark.parametrize(
    ("start", "kind"),
    [(FILE, "image/png"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (bytes(128) + b"DICM", "application/dicom")],
)
def test_a_file_sent_as_json_is_told_its_content_type(start: bytes, kind: str) -> None:
    with pytest.raises(BadRequest, match=f"is an image file; send it with the header 'Content-Type: {kind}'"):
        decode_infer("kad", start, None)
