"""The reverse proxy of containers/: what it keeps from the server. Needs nginx, in PATH or named by XBENCH_NGINX."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from serving_process import ServerProcess, film, image_request, until_closed
from synthetic import SIZE

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

NGINX = os.environ.get("XBENCH_NGINX") or shutil.which("nginx")
if NGINX is None:
    pytest.skip("nginx is not installed", allow_module_level=True)

INFER = "/v2/models/blocks-32/infer"
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n".encode()
# Times that a test can wait for.
SHORT = {"client_header_timeout": "1s", "client_body_timeout": "1s", "send_timeout": "1s", "keepalive_timeout": "2s"}


def configuration(root: Path, folder: Path, server: str, port: int) -> str:
    """containers/nginx.conf for a server and a folder of this machine, with short times and room for 4 connections."""
    text = (root / "containers" / "nginx.conf").read_text()
    for directive, value in {**SHORT, "limit_conn clients": "4"}.items():
        text, count = re.subn(rf"(\b{directive}) \w+;", rf"\1 {value};", text)
        assert count == 1, directive
    text = text.replace("upstream:8000", server).replace("listen 8080", f"listen 127.0.0.1:{port}")
    return text.replace("/tmp/", f"{folder}/")


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(folder / "models", tmp_path_factory.mktemp("proxied")) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def port(root: Path, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("nginx")
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    (folder / "nginx.conf").write_text(configuration(root, folder, server.address, number))
    line = [
        str(NGINX),
        "-e",
        str(folder / "log"),
        "-p",
        str(folder),
        "-c",
        str(folder / "nginx.conf"),
        "-g",
        "daemon off;",
    ]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(200):
                if process.poll() is not None:
                    break
                with suppress(OSError), socket.create_connection(("127.0.0.1", number), timeout=5):
                    break
                time.sleep(0.02)
            assert process.poll() is None, process.communicate()[1]
            yield number
        finally:
            process.terminate()


def answered(port: int) -> bool:
    return bool(httpx.get(f"http://127.0.0.1:{port}/v2/health/ready", timeout=30).status_code == 200)


def asked(server: ServerProcess) -> int:
    """The number of requests that reached the server. Their lines are written after the answers: those of all that were
    answered are there when that of one more is."""

    def live() -> int:
        return sum(line["route"] == "/v2/health/live" for line in server.lines())

    before = live()
    assert httpx.get(f"{server.url}/v2/health/live", timeout=30).status_code == 200
    for _ in range(3000):
        if live() > before:
            break
        time.sleep(0.01)
    assert live() == before + 1, "the server logs what it answers"
    return len(server.lines()) - live()


def test_requests_pass_as_they_are(port: int, server: ServerProcess, folder: Path) -> None:
    content, headers = image_request(film(folder), outputs=("logits", "saliency_full", "overlay"))
    through, direct = (
        httpx.post(f"{url}{INFER}", content=content, headers=headers, timeout=60)
        for url in (f"http://127.0.0.1:{port}", server.url)
    )
    assert through.status_code == 200 and through.content == direct.content
    assert httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).status_code == 404


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (b"GET /v2 HT", b""),
        (HEAD, b"X: " + b"a" * 60),
        (HEAD + b"Content-Length: 500\r\n\r\n", b""),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", b""),
    ],
    ids=["nothing", "part of a line", "a slow head", "no body", "part of a chunk"],
)
def test_who_sends_slowly_is_cut_off(port: int, server: ServerProcess, first: bytes, then: bytes) -> None:
    before = asked(server)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        line.sendall(first)
        got = until_closed(line, send=then)
    assert not got or got.startswith(b"HTTP/1.1 408")
    assert asked(server) == before, "the server saw nothing of it"


def test_who_reads_slowly_is_cut_off(port: int, server: ServerProcess) -> None:
    """An answer of 12 MB, which the server is rid of at once, for a client that takes nothing of it."""
    tensor = {"name": "pixels", "datatype": "UINT8", "shape": [20, 1, SIZE, SIZE]}
    tensor["parameters"] = {"binary_data_size": 20 * SIZE**2}
    content = {"inputs": [tensor], "outputs": [{"name": "saliency_full", "parameters": {"binary_data": True}}]}
    text = json.dumps(content).encode()
    body = text + bytes(20 * SIZE**2)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(30)
        line.connect(("127.0.0.1", port))
        head = f"Content-Length: {len(body)}\r\nInference-Header-Content-Length: {len(text)}\r\n\r\n"
        line.sendall(HEAD + head.encode() + body)
        assert line.recv(12) == b"HTTP/1.1 200"
        time.sleep(3)
        assert answered(port)
        got = 0
        with suppress(ConnectionError):
            while part := line.recv(1 << 20):
                got += len(part)
    assert got < 12 * 10**6, "the rest was thrown away"


@pytest.mark.parametrize("head", [b"X: " + b"a" * 300_000, b"X: 1\r\n" * 60_000], ids=["header", "headers"])
def test_heads_without_end_are_refused(port: int, server: ServerProcess, head: bytes) -> None:
    before = asked(server)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        with suppress(OSError):
            line.sendall(HEAD + head)
        got = until_closed(line)
    assert not got or got.startswith(b"HTTP/1.1 4")
    assert asked(server) == before and answered(port)


def test_a_client_has_a_number_of_requests_at_once(port: int) -> None:
    lines = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(5)]
    try:
        for line in lines:
            line.sendall(HEAD + b"Content-Length: 500\r\n\r\n")
        got = [until_closed(line) for line in lines]
    finally:
        for line in lines:
            line.close()
    assert sorted(part[9:12] for part in got) in (
        [b"", b"", b"", b"", b"429"],
        [b"408", b"408", b"408", b"408", b"429"],
    )
    assert answered(port)


def test_the_body_of_a_request_that_offers_another_protocol_is_its_body(port: int) -> None:
    """Java's client offers h2c with every request."""
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\n"
    head += (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\nContent-Length: 2\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        line.sendall(head + b"{}")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 200")
