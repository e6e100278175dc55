"""`xbench-fast serve` as a process, asked by tritonclient and httpx: answers and refusals."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving_process import ServerProcess, film, image_request, scores
from synthetic import SIZE, model, prompt_set

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")
triton = pytest.importorskip("tritonclient.http")

INFER = "/v2/models/blocks-32/infer"


def test_tritonclient_finds_its_way(server: ServerProcess) -> None:
    with triton.InferenceServerClient(server.address) as asked:
        assert asked.is_server_live() and asked.is_server_ready()
        assert asked.is_model_ready("blocks-32") and asked.is_model_ready("several-32", "1")
        assert not asked.is_model_ready("absent") and not asked.is_model_ready("blocks-32", "2")
        assert asked.get_server_metadata()["name"] == "xbench-fast"
        assert "binary_tensor_data" in asked.get_server_metadata()["extensions"]
        index = asked.get_model_repository_index()
        assert [(item["name"], item["state"]) for item in index] == [("blocks-32", "READY"), ("several-32", "READY")]
        described = asked.get_model_metadata("several-32")
        assert described["versions"] == ["1"] and described["platform"] == "onnxruntime-cpu"
        shapes = {item["name"]: (item["datatype"], item["shape"]) for item in described["inputs"]}
        assert shapes["pixels"] == ("UINT8", [-1, 1, SIZE, SIZE]) and shapes["image"] == ("BYTES", [-1])
        shapes = {item["name"]: (item["datatype"], item["shape"]) for item in described["outputs"]}
        assert shapes["saliency"] == ("FP32", [-1, -1, 4, 4])
        assert (
            described["parameters"]["weights"] == "demo" and "demo model" in described["parameters"]["weights_notice"]
        )
        assert described["parameters"]["prompt_sets"]["other"] == ["Mass", "Effusion", "Unicorn"]


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_asks_with_pixels(server: ServerProcess, binary: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, SIZE, SIZE), dtype=np.uint8)
    tensor = triton.InferInput("pixels", list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels, binary_data=binary)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("logits", "saliency", "sizes")]
    with triton.InferenceServerClient(server.address) as asked:
        result = asked.infer("blocks-32", [tensor], outputs=wanted, request_id="41")
    logits, saliency = model(pixels, prompt_set().features)
    np.testing.assert_array_equal(result.as_numpy("logits"), logits)
    np.testing.assert_array_equal(result.as_numpy("saliency"), saliency)
    assert result.as_numpy("sizes").tolist() == [[SIZE, SIZE]] * 3
    assert result.get_response()["id"] == "41" and result.as_numpy("mask") is None


def test_a_file_gives_every_output(server: ServerProcess, folder: Path) -> None:
    names = ["findings", "logits", "logits_negative", "probabilities", "probabilities_pair", "saliency"]
    names += ["saliency_full", "mask", "boxes", "overlay", "preview", "sizes", "frames"]
    tensor = triton.InferInput("image", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([film(folder)], object))
    wanted = [triton.InferRequestedOutput(name) for name in names]
    with triton.InferenceServerClient(server.address) as asked:
        result = asked.infer("blocks-32", [tensor], outputs=wanted, parameters={"tau": 0.25})
        got = {name: result.as_numpy(name) for name in names}
    logits, saliency = scores(film(folder))
    np.testing.assert_array_equal(got["logits"], logits)
    np.testing.assert_array_equal(got["saliency"], saliency)
    np.testing.assert_allclose(got["probabilities"], 1 / (1 + np.exp(-logits.astype(np.float64))), rtol=1e-12)
    assert np.isnan(got["logits_negative"]).all() and np.isnan(got["probabilities_pair"]).all()
    assert got["saliency_full"].shape == got["mask"].shape == (1, 3, 224, 224)
    np.testing.assert_array_equal(got["mask"], got["saliency_full"] >= np.float32(0.25))
    assert got["sizes"].tolist() == [[40, 56]] and got["frames"].tolist() == [[0, 0, 1, 1]]
    assert got["findings"].tolist() == [b"Mass", b"Effusion", b"Unicorn"]
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(got["preview"][0]))), Image.open(io.BytesIO(film(folder)))
    )
    for index in range(3):
        drawn = Image.open(io.BytesIO(got["overlay"][0, index]))
        assert (drawn.size, drawn.mode) == ((56, 40), "RGB")
        boxes = got["boxes"][got["boxes"][:, 1] == index]
        inside = np.zeros((224, 224), bool)
        for _, _, x0, y0, x1, y1, _ in boxes:
            inside[round(y0 * 224) : round(y1 * 224), round(x0 * 224) : round(x1 * 224)] = True
        assert inside[got["mask"][0, index] > 0].all() and boxes[0, 6] == 1


def test_json_alone_is_enough(client: Any, folder: Path) -> None:
    import base64

    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(film(folder)).decode()]}
    tensor["parameters"] = {"content_type": "base64"}
    names = {"name": "findings", "datatype": "BYTES", "shape": [2], "data": ["Effusion", "Mass"]}
    answer = client.post(INFER, json={"inputs": [tensor, names]})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    data = {item["name"]: item["data"] for item in answer.json()["outputs"]}
    assert data["findings"] == ["Effusion", "Mass"]
    assert np.array_equal(np.float32(data["logits"]), scores(film(folder))[0][0, [1, 0]])


def bomb() -> bytes:
    """A PNG of a few kilobytes that says it has 10 000 million pixels."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1 << 20)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"GIF89a", "neither PNG, JPEG nor DICOM"),
        (b"\xff\xd8\xff\xe0", "truncated"),
        (bytes(128) + b"DICM" + bytes(40), "Image 0 cannot be read"),
        (bomb(), "100000 x 100000 pixels, the limit is"),
        (b"/etc/passwd", "neither"),
        (b"\x80\x04\x95.", "neither"),
    ],
)
def test_a_file_that_is_no_radiograph(client: Any, data: bytes, words: str) -> None:
    content, headers = image_request(data)
    answer = client.post(INFER, content=content, headers=headers)
    assert answer.status_code == 400 and words in answer.json()["error"]


