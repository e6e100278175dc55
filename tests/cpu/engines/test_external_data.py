"""Files that a graph reads beside itself, wherever a tensor can stand; the package onnx is the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from synthetic import make_bundle, save_graph
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import BundleError
from xbench_fast.engines.external_data import external_locations

onnx = pytest.importorskip("onnx")
message = pytest.importorskip("google.protobuf.message")


def tensor(location: str) -> Any:
    made = onnx.TensorProto(data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    made.external_data.add(key="location", value=location)
    made.external_data.add(key="offset", value="0")
    return made


def sparse(first: str, second: str) -> Any:
    return onnx.SparseTensorProto(values=tensor(first), indices=tensor(second))


def everywhere() -> Any:
    """A model with external data in every place of onnx.proto that holds a tensor, and locations not in use."""
    inner = onnx.GraphProto(initializer=[tensor("in a subgraph")])
    attributes = [
        onnx.AttributeProto(name="t", t=tensor("attribute")),
        onnx.AttributeProto(name="ts", tensors=[tensor("attribute list"), tensor("attribute list 2")]),
        onnx.AttributeProto(name="g", g=inner),
        onnx.AttributeProto(name="gs", graphs=[onnx.GraphProto(initializer=[tensor("in one of several")])]),
        onnx.AttributeProto(name="s", sparse_tensor=sparse("sparse values", "sparse indices")),
        onnx.AttributeProto(name="ss", sparse_tensors=[sparse("sparse list values", "sparse list indices")]),
    ]
    model = onnx.ModelProto()
    model.graph.node.add(op_type="If", attribute=attributes)
    model.graph.initializer.append(tensor("initializer"))
    model.graph.initializer.add(data_type=1).external_data.add(key="location", value="not external")
    model.graph.sparse_initializer.append(sparse("sparse initializer", "its indices"))
    model.training_info.add().initialization.initializer.append(tensor("training"))
    model.training_info.add().algorithm.initializer.append(tensor("algorithm"))
    model.functions.add(name="f").node.add(attribute=[onnx.AttributeProto(name="t", t=tensor("function"))])
    model.functions.add(name="g").attribute_proto.add(name="t").t.CopyFrom(tensor("default of a function"))
    return model


def locations(found: Any) -> Iterator[str]:
    """By reflection over every field of every message that the library read."""
    if isinstance(found, onnx.TensorProto) and found.data_location == onnx.TensorProto.EXTERNAL:
        named = [entry.value for entry in found.external_data if entry.key == "location"]
        yield from named or [""]
    for field, value in found.ListFields():
        if field.message_type is not None:
            for each in value if hasattr(value, "append") or hasattr(value, "add") else [value]:
                yield from locations(each)


def test_every_place_of_a_tensor_is_seen(tmp_path: Path) -> None:
    model = everywhere()
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert sorted(external_locations(tmp_path / "model.onnx")) == sorted(locations(model))
    assert len(external_locations(tmp_path / "model.onnx")) == 16


@pytest.mark.parametrize("content", [b"", b"no graph", b"\x00" * 99, b"\xff" * 99, b"\x3a\x7f"])
def test_files_that_are_no_graphs_name_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    assert external_locations(tmp_path / "model.onnx") == []


# An unknown group before the graph; the number of a field, and the place of data, with bits above the 32nd.
GROUP = b"\x9b\x06\x3a\x01\xff\x9c\x06"
TAG = b"\xba\x80\x80\x80\x10"
PLACE = b"\x70\x81\x80\x80\x80\x10"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=3), st.integers(0, 3)), max_size=3))
@example([(0, GROUP, 0)])
def test_whatever_the_library_reads_is_seen(tmp_path: Path, changes: list[tuple[int, bytes, int]]) -> None:
    content = everywhere().SerializeToString()
    for place, new, gone in changes:
        content = content[:place] + new + content[place + gone :]
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except message.DecodeError:
        return
    (tmp_path / "model.onnx").write_bytes(content)
    missed = {text.encode("utf-8", "replace") for text in locations(model)}
    missed -= {text.encode("utf-8", "replace") for text in external_locations(tmp_path / "model.onnx")}
    assert not missed


@pytest.mark.parametrize("head", [GROUP + b"\x3a", TAG])
def test_long_numbers_and_groups_hide_nothing(tmp_path: Path, head: bytes) -> None:
    body = tensor("hidden")
    body.ClearField("data_location")
    tail = body.SerializeToString() + (PLACE if head == TAG else b"\x70\x01")
    graph = b"\x2a" + bytes([len(tail)]) + tail
    content = head + bytes([len(graph)]) + graph
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
        assert [*locations(model)] == ["hidden"]
    except message.DecodeError:
        assert head == TAG, "some versions of the library refuse long numbers"
    (tmp_path / "model.onnx").write_bytes(content)
    assert external_locations(tmp_path / "model.onnx") == ["hidden"]


@pytest.mark.parametrize(
    "location", ["plans/w.plan", "./plans//w.plan", "x/../plans/w.plan", "../k/w.bin", "/etc/hostname", "plans\\w.plan"]
)
def test_a_bundle_whose_graph_leaves_the_listed_files_is_refused(tmp_path: Path, location: str) -> None:
    model = onnx.load(str(save_graph(tmp_path / "blocks.onnx")))
    plain = make_bundle(tmp_path / "plain", graph=tmp_path / "blocks.onnx")
    assert Bundle.load(plain.path).digest == plain.digest
    model.graph.node.add(op_type="Constant", output=["unused"]).attribute.add(name="value", type=4, t=tensor(location))
    onnx.save(model, str(tmp_path / "changed.onnx"))
    with pytest.raises(BundleError, match="reads weights from"):
        make_bundle(tmp_path / "k", graph=tmp_path / "changed.onnx")
