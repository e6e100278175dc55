"""What connections may do, with either parser and either event loop: many requests at once, long heads, no end.

What httptools has no limit for is left to a reverse proxy (docs/serve.md, test_serve_proxy).
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from serving_process import stopped
from synthetic import make_bundle, save_graph

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)

SERVER = """
import asyncio, sys
from pathlib import Path
sys.modules.update(dict.fromkeys(sys.argv[3:]))
from xbench_fast.runtime.serving.access_log import AccessLog
from xbench_fast.runtime.serving.inference.served_models import Catalogue
from xbench_fast.runtime.serving.server import bind, event_loop, serve
from xbench_fast.runtime.serving.settings import HttpSettings, ServerSettings

settings = ServerSettings(http=HttpSettings(body_timeout=60.0), parser=sys.argv[2])
listener = bind("127.0.0.1", 0)
with Catalogue([Path(sys.argv[1])], engine="onnxruntime-cpu", threads=1) as catalogue:
    tell = lambda: print(listener.getsockname()[1], flush=True)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(serve(catalogue, listener, settings, log=AccessLog(enabled=False), announce=tell))
"""
GET = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connections")
    make_bundle(folder / "blocks-32", graph=save_graph(folder / "blocks.onnx"))
    return folder / "blocks-32"


@pytest.fixture(
    scope="module", params=[("httptools",), ("h11",), ("auto", "uvloop")], ids=["httptools", "h11", "asyncio"]
)
def port(request: pytest.FixtureRequest, bundle: Path) -> Iterator[int]:
    with served(bundle, request.param) as found:
        yield found


@pytest.fixture(scope="module")
def strict(bundle: Path) -> Iterator[int]:
    with served(bundle, ("h11",)) as found:
        yield found


@pytest.fixture(scope="module")
def quick(bundle: Path) -> Iterator[int]:
    with served(bundle, ("httptools",)) as found:
        yield found


@contextmanager
def served(bundle: Path, how: tuple[str, ...]) -> Iterator[int]:
    """The port of a server with the parser `how[0]`, where the packages in the rest of `how` are missing."""
    line = [sys.executable, "-c", SERVER, str(bundle), *how]
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
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
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
    [b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n", b"GET /v2 HTTP/1.1\r\n\r\n"],
    ids=["two hosts", "no host"],
)
def test_hosts_that_are_refused(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(data)
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 400")
    assert b"HTTP/1.1 200" in exchange(port, GET + b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "data",
    [GET + b"X: " + b"a" * 300_000, GET + b"X: 1\r\n" * 60_000, b"GET /" + b"a" * 300_000],
    ids=["header", "headers", "address"],
)
def test_heads_that_h11_refuses(strict: int, data: bytes) -> None:
    got = exchange(strict, data)
    assert not got or got.startswith(b"HTTP/1.1 4"), got[:200]
    assert b"HTTP/1.1 200" in exchange(strict, GET + b"Connection: close\r\n\r\n")


def test_trailers_without_end_are_cut_off_by_h11(strict: int) -> None:
    assert b"HTTP/1.1 200" not in exchange(strict, POST + b"X: " + b"a" * 300_000)
    assert b"HTTP/1.1 200" in exchange(strict, POST + b"X: 1\r\n\r\n" + GET + b"Connection: close\r\n\r\n")


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


def test_another_protocol_is_not_switched_to(port: int) -> None:
    got = exchange(port, GET + b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("pause", [0.0, 0.2])
@pytest.mark.parametrize("length", ["announced", "chunked", "none"])
def test_h11_reads_the_body_of_a_request_that_offers_another_protocol(strict: int, length: str, pause: float) -> None:
    """Java's client offers h2c with every request. What looks like a request in the body is none."""
    body = b'{"a": "' + GET + b'\r\n"}'
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\n" + OFFER
    if length == "announced":
        parts = [head + b"Content-Length: %d\r\n\r\n" % len(body), body]
    elif length == "chunked":
        parts = [head + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)]
    else:
        parts = [head.replace(b"POST /v2/repository/index", b"GET /v2/health/live") + b"\r\n", b""]
    got = b""
    with socket.create_connection(("127.0.0.1", strict), timeout=60) as line:
        for part in (*parts, *parts, GET + b"Connection: close\r\n\r\n"):
            line.sendall(part)
            time.sleep(pause)
        while part := line.recv(1 << 16):
            got += part
    assert got.count(b"HTTP/1.1 ") == 3 == got.count(b"HTTP/1.1 200"), got
    assert got.count(b'{"live":true}') == (3 if length == "none" else 1)


@pytest.mark.parametrize("body", [b'{"a": "' + GET + b'\r\n"}', GET + b"\r\n"], ids=["JSON", "a request"])
@pytest.mark.parametrize("pause", [None, 0.0, 0.2])
def test_httptools_refuses_a_body_of_a_request_that_offers_another_protocol(
    quick: int, pause: float | None, body: bytes
) -> None:
    """What looks like a request in the body is none: the connection is closed."""
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\n" + OFFER
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    got = b""
    with socket.create_connection(("127.0.0.1", quick), timeout=60) as line, suppress(ConnectionError):
        line.sendall(head + body if pause is None else head)
        if pause is not None:
            time.sleep(pause)
            line.sendall(body)
        while part := line.recv(1 << 16):
            got += part
    assert b"HTTP/1.1 200" not in got and got.count(b"HTTP/1.1 400") <= 1, got
    if pause is None:
        assert b"send it without Upgrade" in got


def test_a_body_of_two_lengths_ends_the_connection(port: int) -> None:
    """RFC 9112, 6.1: a proxy may have seen another request in it."""
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    got = exchange(port, head + b"Content-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + GET + b"\r\n")
    assert got.startswith(b"HTTP/1.1 400") and got.count(b"HTTP/1.1 ") == 1


def test_the_answer_to_head_has_no_body(port: int) -> None:
    got = exchange(port, b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ") and not body
