"""Members that clients write: null for those they leave out, as Jackson does, and the content_type of MLServer."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from xbench_fast.runtime.serving.http.http_codec import check_content_type, decode_infer
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest
from xbench_fast.runtime.serving.protocol.requests import Request

FILE = b"\x89PNG\r\n\x1a\n" + bytes(200)
BASE64 = {"content_type": "base64"}


def request(**members: Any) -> dict[str, Any]:
    """A request as a typed client writes it, with every member of the protocol."""
    image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(FILE).decode()]}
    whole = {"id": "7", "inputs": [image | {"parameters": BASE64}], "outputs": [{"name": "mask"}], "parameters": {}}
    return whole | members


def read(content: dict[str, Any], raw: bytes = b"") -> Request:
    text = json.dumps(content).encode()
    return decode_infer("kad", text + raw, str(len(text)) if raw else None).request


def findings(names: list[str], **more: Any) -> dict[str, Any]:
    return {"name": "findings", "datatype": "BYTES", "shape": [len(names), 1], "data": names, **more}


@pytest.mark.parametrize(
    "members",
    [
        {"id": None},
        {"parameters": None},
        {"outputs": None},
        {"outputs": [{"name": "mask", "parameters": None}]},
        {"inputs": [*request()["inputs"], findings(["Mass"], parameters=None)]},
        {"parameters": {"tau": None, "prompt_set": None, "content_type": None, "headers": None}},
        {"outputs": [{"name": "mask", "parameters": {"binary_data": None, "classification": None}}]},
        {"inputs": [{**request()["inputs"][0], "parameters": {**BASE64, "binary_data_size": None, "headers": None}}]},
    ],
    ids=lambda members: json.dumps(members)[:60],
)
def test_null_is_a_member_that_is_not_sent(members: dict[str, Any]) -> None:
    found = read(request(**members))
    assert found.images == (FILE,) and found.tau == 0.5 and found.prompt_set is None
    assert found.id == ("" if "id" in members else "7")
    assert ("mask" in found.outputs) == (members.get("outputs", ()) is not None)


def test_null_beside_raw_bytes() -> None:
    raw = struct.pack("<I", len(FILE)) + FILE
    image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": None}
    image["parameters"] = {"binary_data_size": len(raw), "content_type": None}
    assert read(request(inputs=[image]), raw).images == (FILE,)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"inputs": None}, r"`null` - at `\$\.inputs`"),
        ({"inputs": [findings(["Mass"], shape=None)]}, r"`null` - at `\$\.inputs\[0\]\.shape`"),
        ({"inputs": [findings(["Mass"], data=None)]}, "'findings' has "),
        ({"inputs": [findings(["Mass"], name=None)]}, r"`null` - at `\$\.inputs\[0\]\.name`"),
        ({"inputs": [findings(["Mass"], datatype=None)]}, r"`null` - at `\$\.inputs\[0\]\.datatype`"),
        ({"inputs": [findings(["Mass"], parameters=[])]}, r"`array` - at `\$\.inputs\[0\]\.parameters`"),
        ({"inputs": [{"name": "image"}]}, r"missing required field `datatype` - at `\$\.inputs\[0\]`"),
        ({"inputs": 65 * [findings(["Mass"])]}, r"length <= 64 - at `\$\.inputs`"),
        ({"outputs": [{"name": None}]}, r"`null` - at `\$\.outputs\[0\]\.name`"),
        ({"outputs": 65 * [{"name": "mask"}]}, r"length <= 64 - at `\$\.outputs`"),
        ({"outputs": [{"name": "mask", "parameters": 1}]}, r"`int` - at `\$\.outputs\[0\]\.parameters`"),
        ({"parameters": {"tau": [1]}}, r"`array` - at `\$\.parameters\[\.\.\.\]`"),
    ],
)
def test_members_that_are_needed_are_named(members: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        read(request(**members))


def grpc_request(*elements: bytes, kind: str = "", raw: bool = False) -> Request:
    pytest.importorskip("google.protobuf")
    from xbench_fast.runtime.serving.grpc.grpc_codec import decode_infer as decode_message
    from xbench_fast.runtime.serving.grpc.open_inference_pb2 import ModelInferRequest

    made = ModelInferRequest(model_name="kad")
    tensor = made.inputs.add(name="image", datatype="BYTES", shape=[len(elements)])
    if kind:
        tensor.parameters["content_type"].string_param = kind
    if raw:
        made.raw_input_contents.append(b"".join(struct.pack("<I", len(item)) + item for item in elements))
    else:
        tensor.contents.bytes_contents.extend(elements)
    return decode_message(made)


@pytest.mark.parametrize("raw", [False, True])
def test_base64_means_over_grpc_what_it_means_over_http(raw: bool) -> None:
    text = base64.b64encode(FILE)
    assert grpc_request(text, b"", kind="base64", raw=raw).images == (FILE, b"")
    lines = base64.encodebytes(9 * FILE)  # as openssl writes it
    assert lines.count(b"\n") > 1
    assert grpc_request(lines, lines.replace(b"\n", b"\r\n"), kind="base64", raw=raw).images == (9 * FILE,) * 2
    with pytest.raises(BadRequest, match='holds a file in base64; add "parameters"'):
        grpc_request(lines, raw=raw)
    assert grpc_request(FILE, raw=raw).images == grpc_request(FILE, kind="np", raw=raw).images == (FILE,)
    with pytest.raises(BadRequest, match="'image' holds text that is not base64"):
        grpc_request(b"a?==", kind="base64", raw=raw)
    with pytest.raises(BadRequest, match='holds a file in base64; add "parameters"'):
        grpc_request(text, raw=raw)
    with pytest.raises(BadRequest, match="content_type 'jpg' of 'image' is not taken; use base64, str, np"):
        grpc_request(FILE, kind="jpg", raw=raw)


def test_base64_in_raw_bytes_over_http() -> None:
    text = base64.b64encode(FILE)
    raw = struct.pack("<I", len(text)) + text
    image = {"name": "image", "shape": [1], "datatype": "BYTES"}
    assert read(request(inputs=[image | {"parameters": {"binary_data_size": len(raw), **BASE64}}]), raw).images == (
        FILE,
    )
    with pytest.raises(BadRequest, match="holds a file in base64"):
        read(request(inputs=[image | {"parameters": {"binary_data_size": len(raw)}}]), raw)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("str", ""),
        ("np", ""),
        ("", ""),
        ("pd", "content_type 'pd' of 'findings' is not taken"),
        ("datetime", "'datetime'"),
        ("image/png", "'image/png'"),
        (7, "content_type '7'"),
        ({"a": 1}, "content_type"),
        ("base64", "'findings' holds text that is not base64"),
    ],
)
def test_a_content_type_has_its_meaning_or_is_named(kind: Any, words: str) -> None:
    given = findings(["Mass, left", "Effusion"], parameters={"content_type": kind})
    content = request(inputs=[*request()["inputs"], given])
    if not words:
        assert read(content).findings == ("Mass, left", "Effusion")
        return
    with pytest.raises(BadRequest, match=words):
        read(content)


@pytest.mark.parametrize(("kind", "taken"), [("np", True), ("str", False), ("base64", False)])
def test_numbers_are_an_array(kind: str, taken: bool) -> None:
    tau = {"name": "tau", "datatype": "FP32", "shape": [1, 1], "data": [0.25], "parameters": {"content_type": kind}}
    content = request(inputs=[*request()["inputs"], tau])
    if taken:
        assert read(content).tau == 0.25
        return
    with pytest.raises(BadRequest, match=f"The content_type {kind} of 'tau' is for BYTES, not FP32"):
        read(content)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("np", True), ("str", True), ("pd", True), ("", True), (None, True), ("base64", False), (1, False)],
)
def test_the_content_type_of_a_request(kind: Any, taken: bool) -> None:
    content = request(parameters={"content_type": kind})
    if taken:
        assert read(content).images == (FILE,)
        return
    with pytest.raises(BadRequest, match=f"The content_type '{kind}' of the request is not taken"):
        read(content)


@pytest.mark.parametrize(
    ("output", "kind", "taken"),
    [
        ("mask", "np", True),
        ("findings", "str", True),
        ("overlay", "base64", True),
        ("mask", "base64", False),
        ("overlay", "np", False),
        ("findings", "jpg", False),
    ],
)
def test_the_content_type_of_an_output(output: str, kind: str, taken: bool) -> None:
    content = request(outputs=[{"name": output, "parameters": {"content_type": kind}}])
    if taken:
        assert read(content).outputs == {output}
        return
    with pytest.raises(BadRequest, match=f"content_type '{kind}' of the output '{output}' is not taken; use "):
        read(content)


def test_a_jpeg_by_the_name_that_is_not_registered() -> None:
    assert check_content_type("image/jpg") and check_content_type("Image/JPG; q=1")


def test_json_may_begin_with_a_byte_order_mark() -> None:
    text = json.dumps(request()).encode()
    assert decode_infer("kad", b"\xef\xbb\xbf" + text, None) == decode_infer("kad", text, None)
