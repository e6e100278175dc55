"""The server's DICOM objects are those of the Python interface, over HTTP and gRPC, and hold the served mask."""

from __future__ import annotations

import base64
import email
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dicom_films
import numpy as np
import pytest
import xbench_fast as xb
from dicom_films import CANARY
from grpc_server import GrpcServer
from synthetic import make_served
from xbench_fast.runtime.reporting.dicom.film_answer import film_corners, on_film
from xbench_fast.runtime.reporting.dicom.film_objects import differs
from xbench_fast.runtime.serving.inference import response_outputs
from xbench_fast.runtime.serving.inference.request_images import prepare_request
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest
from xbench_fast.runtime.serving.protocol.requests import Request, check_request

pydicom = pytest.importorskip("pydicom")
httpx = pytest.importorskip("httpx")
for package in ("highdicom", "onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client", "grpc"):
    pytest.importorskip(package)

INFER = "/v2/models/blocks-32/infer"
RELATED = {"Content-Type": "application/dicom", "Accept": 'multipart/related; type="application/dicom"'}
FILM = dicom_films.film("inverted", PatientName=CANARY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_served(tmp_path_factory.mktemp("served"))
    (made / "film.dcm").write_bytes(FILM)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[GrpcServer]:
    with GrpcServer(folder / "models", folder) as process:
        yield process
        assert process.stop() == 0
        said = process.log.read_text() + "".join(process.banner)
        assert CANARY not in said and "Traceback" not in said and "Warning" not in said


@pytest.fixture(scope="module")
def client(server: GrpcServer) -> Iterator[Any]:
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[Any]:
    """The objects of two findings from Python."""
    with xb.open_engine(folder / "models" / "blocks-32", "onnxruntime-cpu", threads=1) as engine:
        return engine.dicom_objects(folder / "film.dcm", ["Mass", "Effusion"], tau=0.6)


def parts(answer: Any) -> list[bytes]:
    """The parts of a multipart answer, by Python's own parser."""
    head = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + answer.content)
    assert message.get_content_type() == "multipart/related" and message.get_param("type") == "application/dicom"
    found = message.get_payload()
    assert all(part.get_content_type() == "application/dicom" for part in found)
    boundary = f"--{message.get_boundary()}".encode()
    whole = [piece.split(b"\r\n\r\n", 1)[1][:-2] for piece in answer.content.split(boundary)[1:-1]]
    assert len(found) == len(whole)
    return whole


def check(found: list[bytes], expected: list[Any]) -> None:
    assert len(found) == len(expected) == 5
    for data, made in zip(found, expected, strict=True):
        assert not differs(data, made.content)


def test_every_way_gives_the_same_objects(client: Any, server: GrpcServer, expected: list[Any]) -> None:
    query = {"findings": "Mass,Effusion", "tau": "0.6"}
    check(parts(client.post(INFER, content=FILM, headers=RELATED, params=query)), expected)
    # One object after another: the second request finds the film in the cache.
    check(parts(client.post(INFER, content=FILM, headers=RELATED, params=query)), expected)
    answer = client.post(INFER, content=FILM, headers=RELATED | {"Accept": "*/*"}, params=query | {"output": "dicom"})
    (output,) = answer.json()["outputs"]
    assert output["shape"] == [5] and output["datatype"] == "BYTES"
    check([base64.b64decode(item) for item in output["data"]], expected)
    triton = pytest.importorskip("tritonclient.grpc")
    with triton.InferenceServerClient(server.grpc) as asked:
        inputs = []
        for name, items in (("image", [FILM]), ("findings", [b"Mass", b"Effusion"])):
            array = np.array(items, object)
            inputs.append(triton.InferInput(name, list(array.shape), "BYTES"))
            inputs[-1].set_data_from_numpy(array)
        inputs.append(triton.InferInput("tau", [1], "FP32"))
        inputs[-1].set_data_from_numpy(np.array([0.6], np.float32))
        wanted = [triton.InferRequestedOutput("dicom"), triton.InferRequestedOutput("mask")]
        result = asked.infer("blocks-32", inputs, outputs=wanted)
        found = list(result.as_numpy("dicom"))
        check(found, expected)
        kinds = asked.infer("blocks-32", inputs, outputs=wanted[:1], parameters={"dicom_kinds": "map, fractions"})
        classes = [pydicom.dcmread(io.BytesIO(item)).SOPClassUID for item in kinds.as_numpy("dicom")]
        assert [str(item).rpartition(".")[2] for item in classes] == ["30", "30", "4", "4"]
    exported = [pydicom.dcmread(io.BytesIO(made.content)).pixel_array for made in expected if made.kind == "mask"]
    for served, pixels in zip(result.as_numpy("mask")[0], exported, strict=True):
        assert 0 < served.sum() < served.size
        np.testing.assert_array_equal(pixels.reshape(300, 260), on_film(served, (300, 260)))


