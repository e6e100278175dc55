"""gRPC clients that send what none should: a status for their mistake, never for ours, and the next is served."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SIZE

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client", "google.protobuf"):
    pytest.importorskip(package)
grpc = pytest.importorskip("grpc")

from grpc_server import GrpcServer  # noqa: E402
from xbench_fast.runtime.serving.grpc import open_inference_pb2 as messages  # noqa: E402
from xbench_fast.runtime.serving.grpc.calls import SERVICE  # noqa: E402

LIMIT = 300_000
CLIENTS_FAULT = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
}


def infer_message() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 1, SIZE, SIZE), dtype=np.uint8)
    made = messages.ModelInferRequest(
        model_name="blocks-32",
        inputs=[{"name": "pixels", "datatype": "UINT8", "shape": pixels.shape}],
        raw_input_contents=[pixels.tobytes()],
    )
    data: bytes = made.SerializeToString()
    return data


GOOD = infer_message()


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    with GrpcServer(folder / "models", tmp_path_factory.mktemp("grpc"), "--max-body", str(LIMIT)) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()


@pytest.fixture(scope="module")
def channel(server: GrpcServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.grpc) as made:
        yield made
        assert ask(made, GOOD)[0] == grpc.StatusCode.OK


def ask(channel: Any, data: bytes, method: str = "ModelInfer", **options: Any) -> tuple[Any, str]:
    call = channel.unary_unary(f"/{SERVICE}/{method}")
    done = call.future(data, timeout=60, **options)
    return done.code(), done.details()


def test_damaged_messages_are_the_clients_fault(channel: Any) -> None:
    """Bits turned, parts cut out, put twice or made up."""
    chance = random.Random(7)
    seen = set()
    for _ in range(300):
        data = bytearray(GOOD)
        for _ in range(chance.randint(1, 4)):
            start = chance.choice([chance.randrange(40), chance.randrange(len(data) + 1)])
            kind = chance.randrange(4)
            if kind == 0 and start < len(data):
                data[start] ^= 1 << chance.randrange(8)
            elif kind == 1:
                del data[start : start + chance.randint(1, 30)]
            elif kind == 2:
                data[start:start] = data[start : start + chance.randint(1, 30)]
            else:
                data[start:start] = chance.randbytes(chance.randint(1, 12))
        seen.add(ask(channel, bytes(data))[0])
    assert grpc.StatusCode.INVALID_ARGUMENT in seen and seen <= CLIENTS_FAULT | {grpc.StatusCode.OK}


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata", "RepositoryIndex", "ServerMetadata", "ModelInfer"])
def test_no_method_takes_rubbish(channel: Any, method: str) -> None:
    code, words = ask(channel, b"\xff" * 20, method)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "not a valid" in words


def test_names_that_lead_elsewhere(channel: Any) -> None:
    for name in ("../../etc/passwd", "blocks-32/../x", "", "\x00", "x" * 5000):
        data = messages.ModelMetadataRequest(name=name).SerializeToString()
        code, words = ask(channel, data, "ModelMetadata")
        assert code == grpc.StatusCode.NOT_FOUND and len(words) < 1000
    for method in ("ModelStreamInfer", "RepositoryModelLoad", "SystemSharedMemoryRegister", "Nothing", "ä"):
        assert ask(channel, b"", method)[0] == grpc.StatusCode.UNIMPLEMENTED
    done = channel.unary_unary("/other.Service/Call").future(b"", timeout=60)
    assert done.code() == grpc.StatusCode.UNIMPLEMENTED


def test_large_messages_are_refused_packed_or_not(server: GrpcServer, channel: Any) -> None:
    """What is packed is unpacked up to the limit: the memory of the server does not grow by what it would become."""
    assert ask(channel, bytes(LIMIT + 1))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    before = peak_memory(server)
    for packing in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        assert ask(channel, GOOD, compression=packing)[0] == grpc.StatusCode.OK
        code, words = ask(channel, bytes(40_000_000), compression=packing)
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "Decompressed message larger" in words
    assert peak_memory(server) - before < 20_000


def peak_memory(server: GrpcServer) -> int:
    """The most memory that the process had, in KiB."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")))


def test_calls_without_a_message_or_with_two(channel: Any) -> None:
    stream = channel.stream_unary(f"/{SERVICE}/ModelInfer")
    empty = stream.future(iter(()), timeout=60)
    assert empty.code() == grpc.StatusCode.INVALID_ARGUMENT and "no message" in empty.details()
    assert stream.future(iter((GOOD, GOOD)), timeout=60).code() == grpc.StatusCode.OK


def test_a_client_that_goes_away_or_waits_holds_nobody(server: GrpcServer, channel: Any) -> None:
    """More calls than one address may have at once: if those that went away were held, later ones would be refused.

    On a busy machine some calls are cancelled before they reach the server.
    """
    never = threading.Event()

    def slow() -> Iterator[bytes]:
        never.wait(30)
        yield GOOD

    for _ in range(4):
        waiting = [channel.stream_unary(f"/{SERVICE}/ModelInfer").future(slow(), timeout=60) for _ in range(20)]
        gone = [channel.unary_unary(f"/{SERVICE}/ModelInfer").future(GOOD, timeout=60) for _ in range(20)]
        for call in gone:
            call.cancel()
        assert ask(channel, GOOD)[0] == grpc.StatusCode.OK
        for call in waiting:
            call.cancel()
    never.set()
    assert ask(channel, GOOD)[0] == grpc.StatusCode.OK
    for _ in range(1200):
        if [line["status"] for line in server.lines()].count("CANCELLED") >= 20:
            break
        time.sleep(0.05)
    assert [line["status"] for line in server.lines()].count("CANCELLED") >= 20
    assert ask(channel, GOOD)[0] == grpc.StatusCode.OK
