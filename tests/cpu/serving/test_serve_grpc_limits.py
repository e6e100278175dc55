"""Limits of the gRPC transport that take a minute in a real server, with shorter ones in this process."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SIZE, BlockEngine, make_bundle
from xbench_fast.engines.bundle import Bundle
from xbench_fast.runtime.serving.access_log import AccessLog
from xbench_fast.runtime.serving.inference.served_models import Catalogue
from xbench_fast.runtime.serving.inference.service import Service
from xbench_fast.runtime.serving.settings import GrpcSettings, ServiceSettings

pytest.importorskip("prometheus_client")
pytest.importorskip("google.protobuf")
grpc = pytest.importorskip("grpc")

from xbench_fast.runtime.serving.grpc.calls import SERVICE  # noqa: E402
from xbench_fast.runtime.serving.grpc.open_inference_pb2 import ModelInferRequest  # noqa: E402
from xbench_fast.runtime.serving.grpc.transport import GrpcTransport  # noqa: E402


def infer_message() -> bytes:
    pixels = np.zeros((1, 1, SIZE, SIZE), np.uint8)
    made = ModelInferRequest(
        model_name="blocks-32",
        inputs=[{"name": "pixels", "datatype": "UINT8", "shape": pixels.shape}],
        raw_input_contents=[pixels.tobytes()],
    )
    data: bytes = made.SerializeToString()
    return data


def run(folder: Path, test: Any, *, delay: float = 0.002, **settings: Any) -> list[dict[str, Any]]:
    """Runs `test(channel, engine)` against a transport with these settings; returns the access log."""
    from xbench_fast.runtime.serving.prometheus_metrics import Metrics

    stream = io.StringIO()

    def open_block(bundle: Bundle, name: str, **how: Any) -> BlockEngine:
        return BlockEngine(bundle, **how)

    async def body() -> None:
        bundle = make_bundle(folder / "blocks-32")
        transport = GrpcTransport(GrpcSettings(port=0, **settings), AccessLog(stream))
        with Catalogue([bundle.path], engine="onnxruntime-cpu", threads=1, open_engine=open_block) as catalogue:
            service = Service(catalogue, ServiceSettings(max_delay=delay), Metrics())
            async with service, transport(service), grpc.aio.insecure_channel(transport.address) as channel:
                await asyncio.wait_for(test(channel, catalogue.get("blocks-32").engine), 60)

    asyncio.run(body())
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def failure(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def silent() -> AsyncIterator[bytes]:
    """A message that never comes."""
    await asyncio.sleep(50)
    yield b""


def test_a_message_that_does_not_come(tmp_path: Path) -> None:
    """Two may be awaited, the third is refused at once; then they are given up and there is room again."""

    async def test(channel: Any, engine: Any) -> None:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        stream = channel.stream_unary(f"/{SERVICE}/ModelInfer")
        waiting = [asyncio.ensure_future(failure(stream(silent()))) for _ in range(2)]
        await asyncio.sleep(0.3)
        third = await failure(infer(infer_message()))
        assert third.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(third.trailing_metadata())["retry-after"] == "1"
        live = await channel.unary_unary(f"/{SERVICE}/ServerLive")(b"")
        assert live == b"\x08\x01"
        for call in waiting:
            error = await call
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and "within 1 s" in error.details()
        assert await infer(infer_message())

    log = run(tmp_path, test, reading=1.0, incoming=2)
    assert [line["status"] for line in log] == ["RESOURCE_EXHAUSTED", "OK", *["DEADLINE_EXCEEDED"] * 2, "OK"]


@pytest.mark.parametrize("trusted", [False, True])
def test_one_address_has_half_of_the_calls(tmp_path: Path, trusted: bool) -> None:
    async def test(channel: Any, engine: Any) -> None:
        stream = channel.stream_unary(f"/{SERVICE}/ModelInfer")
        first = asyncio.ensure_future(failure(stream(silent())))
        await asyncio.sleep(0.3)
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        if trusted:
            assert await infer(infer_message())
        else:
            error = await failure(infer(infer_message()))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "has 1 requests at once" in error.details()
        await first
        assert await infer(infer_message())

    networks = (ip_network("127.0.0.0/8"),) if trusted else ()
    for name, limits in {"incoming": {"incoming": 2}, "calls": {"calls": 2}}.items():
        (tmp_path / name).mkdir()
        run(tmp_path / name, test, reading=1.0, shared=True, trusted_proxies=networks, **limits)


def test_a_fault_of_the_engine_is_told_without_its_words(tmp_path: Path) -> None:
    async def test(channel: Any, engine: Any) -> None:
        engine.error, engine.fail_after = ValueError("a secret of the engine"), 0
        error = await failure(channel.unary_unary(f"/{SERVICE}/ModelInfer")(infer_message()))
        assert error.code() == grpc.StatusCode.INTERNAL and "secret" not in error.details()
        engine.error = None
        assert await channel.unary_unary(f"/{SERVICE}/ModelInfer")(infer_message())

    assert [line["status"] for line in run(tmp_path, test)] == ["INTERNAL", "OK"]


def test_too_many_bytes_at_once(tmp_path: Path) -> None:
    """While one call's message is held, as it waits for others to join its batch, a second one is too much."""

    async def test(channel: Any, engine: Any) -> None:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        first = asyncio.ensure_future(infer(infer_message()))
        await asyncio.sleep(0.3)
        second = await failure(infer(infer_message()))
        assert second.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "at once" in second.details()
        assert await first and await infer(infer_message())

    log = run(tmp_path, test, delay=1.0, budget=100)
    assert [line["status"] for line in log] == ["RESOURCE_EXHAUSTED", "OK", "OK"]
