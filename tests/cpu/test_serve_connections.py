"""What connections may do, with either parser and either event loop: many requests at once, long heads, no end."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from serving_process import stopped
from synthetic import make_bundle, save_graph

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)

SERVER = """
import asyncio, sys
from pathlib import Path
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from xbench_fast.runtime.serving.access_log import AccessLog
from xbench_fast.runtime.serving.catalogue import Catalogue
from xbench_fast.runtime.serving.connections import Limits
from xbench_fast.runtime.serving.http_v2 import HttpSettings
from xbench_fast.runtime.serving.server import ServerSettings, bind, event_loop, serve

settings = ServerSettings(http=HttpSettings(body_timeout=1.0), limits=Limits(headers=1.0, body=1.5, reading=1.0))
listener = bind("127.0.0.1", 0)
with Catalogue([Path(sys.argv[1])], engine="onnxruntime-cpu", threads=1) as catalogue:
    tell = lambda: print(listener.getsockname()[1], flush=True)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(serve(catalogue, listener, settings, log=AccessLog(enabled=False), announce=tell))
"""
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@pytest.fixture(scope="module", params=[(), ("httptools",), ("uvloop",)], ids=["as installed", "h11", "asyncio"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("connections")
    bundle = folder / "blocks-32"
    make_bundle(bundle, graph=save_graph(folder / "blocks.onnx"))
    line = [sys.executable, "-c", SERVER, str(bundle), *request.param]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            errors = stopped(process)
        assert process.returncode == 0 and "Traceback" not in errors, errors


def exchange(port: int, data: bytes, *, ended: bool = False) -> bytes:
    """What comes back until the server closes; nothing is sent after `data`."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        try:
            line.sendall(data)
            if ended:
                line.shutdown(socket.SHUT_WR)
            while part := line.recv(1 << 16):
                got += part
        except TimeoutError:
            raise
        except OSError:  # cut off while it still sent
            return got
    return got


@pytest.mark.parametrize("count", [3, 1000])
def test_requests_sent_before_the_last_was_answered(port: int, count: int) -> None:
    """All are answered, in order; a body between them is no request."""
    body = GET + b"Content-Length: 20\r\n\r\n" + b"GET /metrics HTTP/1.1"[:20]
    data = (GET + b"\r\n" + body) * (count - 1) + GET + b"\r\n" + GET + b"Connection: close\r\n\r\n"
    got = exchange(port, data)
    assert got.count(b"HTTP/1.1 200") == 2 * count == got.count(b'{"live":true}')


@pytest.mark.parametrize(
    "data",
    [
        GET + b"X: " + b"a" * 300_000,
        GET + b"X: 1\r\n" * 60_000,
        b"GET /" + b"a" * 300_000,
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\n\r\n",
    ],
    ids=["header", "headers", "address", "two hosts", "no host"],
)
def test_heads_that_are_refused(port: int, data: bytes) -> None:
    got = exchange(port, data)
    assert not got or got.startswith(b"HTTP/1.1 4"), got[:200]
    assert b"HTTP/1.1 200" in exchange(port, GET + b"Connection: close\r\n\r\n")


def test_trailers_without_end_are_cut_off(port: int) -> None:
    assert b"HTTP/1.1 200" not in exchange(port, POST + b"X: " + b"a" * 300_000)
    assert b"HTTP/1.1 200" in exchange(port, POST + b"X: 1\r\n\r\n" + GET + b"Connection: close\r\n\r\n")


def test_another_protocol_is_not_switched_to(port: int) -> None:
    got = exchange(port, GET + b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")


def test_the_answer_to_head_has_no_body(port: int) -> None:
    got = exchange(port, b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ") and not body


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_empty_lines_do_not_hold_a_connection(port: int, pause: float) -> None:
    """They are allowed before a request, but no request comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(GET + b"\r\n")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 200")
        time.sleep(pause)
        line.sendall(b"\r\n")
        got = b""
        while part := line.recv(1 << 16):
            got += part
        assert not got or got.startswith(b"HTTP/1.1 400")
