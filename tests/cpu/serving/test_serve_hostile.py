"""Clients that are slow, go away, or send anything: no status of 500, no crash, no worker that is held."""

from __future__ import annotations

import io
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_images import dicom, encode
from PIL import Image
from serving_process import ServerProcess, film, image_request, stopped, until_closed
from synthetic import SIZE

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

INFER = "/v2/models/blocks-32/infer"
EXAMPLES = 40 * int(os.environ.get("XBENCH_FUZZ", "1"))
# As `xbench-fast serve`, but with limits that a test can wait for. The second line is the address of health checks.
IMPATIENT = """
import asyncio, sys
from pathlib import Path
from xbench_fast.runtime.serving.access_log import AccessLog
from xbench_fast.runtime.serving.inference.served_models import Catalogue
from xbench_fast.runtime.serving.server import bind, health_listener, serve
from xbench_fast.runtime.serving.settings import HttpSettings, ServerSettings

settings = ServerSettings(http=HttpSettings(body_timeout=1.0, budget=1 << 20, max_body=1 << 20), connections=24)
listener, health, log = bind("127.0.0.1", 0), bind("127.0.0.1", 0), AccessLog()
extras = [health_listener(health, settings, log)]
with Catalogue([Path(sys.argv[1])], engine="onnxruntime-cpu", threads=1) as catalogue:
    tell = lambda: print(*(f"127.0.0.1:{item.getsockname()[1]}" for item in (listener, health)), sep="\\n", flush=True)
    asyncio.run(serve(catalogue, listener, settings, log=log, announce=tell, extras=extras))
"""


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(folder / "models", tmp_path_factory.mktemp("hostile"), "--max-body", "1MB") as process:
        yield process
        assert process.process.poll() is None, process.log.read_text()
        assert process.stop() == 0
        log = process.log.read_text()
        assert "Traceback" not in log and '"status": 500' not in log, log


Address = tuple[str, int]


@pytest.fixture(scope="module")
def addresses(folder: Path) -> Iterator[tuple[Address, Address]]:
    line = [sys.executable, "-c", IMPATIENT, str(folder / "models" / "blocks-32")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            shown = [process.stdout.readline().strip().partition(":") for _ in range(2)]
            main, health = ((host, int(port)) for host, _, port in shown)
            yield main, health
        finally:
            errors = stopped(process)
        assert process.returncode == 0 and "Traceback" not in errors, errors


@pytest.fixture
def impatient(addresses: tuple[Address, Address]) -> Address:
    return addresses[0]


def answered(address: Address) -> bool:
    return bool(httpx.get(f"http://{address[0]}:{address[1]}/v2/health/ready", timeout=30).status_code == 200)


HEAD = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n".encode()


@pytest.mark.parametrize(
    ("first", "then", "status"),
    [
        (HEAD + b"Content-Length: 500\r\n\r\n", b"", b"408"),
        (HEAD + b"Content-Length: 500\r\n\r\n", b"{" * 400, b"408"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", b"", b"408"),
    ],
)
def test_who_sends_slowly_is_cut_off(impatient: Address, first: bytes, then: bytes, status: bytes) -> None:
    with socket.create_connection(impatient, timeout=30) as line:
        line.sendall(first)
        assert answered(impatient), "others are served meanwhile"
        got = until_closed(line, send=then)
    assert got.partition(b"\r\n")[0].split(b" ")[1:2] == ([status] if status else [])


def test_a_health_check_is_answered_however_many_connections_there_are(addresses: tuple[Address, Address]) -> None:
    main, health = addresses
    lines = [socket.create_connection(main, timeout=30) for _ in range(24)]
    try:
        refused = httpx.get(f"http://{main[0]}:{main[1]}/v2", timeout=30)
        assert refused.status_code == 503 and "as many connections as it takes" in refused.json()["error"]
        assert answered(main) and answered(health)
        counted = httpx.get(f"http://{health[0]}:{health[1]}/metrics", timeout=30)
        assert counted.status_code == 200 and "xbench_http_responses_total" in counted.text
        assert httpx.get(f"http://{health[0]}:{health[1]}/v2", timeout=30).status_code == 404
    finally:
        for line in lines:
            line.close()
    for _ in range(3000):
        if httpx.get(f"http://{main[0]}:{main[1]}/v2", timeout=30).status_code == 200:
            break
        time.sleep(0.02)
    assert answered(main)


def test_who_goes_away_is_forgotten(server: ServerProcess, folder: Path) -> None:
    content, headers = image_request(film(folder))
    host, port = server.address.split(":")
    head = HEAD + f"Content-Length: {len(content)}\r\n".encode()
    head += "".join(f"{key}: {value}\r\n" for key, value in headers.items()).encode() + b"\r\n"
    for part in (content, content[: len(content) // 2]):
        for _ in range(10):
            line = socket.create_connection((host, int(port)), timeout=30)
            line.sendall(head + part)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.close()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for _ in range(3000):
            if 'xbench_in_flight_images{model="blocks-32"} 0.0' in client.get("/metrics").text:
                break
            time.sleep(0.02)
        assert 'xbench_in_flight_images{model="blocks-32"} 0.0' in client.get("/metrics").text
        assert client.post(INFER, content=content, headers=headers).status_code == 200


text = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=12)
numbers = st.integers(-2, 2000).map(str)
header = st.tuples(
    st.sampled_from(
        ["Inference-Header-Content-Length", "Content-Type", "Content-Encoding", "Accept", "X-Any", "Expect"]
    ),
    numbers | text.map(str.strip),
)
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
tensors = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["image", "pixels", "findings", "prompts", "prompt_set", "tau"]),
        "datatype": st.sampled_from(["BYTES", "UINT8", "FP32"]),
        "shape": st.lists(st.integers(0, 3), max_size=4) | st.just([1, 1, SIZE, SIZE]),
    },
    optional={
        "data": values | st.lists(st.text(max_size=8), max_size=3) | st.just([7] * SIZE * SIZE),
        "parameters": values | st.just({"content_type": "base64"}) | st.just({"binary_data_size": 12}),
    },
)
outputs = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["logits", "mask", "boxes", "overlay", "x"])}), max_size=3
)
requests = st.fixed_dictionaries(
    {"inputs": st.lists(tensors, min_size=1, max_size=4)},
    optional={
        "outputs": outputs | values,
        "parameters": values
        | st.fixed_dictionaries({}, optional={"tau": st.floats(), "prompt_set": st.text(max_size=5)}),
        "id": st.text(max_size=4) | values,
    },
)
paths = st.sampled_from([INFER, "/v2/models/blocks-32", "/v2/repository/index", "/", "/v2", "/metrics"]) | st.text(
    st.characters(codec="ascii", exclude_categories=["Cc", "Zs"]), max_size=20
).map(lambda tail: "/v2/models/" + tail.replace("#", "").replace("?", ""))
slow = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Any]:
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


