"""gRPC messages without a server: the classes and their source, requests in, answers out, and malformed ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest
from xbench_fast.runtime.serving.protocol.requests import Answer

pytest.importorskip("google.protobuf")

from xbench_fast.runtime.serving.grpc import open_inference_pb2 as messages
from xbench_fast.runtime.serving.grpc.calls import SERVICE, parsed
from xbench_fast.runtime.serving.grpc.grpc_codec import decode_infer, encode_infer

SOURCE = Path(messages.__file__).with_name("open_inference.proto")


def message(*inputs: dict[str, Any], raw: tuple[bytes, ...] = (), **fields: Any) -> Any:
    return messages.ModelInferRequest(model_name="m", inputs=inputs, raw_input_contents=raw, **fields)


def pixels(**fields: Any) -> dict[str, Any]:
    return {"name": "pixels", "datatype": "UINT8", "shape": [1, 1, 1, 2], **fields}


def test_the_classes_are_those_of_the_proto_file(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    made = tmp_path / "set"
    arguments = ["protoc", f"--proto_path={SOURCE.parent}", f"--descriptor_set_out={made}", SOURCE.name]
    assert protoc.main(arguments) == 0
    (expected,) = FileDescriptorSet.FromString(made.read_bytes()).file
    found = FileDescriptorProto()
    messages.DESCRIPTOR.CopyToProto(found)
    for file in (found, expected):
        file.ClearField("source_code_info")
        clear_json_names(file.message_type)
    assert found == expected


def clear_json_names(kinds: Any) -> None:
    """protoc writes them into a descriptor set, and not into Python."""
    for kind in kinds:
        for field in kind.field:
            field.ClearField("json_name")
        clear_json_names(kind.nested_type)


def test_the_lowest_protobuf_that_is_allowed_can_import_the_classes(root: Path) -> None:
    text = Path(messages.__file__).read_text()
    made = re.search(r"# Protobuf Python Version: (\d+)\.(\d+)\.(\d+)", text)
    allowed = re.search(r'"protobuf>=(\d+)\.(\d+)"', (root / "pyproject.toml").read_text())
    assert made is not None and allowed is not None
    assert tuple(map(int, made.groups())) <= (*map(int, allowed.groups()), 0)


def test_it_is_the_protocol_of_tritonclient() -> None:
    """Same names, numbers and types, so that either reads what the other wrote; and both live in one process."""
    code = (
        "import {first}, {second}\n"
        "from tritonclient.grpc import service_pb2 as theirs\n"
        "from xbench_fast.runtime.serving.grpc import open_inference_pb2 as ours\n"
        "from xbench_fast.runtime.serving.grpc.calls import SERVICE\n"
        "assert theirs.DESCRIPTOR.services_by_name[SERVICE.split('.')[1]].full_name == SERVICE\n"
        "def fields(d): return {{f.name: (f.number, f.type, f.is_repeated,"
        " f.message_type and f.message_type.full_name.removeprefix('xbench_fast.'))"
        " for f in d.fields}} | {{n.name: fields(n) for n in d.nested_types}}\n"
        "kinds = ours.DESCRIPTOR.message_types_by_name\n"
        "for name, kind in kinds.items():\n"
        "    assert fields(kind) == fields(theirs.DESCRIPTOR.message_types_by_name[name]), name\n"
        "print(len(kinds))\n"
    )
    pytest.importorskip("tritonclient.grpc")
    names = ("tritonclient.grpc", "xbench_fast.runtime.serving.grpc.open_inference_pb2")
    for first, second in (names, names[::-1]):
        line = [sys.executable, "-c", code.format(first=first, second=second)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 and int(done.stdout) == 16, done.stderr


def test_raw_and_typed_tensors_are_one() -> None:
    typed = decode_infer(message(pixels(contents={"uint_contents": [7, 255]})))
    raw = decode_infer(message(pixels(), raw=(b"\x07\xff",), id="9"))
    for request in (typed, raw):
        assert request.pixels is not None and request.pixels.tolist() == [[[[7, 255]]]]
    assert raw.id == "9" and raw.model == "m"
    image = {"name": "image", "datatype": "BYTES", "shape": [2], "contents": {"bytes_contents": [b"\x00a", b""]}}
    assert decode_infer(message(image)).images == (b"\x00a", b"")
    tau = {"name": "tau", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [0.25]}}
    request = decode_infer(message(image, tau, outputs=[{"name": "mask"}], parameters={"timeout": {"int64_param": 5}}))
    assert (request.tau, request.timeout, request.outputs) == (0.25, 5e-6, frozenset({"mask"}))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (message(), "'inputs' is empty"),
        (message(pixels(), raw=(b"ab", b"cd")), "2 raw_input_contents for 1 inputs"),
        (message(pixels(), raw=(b"abc",)), "3 bytes"),
        (message(pixels()), "0 elements"),
        (message(pixels(contents={"uint_contents": [1, 256]})), "not a valid UINT8"),
        (message(pixels(contents={"int_contents": [1, 2]})), "needs uint_contents, not int_contents"),
        (message(pixels(contents={"uint_contents": [1, 2]}), raw=(b"ab",)), "both"),
        (message(pixels(datatype="UINT9"), raw=(b"ab",)), "UINT9' of 'pixels' is not one of"),
        (message(pixels(datatype="FP16", shape=[1])), "no typed contents"),
        (message(pixels(shape=[-1, 1, 1, 2]), raw=(b"ab",)), "not negative"),
        (message(pixels(shape=[1 << 40, 1, 1, 2]), raw=(b"ab",)), "not negative"),
        (message(pixels(shape=[1] * 9), raw=(b"a",)), "at most 8"),
        (message(*[pixels()] * 65, raw=(b"ab",) * 65), "65 entries"),
        (message(pixels(), raw=(b"ab",), outputs=[{"name": "logits"}] * 2), "duplicate output"),
        (message(pixels(), raw=(b"ab",), id="x" * 9000), "'id'"),
        (message(pixels(), raw=(b"ab",), parameters={"tau": {}}), "no value"),
        (message(pixels(), raw=(b"ab",), parameters={"tau": {"string_param": "1"}}), "must be a number"),
        (message(pixels(parameters={"shared_memory_region": {"string_param": "x"}}), raw=(b"ab",)), "Shared memory"),
    ],
)
def test_what_does_not_fit_is_said(made: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        decode_infer(made)


scalar = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1))
tensor = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["pixels", "image", "findings", "tau", "prompts", "prompt_set", "other", ""]),
        "datatype": st.sampled_from(["UINT8", "BYTES", "FP32", "FP16", "BOOL", "INT8", "nothing", ""]),
        "shape": st.lists(scalar, max_size=9),
        "contents": st.fixed_dictionaries(
            {},
            optional={
                "uint_contents": st.lists(st.integers(0, 300), max_size=4),
                "bytes_contents": st.lists(st.binary(max_size=5), max_size=3),
                "fp32_contents": st.lists(st.floats(width=32), max_size=3),
                "bool_contents": st.lists(st.booleans(), max_size=3),
            },
        ),
    },
)


@settings(max_examples=200)
@given(st.lists(tensor, max_size=3), st.lists(st.binary(max_size=9), max_size=3), st.lists(st.text(max_size=5)))
def test_any_message_is_read_or_refused(inputs: Any, raw: Any, outputs: Any) -> None:
    made = messages.ModelInferRequest(
        inputs=inputs, raw_input_contents=raw, outputs=[{"name": name} for name in outputs]
    )
    try:
        request = decode_infer(parsed(messages.ModelInferRequest, made.SerializeToString()))
    except BadRequest:
        return
    assert request.images or request.pixels is None or request.pixels.dtype == np.uint8


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode_infer(parsed(messages.ModelInferRequest, data))
    except BadRequest:
        return


def test_an_answer_as_raw_tensors() -> None:
    names = np.empty(1, object)
    names[:] = [b"Mass"]
    arrays = {"findings": names, "logits": np.array([[np.nan]], np.float32)}
    answer = Answer("m", "1", "coco", ("Mass",), 0.5, arrays, "7")
    read = parsed(messages.ModelInferResponse, encode_infer(answer))
    assert (read.model_name, read.model_version, read.id) == ("m", "1", "7")
    assert [(item.name, item.datatype, list(item.shape)) for item in read.outputs] == [
        ("findings", "BYTES", [1]),
        ("logits", "FP32", [1, 1]),
    ]
    assert read.raw_output_contents[0] == b"\x04\x00\x00\x00Mass"
    assert np.isnan(np.frombuffer(read.raw_output_contents[1], "<f4")).all()
    assert SERVICE == "inference.GRPCInferenceService"
