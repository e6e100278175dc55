"""An image file as the body of a request, as curl sends it; pictures, the list of models, and the description."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving_process import image_request
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.images.samples import dicom_sample

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

INFER = "/v2/models/blocks-32/infer"
PNG = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def film(folder: Path) -> bytes:
    return (folder / "data" / "images" / "case0000.png").read_bytes()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "DICOM"])
def test_a_file_gives_the_answer_of_the_json_form(client: Any, film: bytes, kind: str) -> None:
    data, buffer = dicom_sample("JPEG 2000"), io.BytesIO()
    if kind != "DICOM":
        Image.open(io.BytesIO(film)).save(buffer, kind)
        data = buffer.getvalue()
    outputs = ("findings", "probabilities", "boxes")
    query = {"finding": ["Mass", "Effusion"], "outputs": ",".join(outputs), "tau": "0.3"}
    content_type = "application/dicom" if kind == "DICOM" else f"image/{kind.lower()}"
    answer = client.post(INFER, content=data, headers={"Content-Type": content_type}, params=query)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    content, headers = image_request(data, outputs=outputs, parameters={"tau": 0.3})
    whole = client.post(INFER, content=content, headers=headers).json()
    found = {item["name"]: item for item in answer.json()["outputs"]}
    expected = {item["name"]: item for item in whole["outputs"]}
    places = [expected["findings"]["data"].index(name) for name in ("Mass", "Effusion")]
    assert found["findings"]["data"] == ["Mass", "Effusion"]
    assert found["probabilities"]["data"] == [expected["probabilities"]["data"][place] for place in places]
    assert answer.json()["parameters"] == whole["parameters"]


def test_without_options_all_findings_are_answered(client: Any, film: bytes) -> None:
    answer = client.post(INFER, content=film, headers=PNG).json()
    assert answer["outputs"][0]["data"] == client.get("/v2/models").json()["models"][0]["findings"]


def test_a_picture_is_the_overlay(client: Any, film: bytes) -> None:
    from base64 import b64decode

    asked = {"outputs": "findings,probabilities,overlay", "tau": "0.4"}
    outputs = client.post(INFER, content=film, headers=PNG, params=asked).json()["outputs"]
    findings, probabilities, overlays = (item["data"] for item in outputs)
    best = int(np.argmax(probabilities))
    for query, place in ({"tau": "0.4"}, best), ({"tau": "0.4", "finding": "Unicorn"}, findings.index("Unicorn")):
        answer = client.post(INFER, content=film, headers={**PNG, "Accept": "image/png"}, params=query)
        assert answer.status_code == 200 and answer.headers["content-type"] == "image/png"
        assert answer.content == b64decode(overlays[place])
        assert answer.headers["xbench-finding"] == findings[place]
        assert float(answer.headers["xbench-probability"]) == pytest.approx(probabilities[place], rel=1e-5)
        assert Image.open(io.BytesIO(answer.content)).mode == "RGB"
    content, headers = image_request(film, outputs=("logits",))
    shown = client.post(INFER, content=content, headers={**headers, "Accept": "image/png"})
    assert Image.open(io.BytesIO(shown.content)).mode == "RGB"


def test_lines_of_boxes_are_read_as_they_are(client: Any, folder: Path, tmp_path: Path) -> None:
    """The served boxes of every image, read from the collected lines, are the boxes of the JSON form in pixels."""
    dataset = Coco(folder / "data")
    questions = Questions(dataset.cases(), dataset.classes, ("coco",))
    findings = {item: place for place, item in enumerate(dataset.classes)}
    path, expected = tmp_path / "answers.jsonl", {}
    with path.open("wb") as stream:
        for case in dataset.cases():
            asked = {"findings": ",".join(findings), "tau": "0.6", "id": case.case_id}
            headers = {**PNG, "Accept": "application/jsonl"}
            answer = client.post(INFER, content=case.image.read_bytes(), headers=headers, params=asked)
            assert answer.status_code == 200 and answer.headers["content-type"] == "application/jsonl"
            stream.write(answer.content)
            content, headers = image_request(case.image.read_bytes(), outputs=("boxes",), parameters={"tau": 0.6})
            (boxes,) = client.post(INFER, content=content, headers=headers).json()["outputs"]
            names = client.get("/v2/models").json()["models"][0]["findings"]
            for _, finding, *box in np.reshape(boxes["data"], (-1, 7)):
                expected.setdefault((case.case_id, names[int(finding)]), []).append(box)
    file = read_boxes(path, questions)
    height, width = np.array(Image.open(dataset.cases()[0].image)).shape[:2]
    assert file.lines == len(dataset.cases()) * len(findings) and file.positives.counts()["missing"] == 0
    assert file.not_asked == 0 and len(file.positives) and file.positives.sizes[0].tolist() == [width, height]
    answered = 0
    for answers in (file.positives, file.negatives):
        for place, pair in enumerate(answers.pairs):
            wanted = np.reshape(expected.get(pair, []), (-1, 5))
            sides, own = np.tile(answers.sizes[place], 2), slice(*answers.offsets[place : place + 2])
            np.testing.assert_allclose(answers.boxes[own], wanted[:, :4] * sides, rtol=1e-6, atol=1e-5)
            np.testing.assert_array_equal(answers.scores[own], wanted[:, 4])
            answered += len(wanted)
    assert answered == len(file.positives.boxes) + len(file.negatives.boxes) > 5


@pytest.mark.parametrize(
    ("headers", "query", "data", "status", "words"),
    [
        ({"Content-Type": "image/webp"}, "", b"x", 415, "image/webp is not taken; send application/json"),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            "",
            b"x",
            415,
            "application/dicom, image/png, image/jpeg",
        ),
        (PNG, "", b"", 400, "it is empty"),
        (PNG, "", b"GIF89a", 400, "neither PNG, JPEG nor DICOM"),
        (PNG, "finding=mass", None, 400, "no finding 'mass'"),
        (PNG, "treshold=1", None, 400, "no query parameter 'treshold'"),
        (PNG, "tau=2", None, 400, "tau is 2"),
        ({**PNG, "Accept": "image/png"}, "", b"GIF89a", 400, "neither PNG"),
        ({**PNG, "Content-Encoding": "br"}, "", None, 415, "gzip or deflate, or without Content-Encoding"),
        ({**PNG, "Accept": "application/jsonl"}, "", None, 400, "give it as the request's id"),
        (PNG, "", bytes(2 << 20), 413, "--max-body"),
        ({}, "", None, 400, "send it with the header 'Content-Type: image/png'"),
    ],
)
def test_what_is_refused(
    client: Any, film: bytes, headers: dict[str, str], query: str, data: bytes | None, status: int, words: str
) -> None:
    answer = client.post(f"{INFER}?{query}", content=film if data is None else data, headers=headers)
    assert answer.status_code == status and words in answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"


def test_the_list_of_models(client: Any) -> None:
    answer = client.get("/v2/models")
    assert [(item["name"], item["state"], item["prompt_set"]) for item in answer.json()["models"]] == [
        ("blocks-32", "READY", "coco"),
        ("several-32", "READY", "coco"),
    ]
    index = client.post("/v2/repository/index", content="{}").json()
    for item, entry in zip(answer.json()["models"], index, strict=True):
        assert entry.items() <= item.items()
        told = client.get(f"/v2/models/{item['name']}").json()["parameters"]
        assert item["prompt_set"] == told["default_set"]
        assert item["findings"] == told["prompt_sets"][item["prompt_set"]]
        assert item["weights"] == told["weights"] and json.dumps(item)