def check(answer: Any) -> None:
    assert answer.status_code < 500 or answer.status_code == 503, (answer.status_code, answer.text)
    if answer.status_code >= 400:
        assert answer.json()["error"], answer.text


@given(requests, st.binary(max_size=20), st.lists(header, max_size=2))
@slow
def test_any_request_is_answered_or_refused(
    client: Any, content: Any, raw: bytes, headers: list[tuple[str, str]]
) -> None:
    body = json.dumps(content).encode()
    given_length = [("Inference-Header-Content-Length", str(len(body)))] if raw else []
    check(client.post(INFER, content=body + raw, headers=[*given_length, *headers]))


@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS"]),
    paths,
    st.binary(max_size=60),
    st.lists(header, max_size=3),
)
@slow
def test_any_address_is_answered_or_refused(
    client: Any, method: str, path: str, body: bytes, headers: list[tuple[str, str]]
) -> None:
    answer = client.request(method, path, content=body, headers=headers)
    if method == "HEAD":
        assert answer.status_code < 500
    else:
        check(answer)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["PNG", "JPEG", "dcm"]), st.integers(1, 30))
@slow
def test_damaged_files_are_refused_or_answered(client: Any, folder: Path, seed: int, kind: str, changes: int) -> None:
    random = np.random.default_rng(seed)
    data = bytearray(damaged_source(folder, kind))
    for place in random.integers(0, len(data), changes):
        data[place] = random.integers(256)
    content, headers = image_request(bytes(data[: random.integers(1, len(data) + 1)]))
    check(client.post(INFER, content=content, headers=headers))


def damaged_source(folder: Path, kind: str) -> bytes:
    """A file that is whole still."""
    grey = np.asarray(Image.open(io.BytesIO(film(folder))))
    return bytes(dicom(grey) if kind == "dcm" else encode(grey, kind))


@given(st.binary(min_size=1, max_size=200))
@slow
def test_any_bytes_on_the_line(server: ServerProcess, data: bytes) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        line.settimeout(30)
        got = b""
        while part := line.recv(65536):
            got += part
    assert not got or got.startswith(b"HTTP/1.1 4"), got