def pixels(shape: list[int], datatype: str = "UINT8") -> dict[str, Any]:
    data = [0] * int(np.prod(shape))
    return {"inputs": [{"name": "pixels", "datatype": datatype, "shape": shape, "data": data}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pixels([1, 1, 8, 8]), "takes 'pixels' as uint8 [N, 1, 32, 32]"),
        (pixels([1, 32, 32]), "takes 'pixels' as uint8"),
        (pixels([0, 1, 32, 32]), "holds no image"),
        (pixels([1, 1, 32, 32], "INT64"), "must be UINT8"),
        (pixels([1, 1, 32, 32]) | {"parameters": {"prompt_set": "vindr"}}, "no prompt set 'vindr': known are coco"),
        (pixels([1, 1, 32, 32]) | {"parameters": {"tau": 1.5}}, "tau is 1.5"),
        (pixels([1, 1, 32, 32]) | {"outputs": [{"name": "logit"}]}, "did you mean 'logits'"),
        (
            {
                "inputs": [
                    *pixels([1, 1, 32, 32])["inputs"],
                    {"name": "findings", "datatype": "BYTES", "shape": [1], "data": ["mass"]},
                ]
            },
            "no finding 'mass'",
        ),
        (
            {
                "inputs": [
                    *pixels([1, 1, 32, 32])["inputs"],
                    {"name": "prompts", "datatype": "BYTES", "shape": [1], "data": ['{"Mass": ["a mass"]}']},
                ]
            },
            "no text graph",
        ),
        (
            {
                "inputs": [
                    *pixels([1, 1, 32, 32])["inputs"],
                    {"name": "image", "datatype": "BYTES", "shape": [1], "data": ["x"]},
                ]
            },
            "either 'image' or 'pixels'",
        ),
        (pixels([65, 1, 32, 32]), "holds 65 images, blocks-32 takes 64"),
    ],
)
def test_what_does_not_fit_is_said(client: Any, content: Any, words: str) -> None:
    answer = client.post(INFER, json=content)
    assert answer.status_code in (400, 413) and words in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v2/models/absent", 404),
        ("GET", "/v2/models/blocks-32/versions/2", 404),
        ("POST", "/v2/models/absent/infer", 404),
        ("POST", "/v2/models/..%2f..%2fetc/infer", 404),
        ("GET", INFER, 405),
        ("DELETE", "/v2", 405),
        ("POST", "/v2/repository/models/blocks-32/load", 404),
    ],
)
def test_addresses_that_do_not_exist(client: Any, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status and answer.json()["error"]


def test_large_bodies_are_refused_before_they_are_read(client: Any, server: ServerProcess) -> None:
    import socket

    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n".encode())
        head = ""
        while not head.endswith("}"):  # not a byte of the body was sent
            head += line.recv(65536).decode()
    assert head.startswith("HTTP/1.1 413") and "2000000 bytes" in head

    def parts() -> Iterator[bytes]:
        for _ in range(60):
            yield bytes(50_000)

    answer = client.post(INFER, content=parts())
    assert answer.status_code == 413
    packed = client.post(INFER, content=b"x", headers={"Content-Encoding": "br"})
    assert packed.status_code == 415 and "gzip" in packed.headers["Accept-Encoding"]


def test_the_log_and_the_counters_hold_no_content(client: Any, server: ServerProcess, folder: Path) -> None:
    content, headers = image_request(film(folder), parameters={"prompt_set": "coco"})
    assert client.post(INFER, content=content, headers={**headers, "X-Secret": "s3cret"}).status_code == 200
    assert client.get("/somewhere/Jane-Doe").status_code == 404
    for _ in range(6000):  # a line is written after its answer is sent
        last, missing = server.lines()[-2:]
        if missing["route"] == "other":
            break
        time.sleep(0.01)
    assert {"time", "client", "method", "ms"} < set(last) and last["route"] == "/v2/models/{model}/infer"
    assert (last["status"], last["model"], last["images"], last["bytes_in"]) == (200, "blocks-32", 1, len(content))
    assert missing["route"] == "other" and missing["status"] == 404
    text = server.log.read_text()
    assert "Jane" not in text and "s3cret" not in text and "Traceback" not in text
    counted = client.get("/metrics")
    assert counted.headers["content-type"].startswith("text/plain")
    values = dict(line.rsplit(" ", 1) for line in counted.text.splitlines() if not line.startswith("#"))
    assert float(values['xbench_requests_total{code="OK",model="blocks-32"}']) >= 1
    assert float(values['xbench_in_flight_images{model="blocks-32"}']) == 0
    assert float(values['xbench_http_responses_total{status="404"}']) >= 1
    assert float(values['xbench_batch_images_count{model="blocks-32"}']) >= 1


def test_only_names_of_this_machine_are_answered(client: Any, server: ServerProcess) -> None:
    port = server.address.rpartition(":")[2]
    for name in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert client.get("/v2", headers={"Host": name}).status_code == 200, name
    for name in (
        "evil.example",
        f"evil.example:{port}",
        "localhost.evil.example",
        "10.0.0.1",
        "",
        "[::1].evil.example",
    ):
        assert client.get("/v2", headers={"Host": name}).status_code == 400, name


def test_json_of_every_answer_is_valid(client: Any, folder: Path) -> None:
    """NaN is no JSON; where there is no negative prompt the value is null."""
    content, headers = image_request(film(folder), outputs=("logits_negative", "probabilities_pair"))
    answer = client.post(INFER, content=content, headers=headers)
    found = json.loads(answer.text, parse_constant=lambda text: pytest.fail(text))
    assert [item["data"] for item in found["outputs"]] == [[None] * 3] * 2
