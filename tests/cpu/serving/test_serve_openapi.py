"""The description at /openapi.json is what the server takes and answers, and /docs shows it without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dicom_films
import numpy as np
import pytest
from serving_process import ServerProcess, film, image_request
from synthetic import SIZE
from xbench_fast.runtime.serving.http.docs import docs_text
from xbench_fast.runtime.serving.http.openapi import openapi
from xbench_fast.runtime.serving.protocol.interface import OUTPUTS

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")
jsonschema = pytest.importorskip("jsonschema")

TOKEN = {"Authorization": "Bearer a-token"}
DOCUMENT = openapi()
INFER = "/v2/models/blocks-32/infer"


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    own = tmp_path_factory.mktemp("openapi")
    (own / "token").write_text("a-token")
    with ServerProcess(folder / "models", own, "--token-file", own / "token", "--max-body", "1MB") as process:
        with httpx.Client(base_url=process.url, timeout=60) as made:
            yield made
        assert process.stop() == 0


def check(content: Any, schema: dict[str, Any]) -> None:
    """Raises ValidationError unless `content` is what a schema of the document says."""
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(content)


def described(method: str, path: str) -> dict[str, Any]:
    """The operation of the document that an address belongs to."""
    for template, item in DOCUMENT["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path):
            found: dict[str, Any] = item[method.lower()]
            return found
    raise AssertionError(f"{path} is not described")


def test_every_route_is_described() -> None:
    from starlette.routing import Route
    from xbench_fast.runtime.serving.access_log import AccessLog
    from xbench_fast.runtime.serving.http import http_app as app
    from xbench_fast.runtime.serving.prometheus_metrics import Metrics
    from xbench_fast.runtime.serving.settings import HttpSettings

    class Pretender:
        """As much of a service as the routes need."""

        metrics = Metrics()

    seen: list[Route] = []
    guarded = app._guarded
    app._guarded = lambda routes, *_: seen.extend(routes)  # type: ignore[assignment, func-returns-value]
    try:
        app.create_app(Pretender(), HttpSettings(page=True), AccessLog(enabled=False))  # type: ignore[arg-type]
    finally:
        app._guarded = guarded
    routes = {(route.path, *sorted(set(route.methods or ()) - {"HEAD"})) for route in seen if route.path != "/"}
    paths = {
        (path, *sorted(verb.upper() for verb in item if verb in ("get", "post")))
        for path, item in DOCUMENT["paths"].items()
    }
    assert routes == paths


def test_the_document_is_sound() -> None:
    text = json.dumps(DOCUMENT)
    schemas = DOCUMENT["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) == set(schemas)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
        for example in schema.get("examples", ()):
            check(example, schema)
    for path, item in DOCUMENT["paths"].items():
        given = {one["name"] for one in item.get("parameters", ())}
        assert given == set(re.findall(r"\{(\w+)\}", path))
        for operation in (item[verb] for verb in ("get", "post") if verb in item):
            assert operation["summary"] and all(
                answer["description"] and answer["content"] for answer in operation["responses"].values()
            )
            assert all({"name", "in", "schema", "description"} <= set(one) for one in operation.get("parameters", ()))


@pytest.mark.parametrize("path", [path for path, item in DOCUMENT["paths"].items() if "get" in item])
def test_what_is_got_is_as_described(client: Any, path: str) -> None:
    for model, token, status in (("blocks-32", TOKEN, 200), ("absent", TOKEN, 404), ("blocks-32", {}, 401)):
        address = path.replace("{model}", model).replace("{version}", "1")
        answer = client.get(address, headers=token)
        operation = DOCUMENT["paths"][path]["get"]
        if (status == 404 and "{model}" not in path) or (status == 401 and operation.get("security") == []):
            status = 200
        assert answer.status_code == status
        (kind,) = operation["responses"][str(status)]["content"]
        assert answer.headers["content-type"].startswith(kind)
        if kind == "application/json":
            check(answer.json(), operation["responses"][str(status)]["content"][kind]["schema"])


def pixels(**more: Any) -> dict[str, Any]:
    data = np.zeros((2, 1, SIZE, SIZE), int).tolist()
    return {"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [2, 1, SIZE, SIZE], "data": data}], **more}


@pytest.mark.parametrize(
    "content",
    [
        pixels(),
        pixels(
            id="7", parameters={"tau": 0.3, "prompt_set": "coco", "timeout": 5_000_000, "binary_data_output": False}
        ),
        pixels(outputs=[{"name": name} for name in OUTPUTS if name != "dicom"]),
        pixels(outputs=[{"name": "mask", "parameters": {"binary_data": False}}]),
    ],
)
def test_requests_and_answers_in_json(client: Any, content: dict[str, Any]) -> None:
    operation = described("POST", INFER)
    check(content, operation["requestBody"]["content"]["application/json"]["schema"])
    answer = client.post(INFER, json=content, headers=TOKEN)
    assert answer.status_code == 200
    check(answer.json(), operation["responses"]["200"]["content"]["application/json"]["schema"])
    index = client.post("/v2/repository/index", content="{}", headers=TOKEN).json()
    check(index, DOCUMENT["components"]["schemas"]["Index"])


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        ({"inputs": []}, False),
        ({"input": []}, False),
        (pixels(outputs=[{"name": "logit"}]), False),
        (pixels(parameters={"tau": [1]}), False),
        ({"inputs": [{"name": "pixels"}]}, False),
        (pixels(id="x" * 9000), False),
        (pixels(outputs=[]), True),
    ],
)
def test_what_the_schema_refuses_the_server_refuses(client: Any, content: dict[str, Any], accepted: bool) -> None:
    answer = client.post(INFER, json=content, headers=TOKEN)
    operation = described("POST", INFER)
    assert (answer.status_code == 200) == accepted
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    if accepted:
        check(content, schema)
        return
    with pytest.raises(jsonschema.ValidationError):
        check(content, schema)
    check(answer.json(), operation["responses"][str(answer.status_code)]["content"]["application/json"]["schema"])


def test_files_pictures_and_refusals(client: Any, folder: Path) -> None:
    operation = described("POST", INFER)
    image = film(folder)
    raw, length = image_request(image, parameters={"binary_data_output": True})
    late, of_late = image_request(image, parameters={"timeout": 1})
    seen = set()
    lines = {"Content-Type": "image/png", "Accept": "application/jsonl"}
    assert client.post(INFER, content=image, headers={**lines, **TOKEN}).status_code == 400
    for body, headers, status in (
        (image, {"Content-Type": "image/png"}, 200),
        (image, {"Content-Type": "image/png", "Accept": "image/png"}, 200),
        (raw, length, 200),
        (b"GIF", {"Content-Type": "image/png"}, 400),
        (image, {"Content-Type": "image/webp"}, 415),
        (bytes(2 << 20), {"Content-Type": "image/png"}, 413),
        (late, of_late, 504),
    ):
        answer = client.post(INFER, content=body, headers={**headers, **TOKEN})
        assert answer.status_code == status
        kind = answer.headers["content-type"]
        seen.add((status, kind))
        schema = operation["responses"][str(status)]["content"][kind]["schema"]
        if kind == "application/json":
            check(answer.json(), schema)
    answer = client.post(f"{INFER}?id=case0000", content=image, headers={**lines, **TOKEN})
    seen.add((answer.status_code, answer.headers["content-type"]))
    if find_spec("highdicom") is not None:
        objects = {"Content-Type": "application/dicom", "Accept": 'multipart/related; type="application/dicom"'}
        answer = client.post(INFER, content=dicom_films.film(), headers={**objects, **TOKEN})
        seen.add((answer.status_code, answer.headers["content-type"].partition(";")[0]))
    else:
        seen.add((200, "multipart/related"))
    assert {kind for status, kind in seen if status == 200} == set(operation["responses"]["200"]["content"])
    named = {item["name"] for item in operation["parameters"] if item["in"] == "header"}
    assert named == {key.lower() for key in length}


def test_the_page_needs_nothing_else(client: Any) -> None:
    answer = client.get("/docs")
    text = answer.text
    assert text == docs_text(DOCUMENT) and "default-src 'none'" in answer.headers["content-security-policy"]
    assert all(f" {path}<" in text for path in DOCUMENT["paths"])
    assert not re.search(r"<script|\ssrc=|url\(|https?://|@import", text)
    links = set(re.findall(r'href="([^"]*)"', text))
    anchors = {f"#{name}" for name in re.findall(r'id="([^"]*)"', text)}
    assert links - anchors == {"openapi.json"} and len(anchors) > 5
    assert client.get("/openapi.json").json() == DOCUMENT
