"""Requests as clients of the protocol send them: compressed, as raw binary, with headers that ask for a form."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving_process import ServerProcess, film, image_request, scores

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

INFER = "/v2/models/blocks-32/infer"
PNG = {"Content-Type": "image/png"}
CODINGS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}


def logits(answer: Any) -> Any:
    """The logits of an answer in JSON or in the binary form."""
    assert answer.status_code == 200, answer.text
    head = answer.headers.get("inference-header-content-length")
    content = json.loads(answer.content[: None if head is None else int(head)])
    at = 0 if head is None else int(head)
    for output in content["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        if output["name"] == "logits":
            data = np.frombuffer(answer.content[at : at + size], "<f4") if size else np.float32(output["data"])
            return data.reshape(output["shape"])
        at += size
    raise AssertionError("no logits")


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_requests(client: Any, folder: Path, coding: str) -> None:
    data, pack = film(folder), CODINGS[coding]
    expected = scores(data)[0]
    answer = client.post(INFER, content=pack(data), headers={**PNG, "Content-Encoding": coding})
    np.testing.assert_array_equal(logits(answer), expected)
    content, headers = image_request(data)  # the length of its JSON is that before the compression
    answer = client.post(INFER, content=pack(content), headers={**headers, "Content-Encoding": coding.upper()})
    np.testing.assert_array_equal(logits(answer), expected)
    packed = pack(content)
    parts = (packed[at : at + 50] for at in range(0, len(packed), 50))  # in chunks, without a length
    np.testing.assert_array_equal(
        logits(client.post(INFER, content=parts, headers={**headers, "Content-Encoding": coding})), expected
    )
    index = client.post("/v2/repository/index", content=pack(b"{}"), headers={"Content-Encoding": coding})
    assert index.status_code == 200 and len(index.json()) == 2


@pytest.mark.parametrize("coding", CODINGS)
def test_the_limit_is_that_of_what_a_body_becomes(client: Any, coding: str) -> None:
    bomb = CODINGS[coding](bytes(20_000_000))
    answer = client.post(INFER, content=bomb, headers={**PNG, "Content-Encoding": coding})
    assert len(bomb) < 30_000 and answer.status_code == 413 and "--max-body" in answer.json()["error"]
    random = np.random.default_rng(0).integers(0, 256, 2_100_000, np.uint8).tobytes()
    answer = client.post(INFER, content=CODINGS[coding](random), headers={**PNG, "Content-Encoding": coding})
    assert answer.status_code == 413
    answer = client.post(INFER, content=b"{}", headers={"Content-Encoding": coding})
    assert answer.status_code == 400 and f"is not {coding}" in answer.json()["error"]


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, deflate", "text"])
def test_other_codings_are_refused_with_those_that_are_taken(client: Any, coding: str) -> None:
    answer = client.post(INFER, content=b"x", headers={**PNG, "Content-Encoding": coding})
    assert answer.status_code == 415 and answer.headers["accept-encoding"] == "gzip, deflate"
    assert coding in answer.json()["error"]
    other = client.post(INFER, content=b"x", headers={"Content-Type": "image/webp"})
    assert other.status_code == 415 and "accept-encoding" not in other.headers


@pytest.mark.parametrize("kind", [None, "application/octet-stream", "image/png"])
def test_tritons_raw_binary_request(client: Any, folder: Path, kind: str | None) -> None:
    """The example of its documentation: 0 bytes of JSON, the body is the input, all outputs are raw."""
    data = film(folder)
    headers = {"Inference-Header-Content-Length": "0", **({} if kind is None else {"Content-Type": kind})}
    answer = client.post(INFER, content=data, headers=headers)
    assert answer.headers["content-type"] == "application/octet-stream"
    head = json.loads(answer.content[: int(answer.headers["inference-header-content-length"])])
    assert all("binary_data_size" in output["parameters"] for output in head["outputs"])
    np.testing.assert_array_equal(logits(answer), scores(data)[0])
    answer = client.post(f"{INFER}?finding=Mass", content=data, headers={**headers, "Accept": "application/json"})
    assert answer.headers["content-type"] == "application/json" and logits(answer).shape == (1, 1)
    packed = client.post(INFER, content=gzip.compress(data), headers={**headers, "Content-Encoding": "gzip"})
    np.testing.assert_array_equal(logits(packed), scores(data)[0])
    for wrong, words in ((b"", "it is empty"), (struct.pack("<I", len(data)) + data, "neither PNG, JPEG nor DICOM")):
        answer = client.post(INFER, content=wrong, headers=headers)
        assert answer.status_code == 400 and words in answer.json()["error"]


def test_a_file_as_octets_is_a_file(client: Any, folder: Path) -> None:
    data = film(folder)
    answer = client.post(INFER, content=data, headers={"Content-Type": "Application/Octet-Stream"})
    assert answer.headers["content-type"] == "application/json"
    np.testing.assert_array_equal(logits(answer), scores(data)[0])


def test_an_answer_that_is_not_accepted(client: Any, folder: Path) -> None:
    data = film(folder)
    for accept in ("text/html", "image/jpeg", "*/*;q=0"):
        answer = client.post(INFER, content=data, headers={**PNG, "Accept": accept})
        assert answer.status_code == 406 and answer.headers["content-type"] == "application/json"
        assert "application/json, image/png, application/jsonl" in answer.json()["error"]
    for path in ("/v2", "/v2/models", "/v2/models/blocks-32", "/openapi.json", "/docs", "/", "/metrics"):
        assert client.get(path, headers={"Accept": "image/gif"}).status_code == 406
        assert client.get(path, headers={"Accept": "image/gif, */*;q=0.1"}).status_code == 200
    assert client.post("/v2/repository/index", headers={"Accept": "text/html"}).status_code == 406
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/blocks-32/ready"):
        assert client.get(path, headers={"Accept": "image/gif"}).status_code == 200


def test_the_binary_form_is_answered_where_it_is_asked_for(client: Any, folder: Path) -> None:
    data = film(folder)
    answer = client.post(INFER, content=data, headers={**PNG, "Accept": "application/octet-stream"})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert int(answer.headers["inference-header-content-length"]) == len(answer.content)
    np.testing.assert_array_equal(logits(answer), scores(data)[0])
    content, headers = image_request(data, parameters={"binary_data_output": True})
    answer = client.post(INFER, content=content, headers={**headers, "Accept": "application/json"})
    assert answer.headers["content-type"] == "application/octet-stream"
    np.testing.assert_array_equal(logits(answer), scores(data)[0])


def test_every_member_null_as_typed_clients_write_it(client: Any, folder: Path) -> None:
    image = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(film(folder)).decode()]}
    image["parameters"] = {"content_type": "base64", "binary_data_size": None, "headers": None}
    names = {"name": "findings", "datatype": "BYTES", "shape": [1, 1], "data": ["Mass"], "parameters": None}
    whole = {"id": None, "parameters": None, "inputs": [image, names], "outputs": [{"name": "logits"}]}
    whole["outputs"] = [{"name": "logits", "parameters": None}]
    answer = client.post(INFER, json=whole)
    assert logits(answer).shape == (1, 1) and "id" not in answer.json()


def test_tritonclient_compresses(server: Any, folder: Path) -> None:
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(server.address) as asked:
        image = triton.InferInput("image", [1], "BYTES")
        image.set_data_from_numpy(np.array([film(folder)], object))
        for algorithm in ("gzip", "deflate"):
            found = asked.infer(
                "blocks-32",
                [image],
                request_compression_algorithm=algorithm,
                response_compression_algorithm=algorithm,
            )
            np.testing.assert_array_equal(found.as_numpy("logits"), scores(film(folder))[0])


HEAD = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n".encode()
HEAD += b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=["httptools", "h11"])
def parsed_by(request: Any, server: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a server with this parser of HTTP."""
    if request.param == "httptools":
        pytest.importorskip("httptools")
        yield server.address
        return
    arguments = ("--model", "blocks-32", "--max-body", "2MB", "--http-parser", "h11")
    with ServerProcess(folder / "models", tmp_path_factory.mktemp("h11"), *arguments) as process:
        yield process.address
        assert process.stop() == 0 and "Traceback" not in process.log.read_text()


