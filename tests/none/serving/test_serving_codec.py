"""The Open Inference Protocol's bytes: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import base64
import json
import os
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.runtime.serving.http.http_codec import decode_infer, encode_infer
from xbench_fast.runtime.serving.protocol.interface import DEFAULT_OUTPUTS
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest, RequestError
from xbench_fast.runtime.serving.protocol.requests import Answer, check_request
from xbench_fast.runtime.serving.protocol.tensors import DATATYPES, MOST_ITEMS, Tensor, array_to_raw, raw_to_array

EXAMPLES = 60 * int(os.environ.get("XBENCH_FUZZ", "1"))
PIXELS = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 1, 8, 8)


def body(content: dict[str, Any], raw: bytes = b"") -> tuple[bytes, str | None]:
    text = json.dumps(content).encode()
    return text + raw, str(len(text)) if raw else None


def image(data: bytes = b"file") -> dict[str, Any]:
    return {"name": "image", "datatype": "BYTES", "shape": [1], "data": [data.decode()]}


def test_files_come_as_raw_bytes_after_the_json() -> None:
    files = (b"\x00\xff\x00", b"", b"abc")
    raw = b"".join(struct.pack("<I", len(file)) + file for file in files)
    names = b"\x04\x00\x00\x00Mass"
    head = {
        "id": "7",
        "inputs": [
            {"name": "image", "datatype": "BYTES", "shape": [3, 1], "parameters": {"binary_data_size": len(raw)}},
            {"name": "findings", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(names)}},
        ],
        "outputs": [
            {"name": "logits", "parameters": {"binary_data": True}},
            {"name": "mask"},
            {"name": "boxes", "parameters": {"binary_data": False}},
        ],
        "parameters": {"tau": 0.25, "prompt_set": "coco", "timeout": 1500000, "binary_data_output": True},
    }
    decoded = decode_infer("kad", *body(head, raw + names))
    request = decoded.request
    assert request.images == files and request.findings == ("Mass",) and request.count == 3
    assert (request.model, request.tau, request.prompt_set, request.id) == ("kad", 0.25, "coco", "7")
    assert request.timeout == 1.5
    assert request.outputs == {"logits", "mask", "boxes"} and decoded.binary == {"logits", "mask"}


def test_pixels_come_raw_or_as_json_flat_or_nested() -> None:
    item: dict[str, Any] = {"name": "pixels", "datatype": "UINT8", "shape": [2, 1, 8, 8]}
    ways = [
        body({"inputs": [item | {"parameters": {"binary_data_size": PIXELS.size}}]}, PIXELS.tobytes()),
        body({"inputs": [item | {"data": PIXELS.tolist()}]}),
        body({"inputs": [item | {"data": PIXELS.reshape(-1).tolist()}]}),
    ]
    for way in ways:
        decoded = decode_infer("kad", *way)
        assert decoded.request.pixels is not None
        np.testing.assert_array_equal(decoded.request.pixels, PIXELS)
        assert decoded.request.outputs == DEFAULT_OUTPUTS and decoded.binary == frozenset()


def test_one_head_before_other_bytes_is_another_request() -> None:
    """The parsed head is kept: what a request is read as must not depend on those before it."""
    item = {"name": "pixels", "datatype": "UINT8", "shape": [2, 1, 8, 8], "parameters": {"binary_data_size": 128}}
    for name, id_, turned in (("k", "a", 0), ("k", "a", 1), ("m", "a", 0), ("k", "b", 0)):
        wanted = PIXELS[:: -1 if turned else 1]
        request = decode_infer(name, *body({"id": id_, "inputs": [item]}, wanted.tobytes())).request
        assert (request.model, request.id) == (name, id_)
        np.testing.assert_array_equal(request.pixels, wanted)
        with pytest.raises(BadRequest, match="appears twice"):
            decode_infer("k", b'{"id": 1, "id": 2}', "18")


def test_own_prompts_and_base64_files() -> None:
    prompts = json.dumps({"Rib fracture": ["a broken rib", "fracture"], "Mass": {"positive": ["m"], "negative": ["n"]}})
    head = {
        "inputs": [
            image() | {"data": [base64.b64encode(b"\x00\xff").decode()], "parameters": {"content_type": "base64"}},
            {"name": "prompts", "datatype": "BYTES", "shape": [1], "data": [prompts]},
            {"name": "tau", "datatype": "FP32", "shape": [1], "data": [0.5]},
        ]
    }
    request = decode_infer("kad", *body(head)).request
    assert request.images == (b"\x00\xff",) and request.tau == 0.5 and request.prompts is not None
    assert [(e.finding, e.positive, e.negative) for e in request.prompts] == [
        ("Rib fracture", ("a broken rib", "fracture"), ()),
        ("Mass", ("m",), ("n",)),
    ]


def answer() -> Answer:
    overlay = np.empty((1, 2), object)
    overlay[0] = [b"\x89PNG\x00", b"x"]
    names = np.empty(2, object)
    names[:] = [b"Mass", "Épaule".encode()]
    outputs: dict[str, Any] = {
        "findings": names,
        "logits": np.array([[0.1, np.nan]], np.float32),
        "probabilities": np.array([[0.1, np.inf]]),
        "mask": np.ones((1, 2, 2, 2), np.uint8),
        "overlay": overlay,
    }
    return Answer("kad", "1", "coco", ("Mass", "Épaule"), 0.5, outputs, "9")


def test_an_answer_in_json() -> None:
    text, length = encode_infer(answer(), frozenset())
    content = json.loads(text)
    data = {item["name"]: item for item in content["outputs"]}
    assert length is None and (content["model_name"], content["model_version"], content["id"]) == ("kad", "1", "9")
    assert data["findings"]["data"] == ["Mass", "Épaule"]
    # Every float32 is a float64; JSON has no number that is none.
    assert np.float32(data["logits"]["data"][0]) == np.float32(0.1) and data["logits"]["data"][1] is None
    assert data["probabilities"]["data"] == [0.1, None] and data["mask"]["shape"] == [1, 2, 2, 2]
    assert base64.b64decode(data["overlay"]["data"][0]) == b"\x89PNG\x00"
    assert data["overlay"]["parameters"] == {"content_type": "base64"}


def test_an_answer_in_raw_bytes_in_the_order_of_its_outputs() -> None:
    made = answer()
    data, length = encode_infer(made, frozenset(made.outputs))
    assert length is not None
    position = length
    for item in json.loads(data[:length])["outputs"]:
        size = item["parameters"]["binary_data_size"]
        array = raw_to_array(item["name"], item["datatype"], item["shape"], data[position : position + size])
        np.testing.assert_array_equal(array, made.outputs[item["name"]])
        position += size
    assert position == len(data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": []}, r"length >= 1 - at `\$\.inputs`"),
        ({"inputs": [image(), image()]}, "is given twice"),
        ({"inputs": [image() | {"name": "imge"}]}, "did you mean 'image'"),
        ({"inputs": [image() | {"datatype": "FP32", "data": [1]}]}, "must be BYTES, not FP32"),
        ({"inputs": [image() | {"datatype": "FP99"}]}, "FP99' of 'image' is not one of"),
        ({"inputs": [image() | {"shape": [2]}]}, "has 1 elements, its shape"),
        ({"inputs": [image() | {"shape": [1, 1, 1]}]}, "must have shape"),
        ({"inputs": [image() | {"shape": [-1]}]}, "not negative"),
        ({"inputs": [image() | {"shape": [2**40, 2**40]}]}, "not negative"),
        ({"inputs": [image() | {"shape": [2**30, 2**30]}]}, "too many elements"),
        ({"inputs": [image() | {"data": [1]}]}, "not text"),
        ({"inputs": [image() | {"data": [[["x"]]]}]}, "nested deeper"),
        ({"inputs": [image() | {"parameters": {"binary_data_size": 5}}]}, "both 'data' and"),
        ({"inputs": [image() | {"parameters": {"shared_memory_region": "x"}}]}, "Shared memory"),
        ({"inputs": [image()], "parameters": {"tua": 0.5}}, "did you mean 'tau'"),
        ({"inputs": [image()], "parameters": {"tau": "x"}}, "'tau' must be a number"),
        ({"inputs": [image()], "outputs": [{"name": "mask"}, {"name": "mask"}]}, "duplicate output"),
        ({"inputs": [image()], "outputs": [{"name": "logits", "parameters": {"classification": 3}}]}, "Classification"),
        ({"inputs": [image()], "id": 7}, r"got `int` - at `\$\.id`"),
        ({"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [1], "data": [256]}]}, "not a valid UINT8"),
        ({"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [1], "data": [True]}]}, "not a valid UINT8"),
        ({"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [1], "data": [0.5]}]}, "not a valid UINT8"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        decode_infer("kad", *body(change))


@pytest.mark.parametrize("length", ["-1", "+1", " 5", "1e3", "99999", "٣", "", "9" * 5000, "0x10"])
def test_the_length_of_the_json_part_must_be_a_number_within_the_body(length: str) -> None:
    with pytest.raises(BadRequest, match=r"Inference-Header-Content-Length|not valid JSON"):
        decode_infer("kad", body({"inputs": [image()]})[0], length)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"inputs": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, '{"inputs": ' + "9" * 5000 + "}", "\udcff"],
)
def test_a_body_that_is_no_json_object(text: str) -> None:
    with pytest.raises(BadRequest):
        decode_infer("kad", text.encode("utf-8", "surrogateescape"), None)


@pytest.mark.parametrize("declared", [0, 3, 4, 5, 8, 9, 2**31])
def test_lengths_of_elements_must_fit(declared: int) -> None:
    raw = struct.pack("<I", declared) + b"abcd"
    head = {"inputs": [{**image(), "parameters": {"binary_data_size": 8}}]}
    del head["inputs"][0]["data"]
    if declared == 4:
        assert decode_infer("kad", *body(head, raw)).request.images == (b"abcd",)
        return
    with pytest.raises(BadRequest):
        decode_infer("kad", *body(head, raw))


def test_many_elements_are_refused_before_any_is_looked_at() -> None:
    """Each costs time, and there are hundreds of thousands in a megabyte."""
    count = MOST_ITEMS + 1
    raw = bytes(4 * count - 4) + b"\xff\xff\xff\xff"  # the last would be refused for its length
    head = {"name": "findings", "datatype": "BYTES", "shape": [count], "parameters": {"binary_data_size": len(raw)}}
    with pytest.raises(BadRequest, match=f"'findings' has {count} elements"):
        decode_infer("kad", *body({"inputs": [image(), head]}, raw))
    listed = {"name": "findings", "datatype": "BYTES", "shape": [count], "data": [7] * count}
    with pytest.raises(BadRequest, match=f"'findings' has {count} elements"):
        decode_infer("kad", *body({"inputs": [image(), listed]}))
    with pytest.raises(BadRequest, match=r"JSON has more than \d+ elements; send tensors as binary data"):
        decode_infer("kad", b'{"inputs":[' + b"[]," * 2_100_000 + b"0]}", None)


@pytest.mark.parametrize("start", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", bytes(128) + b"DICM"])
def test_base64_that_does_not_say_so_is_told(start: bytes) -> None:
    item = {**image(), "data": [base64.b64encode(start + bytes(200)).decode()]}
    with pytest.raises(BadRequest, match="'image' holds a file in base64; add"):
        decode_infer("kad", *body({"inputs": [item]}))
    told = {**item, "parameters": {"content_type": "base64"}}
    assert decode_infer("kad", *body({"inputs": [told]})).request.images == (start + bytes(200),)


def test_a_timeout_of_nothing_is_none() -> None:
    """As Triton has it; tritonclient sends it when it is asked for."""
    for wanted, seconds in ((0, None), (2_000_000, 2.0)):
        request = decode_infer("kad", *body({"inputs": [image()], "parameters": {"timeout": wanted}})).request
        assert request.timeout == seconds
    for wrong in ("", "0", False, -1):
        with pytest.raises(BadRequest):
            check_request(decode_infer("kad", *body({"inputs": [image()], "parameters": {"timeout": wrong}})).request)


def test_bytes_that_belong_to_no_input_are_refused() -> None:
    with pytest.raises(BadRequest, match="3 bytes that belong to no input"):
        decode_infer("kad", *body({"inputs": [image()]}, b"abc"))


def test_half_a_surrogate_pair_is_no_text() -> None:
    names = {"name": "findings", "datatype": "BYTES", "shape": [1], "data": ["\ud800"]}
    with pytest.raises(BadRequest, match="not valid"):
        decode_infer("kad", *body({"inputs": [image(), names]}))
    prompts = {"name": "prompts", "datatype": "BYTES", "shape": [1], "data": ['{"\\ud800": ["x"]}']}
    with pytest.raises(BadRequest, match="not valid Unicode"):
        check_request(decode_infer("kad", *body({"inputs": [image(), prompts]})).request)


@given(st.sampled_from(sorted(DATATYPES)), st.lists(st.integers(0, 3), max_size=4), st.binary(max_size=64))
@settings(max_examples=EXAMPLES)
def test_raw_bytes_of_any_datatype_come_back(datatype: str, shape: list[int], data: bytes) -> None:
    wanted = int(np.prod(shape)) * np.dtype(DATATYPES[datatype]).itemsize
    if datatype == "BOOL":
        data = bytes(byte & 1 for byte in data)
    try:
        array = raw_to_array("x", datatype, shape, data)
    except BadRequest:
        assert len(data) != wanted
        return
    assert len(data) == wanted and list(array.shape) == shape
    assert array_to_raw(Tensor("x", datatype, array)) == data


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
names = st.sampled_from(["image", "pixels", "findings", "prompts", "prompt_set", "tau", "x"])
items = st.fixed_dictionaries(
    {},
    optional={
        "name": names | values,
        "datatype": st.sampled_from(["BYTES", "UINT8", "FP32", "FP64", "BOOL"]) | values,
        "shape": st.lists(st.integers(-1, 4), max_size=4) | values,
        "data": values,
        "parameters": values | st.fixed_dictionaries({"binary_data_size": st.integers(-1, 40)}),
    },
)
contents = st.fixed_dictionaries(
    {"inputs": st.lists(items, max_size=4) | values},
    optional={"outputs": st.lists(items, max_size=3) | values, "parameters": values, "id": values},
)


@given(contents, st.binary(max_size=40), st.none() | st.text(max_size=6) | st.integers(0, 400).map(str))
@settings(max_examples=EXAMPLES)
def test_anything_is_a_request_or_refused(content: Any, raw: bytes, length: str | None) -> None:
    text = json.dumps(content).encode() + raw
    for header in (length, str(len(text) - len(raw))):
        try:
            check_request(decode_infer("kad", text, header).request)
        except RequestError as error:
            assert error.http_status == 400 and str(error)


@given(st.binary(max_size=80), st.none() | st.integers(0, 90).map(str))
@settings(max_examples=EXAMPLES)
def test_any_bytes_are_refused(data: bytes, length: str | None) -> None:
    with pytest.raises(BadRequest):
        decode_infer("kad", data, length)
