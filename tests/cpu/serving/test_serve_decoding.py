"""Decoding that takes too long, crashes or is abandoned, in the processes that decode for a server."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import io
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from synthetic import SIZE, BlockEngine, make_bundle
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.images.samples import dicom_sample
from xbench_fast.runtime.serving.inference import image_decoding as decoding
from xbench_fast.runtime.serving.inference.decoder_process import MEMORY
from xbench_fast.runtime.serving.inference.image_decoding import HEAD, READY, DecodeJob, Decoders
from xbench_fast.runtime.serving.inference.request_images import prepare_quick, prepare_request
from xbench_fast.runtime.serving.inference.served_models import Catalogue
from xbench_fast.runtime.serving.inference.service import Service
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest, DeadlineExceeded, Internal
from xbench_fast.runtime.serving.protocol.requests import Request
from xbench_fast.runtime.serving.settings import ServiceSettings

pytest.importorskip("prometheus_client")

GEOMETRY = Geometry("squash", SIZE, SIZE, "bilinear")
DICOM = dicom_sample("JPEG 2000")
REPLACED = """
import sys, os, signal, threading, resource, runpy
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.serving.inference import request_images as images
def decode(data, geometry, name, *, side):
    {statement}
images.prepare_file = decode
runpy.run_module("xbench_fast.runtime.serving.inference.decoder_process", run_name="__main__")
"""


def command(statement: str) -> tuple[str, ...]:
    """The process that decodes, with a statement in place of its decoder."""
    return (sys.executable, "-c", REPLACED.format(statement=statement))


def picture(kind: str, side: int = 48, **how: Any) -> bytes:
    buffer = io.BytesIO()
    grey = np.random.default_rng(side).integers(0, 256, (side, side), dtype=np.uint8)
    Image.fromarray(grey).save(buffer, kind, **how)
    return buffer.getvalue()


def ask(data: bytes, **fields: Any) -> Request:
    return Request("blocks-32", images=(data,), **fields)


def serve(bundle: Path, test: Callable[[Service], Awaitable[None]], **settings: Any) -> None:
    from xbench_fast.runtime.serving.prometheus_metrics import Metrics

    def open_block(bundle: Bundle, name: str, **how: Any) -> BlockEngine:
        return BlockEngine(bundle, **how)

    async def body() -> None:
        with Catalogue([bundle], engine="onnxruntime-cpu", threads=1, open_engine=open_block) as catalogue:
            async with Service(catalogue, ServiceSettings(**settings), Metrics()) as service:
                await asyncio.wait_for(test(service), 100)

    asyncio.run(body())


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "blocks-32").path


def test_a_process_gives_the_pixels_of_a_thread() -> None:
    async def body() -> None:
        decoders = Decoders(1)
        for outputs in (frozenset({"logits"}), frozenset({"overlay"})):
            request = Request("m", images=(DICOM, picture("PNG"), picture("JPEG", 60)), outputs=outputs)
            expected, found = prepare_request(request, GEOMETRY), await decoders.prepare(request, GEOMETRY, 60.0)
            assert len(found) == 3
            for one, other in zip(expected, found, strict=True):
                for field in dataclasses.fields(one):
                    np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
        (process,) = decoders._all
        assert os.getsid(process.pid) != os.getsid(0), "Ctrl-C is for the server"
        await decoders.close()
        assert process.returncode is not None

    asyncio.run(body())


@pytest.mark.parametrize(
    ("files", "quick"),
    [
        ((), True),
        ((picture("PNG"), picture("JPEG")), True),
        ((b"", b"\xff\xd8", b"\x89PNG"), True),
        ((DICOM,), False),
        ((picture("PNG"), DICOM), False),
        ((picture("PNG")[:16] + (4097).to_bytes(4) + (4096).to_bytes(4),), False),
        ((picture("PNG")[:16] + (4096).to_bytes(4) + (4096).to_bytes(4),), True),
        ((picture("PNG")[:16] + (4096).to_bytes(4) + (4096).to_bytes(4), picture("PNG")), False),
        ((picture("PNG") + bytes(4 << 20),), False),
        ((picture("PNG") + b"zTXt",), False),
        ((picture("PNG") + b"iTXt",), False),
        ((picture("JPEG", progressive=True),), True),
        ((picture("JPEG", progressive=True) + b"\xff\xda" * 8000,), False),
    ],
)
def test_what_a_thread_may_decode(files: tuple[bytes, ...], quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from xbench_fast.runtime.serving.inference import request_images as images

    monkeypatch.setattr(images, "prepare_request", lambda *_: [])
    assert (prepare_quick(Request("m", images=files), GEOMETRY) is not None) == quick


def test_an_answer_comes_in_time_whatever_is_decoded(blocks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are answered meanwhile, and the process is gone."""
    monkeypatch.setattr(decoding, "_COMMAND", command("threading.Event().wait()"))

    async def test(service: Service) -> None:
        blocked = [asyncio.create_task(service.infer(ask(DICOM))) for _ in range(3)]
        while len(service._decoders._all) < 2:
            await asyncio.sleep(0.01)
        processes = list(service._decoders._all)
        for _ in range(4):
            assert (await service.infer(ask(picture("PNG")))).findings
        for one in blocked:
            with pytest.raises(DeadlineExceeded, match="within 3 s"):
                await one
        assert [await process.wait() for process in processes] == [-signal.SIGKILL] * 2

    serve(blocks, test, timeout=3, workers=2)