def answers(address: str, *parts: bytes) -> bytes:
    """What comes back for parts that are sent one after the other, until the connection ends or an answer is there."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            line.sendall(part)
            time.sleep(0.02)
        return line.recv(1 << 16)


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD + b"ffffffffffffffff\r\n",),
        (HEAD, b"ffffffffffffffff\r\n"),
        (HEAD[:-3], HEAD[-3:-1], HEAD[-1:], b"fffff", b"fffffffffff\r", b"\n"),
        (HEAD + b"7fffffff;name=value\r\n",),
        (HEAD + b"1e8481\r\n",),  # 2,000,001
        (HEAD + b"3\r\nabc\r\n", b"4;x\r\ndefg\r\n", b"1e8481\r\n"),
        (HEAD + b"3\r\nabc", b"\r", b"\nFFFFFFFF\r\n"),
        (HEAD + b"10\r\n99999999999\r\n999\r\n99999999\r\n",),
    ],
)
def test_a_chunk_that_cannot_end_is_refused_when_it_is_announced(parsed_by: str, parts: tuple[bytes, ...]) -> None:
    got = answers(parsed_by, *parts)
    assert got.startswith(b"HTTP/1.1 413 ") and b"connection: close" in got.lower() and b"--max-body" in got


def test_chunks_of_any_cut_are_read(parsed_by: str, folder: Path) -> None:
    """Chunks whose bytes look like sizes, cut anywhere; two requests on one connection."""
    data = film(folder) + b"\r\nffffffff\r\n" * 40
    chunks = b"".join(
        b"%x;n=v\r\n%s\r\n" % (len(data[at : at + 97]), data[at : at + 97]) for at in range(0, len(data), 97)
    )
    whole = HEAD + chunks + b"0\r\n\r\n"
    for cuts in ([], [len(HEAD) - 1], [len(HEAD) + 1, len(HEAD) + 103, len(HEAD) + 105], [50, len(whole) - 3]):
        parts = [whole[start:end] for start, end in pairwise([0, *cuts, len(whole)])]
        assert answers(parsed_by, *parts).startswith(b"HTTP/1.1 200 ")
    head = HEAD.replace(INFER.encode(), b"/v2/repository/index")
    two = head + b"2\r\n{}\r\n0\r\nTrailer: ffff\r\n\r\n" + head + b"2\r\n{}\r\n0\r\n\r\n"
    assert answers(parsed_by, two, b"", b"").count(b"HTTP/1.1 200") >= 1
