"""What connections may do, with either parser and either event loop: many requests at once, long heads, no end."""

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
sys.modules.update(dict.fromkeys(sys.argv[2:]))
from xbench_fast.runtime.serving.access_log import AccessLog
from xbench_fast.runtime.serving.inference.catalogue import Catalogue
from xbench_fast.runtime.serving.connections import Limits
from xbench_fast.runtime.serving.http.app import HttpSettings
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


WITHOUT = pytest.mark.parametrize("without", [(), ("httptools",), ("uvloop",)], ids=["as installed", "h11", "asyncio"])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connections")
    make_bundle(folder / "blocks-32", graph=save_graph(folder / "blocks.onnx"))
    return folder / "blocks-32"


@pytest.fixture(scope="module", params=[(), ("httptools",), ("uvloop",)], ids=["as installed", "h11", "asyncio"])
def port(request: pytest.FixtureRequest, bundle: Path) -> Iterator[int]:
    with served(SERVER, bundle, request.param) as found:
        yield found


@contextmanager
def served(script: str, bundle: Path, without: tuple[str, ...]) -> Iterator[int]:
    """The port of a server that runs `script` where some packages are missing."""
    line = [sys.executable, "-c", script, str(bundle), *without]
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


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


def test_another_protocol_is_not_switched_to(port: int) -> None:
    got = exchange(port, GET + b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("pause", [0.0, 0.2])
@pytest.mark.parametrize("length", ["announced", "chunked", "none"])
def test_the_body_of_a_request_that_offers_another_protocol_is_its_body(port: int, length: str, pause: float) -> None:
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
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        for part in (*parts, *parts, GET + b"Connection: close\r\n\r\n"):
            line.sendall(part)
            time.sleep(pause)
        while part := line.recv(1 << 16):
            got += part
    assert got.count(b"HTTP/1.1 ") == 3 == got.count(b"HTTP/1.1 200"), got
    assert got.count(b'{"live":true}') == (3 if length == "none" else 1)


def test_a_body_of_two_lengths_ends_the_connection(port: int) -> None:
    """RFC 9112, 6.1: a proxy may have seen another request in it."""
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    got = exchange(port, head + b"Content-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + GET + b"\r\n")
    assert got.startswith(b"HTTP/1.1 400") and got.count(b"HTTP/1.1 ") == 1


SLOW = SERVER.replace(
    "settings = ", "from xbench_fast.runtime.serving import server\nserver._KEEP_ALIVE = 1\nsettings = "
)
SLOW = SLOW.replace("0)\n", "0)\nlistener.setsockopt(1, 7, 4096)  # SO_SNDBUF: little waits in the kernel\n", 1)
ANSWERS = 8  # of /metrics: more than the kernel's buffers hold, less than what pauses a writer


@WITHOUT
def test_a_client_that_reads_slowly_gets_all_of_its_answer(bundle: Path, without: tuple[str, ...]) -> None:
    with served(SLOW.replace("reading=1.0", "reading=30.0"), bundle, without) as port, narrow(port) as line:
        line.sendall(METRICS * ANSWERS)
        got = b""
        while got.count(b"HTTP/1.1 200") < ANSWERS or not got.endswith(b"\n"):
            part = line.recv(2048)
            assert part, "cut off"
            got += part
            time.sleep(0.15)


@WITHOUT
def test_a_client_that_does_not_read_is_cut_off(bundle: Path, without: tuple[str, ...]) -> None:
    """Even when its connection is closed but for what it has not read."""
    with served(SLOW, bundle, without) as port, narrow(port) as line:
        line.sendall(METRICS * ANSWERS + GET + b"Connection: close\r\n\r\n")
        time.sleep(4)
        got = b""
        with suppress(ConnectionResetError):
            while part := line.recv(1 << 16):
                got += part
        assert got and not got.endswith(b'{"live":true}')


METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def narrow(port: int) -> Iterator[socket.socket]:
    """A connection whose client takes little at once."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        line.settimeout(30)
        line.connect(("127.0.0.1", port))
        yield line


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