def test_boxes_of_the_report_are_boxes_of_the_answer(client: Any, expected: list[Any]) -> None:
    import highdicom

    query = {"findings": "Mass,Effusion", "tau": "0.6", "output": "boxes"}
    answer = client.post(INFER, content=FILM, headers={"Content-Type": "application/dicom"}, params=query).json()
    boxes = np.reshape(answer["outputs"][0]["data"], (-1, 7))
    (report,) = [made for made in expected if made.kind == "report"]
    groups = highdicom.sr.srread(io.BytesIO(report.content)).content.get_planar_roi_measurement_groups()
    assert len(groups) == len(boxes) > 1
    for group, row in zip(groups, boxes, strict=True):
        (x0, y0), _, (x1, y1), _, _ = group.roi.value.tolist()
        assert film_corners(row[2:], (300, 260))[::2][:2] == [[x0, y0], [x1, y1]]
        # Within a pixel of the fractions of the answer.
        assert np.allclose([x0, y0, x1, y1], row[2:6] * [260, 300, 260, 300], atol=1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "send every image as a DICOM file"),
        (dicom_films.film("sc", Modality="CT"), "its Modality is none of"),
        (dicom_films.film("sc", NumberOfFrames=3), "3 frames"),
        (dicom_films.film("sc", StudyInstanceUID=None), "its StudyInstanceUID is absent"),
    ],
)
def test_what_is_no_film_is_a_sentence(client: Any, content: bytes, words: str) -> None:
    answer = client.post(INFER, content=content, headers=RELATED)
    assert answer.status_code == 400 and words in answer.json()["error"] and CANARY not in answer.text


def test_pixels_and_unknown_kinds_are_refused(client: Any) -> None:
    pixels = {"name": "pixels", "datatype": "UINT8", "shape": [1, 1, 32, 32], "data": [0] * 1024}
    answer = client.post(INFER, json={"inputs": [pixels], "outputs": [{"name": "dicom"}]})
    assert answer.status_code == 400 and "send every image as a DICOM file" in answer.json()["error"]
    answer = client.post(INFER, content=FILM, headers=RELATED, params={"dicom_kinds": "mask,maps"})
    assert answer.status_code == 400 and "'maps': did you mean 'map'" in answer.json()["error"]


def test_an_overlay_of_the_page_stays_small_beside_objects(client: Any) -> None:
    """Objects need the film in its own size; the picture of the same answer has at most 1024 pixels a side."""
    from PIL import Image

    large = dicom_films.film("sc", size=(1500, 40))
    headers = {"Content-Type": "application/dicom"}
    query = {"finding": "Mass", "outputs": "overlay,preview,dicom", "dicom_kinds": "overlay"}
    # The server keeps the film as the picture showed it, which is too small for objects.
    assert client.post(INFER, content=large, headers=headers, params={"outputs": "overlay"}).status_code == 200
    outputs = client.post(INFER, content=large, headers=headers, params=query).json()["outputs"]
    files = {item["name"]: base64.b64decode(item["data"][0]) for item in outputs}
    assert Image.open(io.BytesIO(files["overlay"])).size == Image.open(io.BytesIO(files["preview"])).size == (27, 1024)
    assert pydicom.dcmread(io.BytesIO(files["dicom"])).pixel_array.shape == (1500, 40, 3)


def test_large_answers_and_many_films_are_refused_before_they_are_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadRequest, match="at most 16 films a request, not 17"):
        check_request(Request("m", images=(FILM,) * 17, outputs=frozenset({"dicom"})))
    with xb.open_engine(folder / "models" / "blocks-32", "onnxruntime-cpu", threads=1) as engine:
        model = engine._served
        request = Request(model.name, images=(FILM,), outputs=frozenset({"dicom"}), kinds=("map",))
        images = prepare_request(request, model.geometry)
        selection = model.select(request)
        scores = engine.run(images[0].pixels[None, None], selection.prompts.features)
        size = 4 * 300 * 260 * len(selection.queries.findings)
        for limit, fits in ((size, True), (size - 1, False)):
            monkeypatch.setattr(response_outputs, "ANSWER_LIMIT", limit)
            if fits:
                answer = response_outputs.build_answer(request, model, selection, images, scores)
                assert len(answer.outputs["dicom"]) == len(selection.queries.findings)
            else:
                with pytest.raises(BadRequest, match="ask for fewer films, findings or kinds"):
                    response_outputs.build_answer(request, model, selection, images, scores)
