"""A request whose body is an image file is the request of the JSON form."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from xbench_fast.runtime.serving.http.body_files import (
    QUERY,
    as_lines,
    as_picture,
    decode_file,
    lines_of,
)
from xbench_fast.runtime.serving.http.http_codec import FILE_TYPES, JSON_TYPES, check_content_type, decode_infer
from xbench_fast.runtime.serving.protocol.interface import DEFAULT_OUTPUTS
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest
from xbench_fast.runtime.serving.protocol.requests import Answer, check_request

FILE = b"\x89PNG\r\n\x1a\n\x00\xff"


def test_the_two_forms_are_one_request() -> None:
    query = [("finding", "Mass, left"), ("findings", "Effusion, Nodule"), ("tau", "0.25"), ("prompt_set", "other")]
    query += [("outputs", "boxes,findings"), ("output", "mask"), ("timeout", "5000000"), ("id", "41")]
    query += [("dicom_kinds", "mask,map")]
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
        "parameters": {"tau": 0.25, "prompt_set": "other", "timeout": 5_000_000, "dicom_kinds": "mask,map"},
    }
    assert {name for name, _ in query} == set(QUERY)
    assert decode_file("kad", FILE, query) == decode_infer("kad", json.dumps(text).encode(), None)
    plain = decode_file("kad", FILE, []).request
    assert plain.images == (FILE,) and plain.findings is None and plain.outputs == DEFAULT_OUTPUTS


def test_names_are_asked_for_once_and_empty_ones_are_none() -> None:
    query = [
        ("output", "mask"),
        ("outputs", "mask,,boxes"),
        ("finding", "Mass"),
        ("findings", "Mass, "),
        ("finding", ""),
    ]
    request = decode_file("kad", FILE, query).request
    assert request.outputs == {"mask", "boxes"} and request.findings == ("Mass",)
    empty = decode_file("kad", FILE, [("outputs", ""), ("findings", ""), ("id", "")]).request
    assert empty.findings is None and empty.outputs == DEFAULT_OUTPUTS


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


def test_a_picture_shows_one_image() -> None:
    request = as_picture(decode_file("kad", FILE, [("finding", "Mass"), ("tau", "0.3")]).request)
    assert request.findings == ("Mass",) and request.tau == 0.3 and "overlay" in request.outputs
    with pytest.raises(BadRequest, match="shows one image, the request has 2"):
        as_picture(type(request)("kad", images=(FILE, FILE)))


def test_lines_of_boxes_are_of_one_case() -> None:
    request = as_lines(decode_file("kad", FILE, [("id", "36302"), ("tau", "0.3"), ("output", "saliency")]).request)
    assert request.outputs == {"findings", "boxes"} and (request.tau, request.id) == (0.3, "36302")
    with pytest.raises(BadRequest, match="name their case; give it as the request's id"):
        as_lines(decode_file("kad", FILE, [("id", " ")]).request)
    with pytest.raises(BadRequest, match="are of one image, the request has 2"):
        as_lines(type(request)("kad", images=(FILE, FILE), id="a"))


def test_boxes_become_lines() -> None:
    """The corners of connected regions are whole numbers of the 224 x 224 grid, stored as float32 fractions."""
    rows = [[0, 1, 3 / 224, 0, 1, 223 / 224, 0.75], [0, 1, 7 / 224, 1 / 224, 11 / 224, 13 / 224, 1]]
    outputs = {"findings": np.array([b"M", b"E"], object), "boxes": np.array(rows, np.float32)}
    text = lines_of(Answer("kad", "1", "main", ("M", "E"), 0.5, outputs, "36302")).decode()
    assert text.endswith("}\n")
    empty, two = map(json.loads, text.splitlines())
    assert (empty["case"], empty["finding"], empty["boxes"], empty["scores"]) == ("36302", "M", [], [])
    assert two["boxes"] == [[3, 0, 224, 223], [7, 1, 11, 13]] and two["scores"] == [0.75, 1]
    assert (two["frame"], two["view"], two["model"], two["note"]) == ("resized", [224, 224], "kad", "tau 0.5")


@pytest.mark.parametrize(
    ("start", "kind"),
    [(FILE, "image/png"), (b"\xff\xd8\xff\xe0", "image/jpeg"), (bytes(128) + b"DICM", "application/dicom")],
)
def test_a_file_sent_as_json_is_told_its_content_type(start: bytes, kind: str) -> None:
    with pytest.raises(BadRequest, match=f"is an image file; send it with the header 'Content-Type: {kind}'"):
        decode_infer("kad", start, None)
