"""The standard services, asked by the clients of gRPC: health without the token, reflection with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving_process import film, scores

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client", "google.protobuf"):
    pytest.importorskip(package)
grpc = pytest.importorskip("grpc")
health = pytest.importorskip("grpc_health.v1.health_pb2")
reflection = pytest.importorskip("grpc_reflection.v1alpha.reflection_pb2")

from grpc_health.v1.health_pb2_grpc import HealthStub  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # noqa: E402
    ProtoReflectionDescriptorDatabase,
)
from grpc_server import GrpcServer  # noqa: E402

TOKEN = (("authorization", "Bearer a-token"),)
SERVICE = "inference.GRPCInferenceService"
SERVING, NOT_SERVING = health.HealthCheckResponse.SERVING, health.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    own = tmp_path_factory.mktemp("standard")
    with GrpcServer(folder / "models", own, environment={"XBENCH_FAST_TOKEN": "a-token"}) as process:
        yield process
        if process.process.poll() is None:
            assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()


@pytest.fixture
def channel(server: GrpcServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.grpc) as made:
        yield made


def code(call: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def test_health_needs_no_token(channel: Any) -> None:
    stub = HealthStub(channel)
    for name in ("", SERVICE):
        assert stub.Check(health.HealthCheckRequest(service=name), timeout=30).status == SERVING
    unknown = health.HealthCheckRequest(service="other.Service")
    assert code(lambda: stub.Check(unknown, timeout=30)) == grpc.StatusCode.NOT_FOUND
    listed = stub.List(health.HealthListRequest(), timeout=30).statuses
    assert {name: state.status for name, state in listed.items()} == {"": SERVING, SERVICE: SERVING}
    watched = stub.Watch(unknown, timeout=30)
    assert next(watched).status == health.HealthCheckResponse.SERVICE_UNKNOWN
    watched.cancel()
    rubbish = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert code(lambda: rubbish(b"\xff" * 9, timeout=30)) == grpc.StatusCode.INVALID_ARGUMENT
    long = health.HealthCheckRequest(service="a" * 5000)
    assert code(lambda: stub.Check(long, timeout=30)) == grpc.StatusCode.INVALID_ARGUMENT
    assert code(lambda: next(stub.Watch(long, timeout=30))) == grpc.StatusCode.INVALID_ARGUMENT
    other = channel.unary_unary("/grpc.health.v1.Health/Other")
    assert code(lambda: other(b"", timeout=30)) == grpc.StatusCode.UNIMPLEMENTED


def test_watching_takes_no_room_of_others(channel: Any) -> None:
    stub = HealthStub(channel)
    watched = [stub.Watch(health.HealthCheckRequest(), timeout=60) for _ in range(8)]
    assert [next(one).status for one in watched] == [SERVING] * 8
    ninth = stub.Watch(health.HealthCheckRequest(), timeout=60)
    assert code(lambda: next(ninth)) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert stub.Check(health.HealthCheckRequest(), timeout=30).status == SERVING
    for one in watched:
        one.cancel()
    for _ in range(200):
        one = stub.Watch(health.HealthCheckRequest(), timeout=60)
        try:
            assert next(one).status == SERVING
            break
        except grpc.RpcError:
            threading.Event().wait(0.05)
    else:
        raise AssertionError("the room is free again")
    one.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_needs_the_token(channel: Any, version: str) -> None:
    ask = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection.ServerReflectionResponse.FromString,
    )
    requests = [
        reflection.ServerReflectionRequest(list_services=""),
        reflection.ServerReflectionRequest(file_containing_symbol=f"grpc.reflection.{version}.ServerReflection"),
        reflection.ServerReflectionRequest(file_containing_symbol="xbench_fast.inference.ModelInferRequest"),
    ]
    assert code(lambda: next(ask(iter(requests), timeout=30))) == grpc.StatusCode.UNAUTHENTICATED
    long = reflection.ServerReflectionRequest(file_containing_symbol="a" * 5000)
    assert code(lambda: list(ask(iter([long]), metadata=TOKEN, timeout=30))) == grpc.StatusCode.INVALID_ARGUMENT
    services, found, absent = ask(iter(requests), metadata=TOKEN, timeout=30)
    assert [item.name for item in services.list_services_response.service] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        SERVICE,
    ]
    assert found.file_descriptor_response.file_descriptor_proto
    assert absent.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_a_client_that_knows_only_reflection_asks_a_model(channel: Any, folder: Path) -> None:
    """As grpcurl does: messages from the descriptors, and nothing of this project or of tritonclient."""
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    class WithToken:
        """The channel, for a client that has no way to send a token."""

        def stream_stream(self, *arguments: Any, **options: Any) -> Any:
            call = channel.stream_stream(*arguments, **options)
            return lambda messages, **how: call(messages, metadata=TOKEN, **{k: v for k, v in how.items() if v})

    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(WithToken()))
    service = pool.FindServiceByName(SERVICE)
    assert {method.name for method in service.methods} == {
        *("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"),
        "RepositoryIndex",
    }
    method = service.FindMethodByName("ModelInfer")
    request = GetMessageClass(method.input_type)(model_name="blocks-32")
    image = request.inputs.add(name="image", datatype="BYTES", shape=[1])
    image.contents.bytes_contents.append(film(folder))
    request.outputs.add(name="logits")
    call = channel.unary_unary(f"/{service.full_name}/{method.name}")
    reply = GetMessageClass(method.output_type).FromString(
        call(request.SerializeToString(), metadata=TOKEN, timeout=60)
    )
    found = np.frombuffer(reply.raw_output_contents[0], "<f4").reshape(reply.outputs[0].shape)
    np.testing.assert_array_equal(found, scores(film(folder))[0])


def test_who_watches_hears_of_the_end(server: GrpcServer, channel: Any) -> None:
    watched = HealthStub(channel).Watch(health.HealthCheckRequest(), timeout=60)
    assert next(watched).status == SERVING
    assert server.stop() == 0
    assert next(watched).status == NOT_SERVING
    assert code(lambda: next(watched)) == grpc.StatusCode.UNAVAILABLE
    lines = [line for line in server.lines() if line["route"] == "/grpc.health.v1.Health/Check"]
    assert lines and all(line["method"] == "gRPC" for line in lines)