def test_a_request_that_gives_up_does_not_end_a_process_that_starts(blocks: Path) -> None:
    """Else a short timeout would end every process before its first file."""

    async def test(service: Service) -> None:
        first = asyncio.create_task(service.infer(ask(DICOM)))
        while not service._decoders._all:
            await asyncio.sleep(0.01)
        assert not service._decoders._idle
        first.cancel()
        assert (await service.infer(ask(DICOM))).findings
        assert first.cancelled() and len(service._decoders._all) == 1

    serve(blocks, test, workers=1)


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", BadRequest, "decoder ended with signal 11"),
        ("sys.exit(3)", Internal, "unexpectedly"),
        ("raise ImageError(f'{name} is torn')", BadRequest, "^Image 0 is torn$"),
        ("os.kill(os.getpid(), signal.SIGTERM); print('noise'); raise ImageError('alive')", BadRequest, "^alive$"),
        ("raise ImageError(str('pydicom' in sys.modules))", BadRequest, "^True$"),
        ("raise ImageError(str(resource.getrlimit(resource.RLIMIT_DATA)[0]))", BadRequest, f"^{MEMORY}$"),
    ],
    ids=["crash", "exit", "damaged", "terminated", "ready", "memory"],
)
def test_a_decoder_that_fails(
    blocks: Path, monkeypatch: pytest.MonkeyPatch, statement: str, kind: type[Exception], words: str
) -> None:
    real = decoding._COMMAND

    async def test(service: Service) -> None:
        monkeypatch.setattr(decoding, "_COMMAND", command(statement))
        with pytest.raises(kind, match=words):
            await service.infer(ask(DICOM))
        if service._decoders._idle:
            return
        monkeypatch.setattr(decoding, "_COMMAND", real)
        assert (await service.infer(ask(DICOM))).findings

    serve(blocks, test, workers=1)


def test_a_process_without_its_server_ends_in_time() -> None:
    """When the server was killed, the input is closed but the decoder does not look at it."""
    with subprocess.Popen(
        command("threading.Event().wait()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.read(len(READY)) == READY
        job = msgspec.msgpack.encode(DecodeJob([b"x"], GEOMETRY.key, 0, 1))
        process.stdin.write(len(job).to_bytes(HEAD, "little") + job)
        process.stdin.close()
        assert process.wait(60) == -signal.SIGALRM


@pytest.mark.parametrize("data", [b"\xff\xd8 damaged", DICOM[:-200], DICOM], ids=["thread", "process", "late"])
def test_a_request_that_failed_is_freed_at_once(blocks: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at the next run of the garbage collector, which can be far away."""
    if data is DICOM:
        monkeypatch.setattr(decoding, "_COMMAND", command("threading.Event().wait()"))

    async def test(service: Service) -> None:
        request = ask(data, timeout=1.0 if data is DICOM else None)
        kept = weakref.ref(request)
        gc.disable()
        try:
            with pytest.raises(DeadlineExceeded if data is DICOM else BadRequest) as caught:
                await service.infer(request)
            del request, caught
            for _ in range(500):  # a thread lets go of its work after it gave the result
                if kept() is None:
                    break
                await asyncio.sleep(0.01)
            assert kept() is None
        finally:
            gc.enable()

    serve(blocks, test, workers=1)
