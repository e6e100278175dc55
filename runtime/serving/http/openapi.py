"""The description of the HTTP interface (OpenAPI 3.1), which tests compare with requests and answers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...host.machine_record import code_version
from ...reporting.dicom.dicom_object import KINDS
from ..inference.metadata import NOTICE
from ..protocol.interface import BOX_COLUMNS, OUTPUTS
from ..protocol.multipart import RELATED
from ..protocol.requests import TEXT_LIMIT
from ..protocol.tensors import DATATYPES
from ..settings import HEALTH_PATHS
from .body_files import LINES, PICTURE, QUERY
from .http_codec import FILE_TYPES, HEADER_LENGTH
from .request_json import RequestBody

Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT}
_NAME: Final = "|".join(OUTPUTS)
_KIND: Final = "|".join(KINDS)
_QUERY_SCHEMAS: Final[Json] = {
    "finding": {"type": "array", "items": {"type": "string", "maxLength": TEXT_LIMIT}},
    "output": {"type": "array", "items": {"enum": list(OUTPUTS)}},
    "outputs": {"type": "string", "pattern": f"^({_NAME})(,({_NAME}))*$"},
    "tau": {"type": "number", "minimum": 0, "maximum": 1},
    "timeout": {"type": "number", "minimum": 0},
    "prompt_set": {"type": "string", "minLength": 1, "maxLength": TEXT_LIMIT},
    "dicom_kinds": {"type": "string", "pattern": f"^({_KIND})(,({_KIND}))*$"},
    "id": {"type": "string", "maxLength": TEXT_LIMIT},
}
_ERRORS: Final = {
    "400": "The request is malformed, or its image cannot be read.",
    "401": "The token is missing or wrong.",
    "404": "The model, version or address does not exist.",
    "406": "The Accept header takes none of the media types of the answer.",
    "408": "The body was not complete in time.",
    "413": "The request is larger than the server takes (--max-body).",
    "415": "The Content-Type is not taken, or the Content-Encoding, and then Accept-Encoding names those that are.",
    "429": "The queue limit is reached, or one of this client's address; Retry-After says when to try again.",
    "500": "The server failed; its log says more.",
    "503": "The server is shutting down, or has as many connections as it takes.",
    "504": "The answer was not ready within --timeout.",
}
_OF_ALL: Final = ("401", "406", "429", "503")


def openapi(root_path: str = "") -> Json:
    """The document: paths, parameters, bodies and answers of every status; `root_path`: the prefix of all paths."""
    model = {"name": "model", "in": "path", "required": True, "schema": _TEXT, "description": "name of a model"}
    version = {**model, "name": "version", "description": "always 1; a bundle is its model's only version"}
    paths: dict[str, Json] = {
        "/v2": {"get": _get("The server's name, version and extensions", "Server")},
        "/v2/models": {"get": _get("Every model with its state and findings", "Models")},
        "/v2/repository/index": {"post": _get("Every model with its state, as the protocol has it", "Index")},
        "/metrics": {"get": _get("Counters and histograms for Prometheus", "text/plain")},
        "/openapi.json": {"get": _get("This document", "Document") | {"security": []}},
        "/docs": {"get": _get("This document for people", "text/html") | {"security": []}},
    }
    for path, name in zip(HEALTH_PATHS, ("Live", "Ready"), strict=True):
        health = _get(f"Whether the server is {name.lower()}; answered at any load", name) | {"security": []}
        paths[path] = {"get": health}
    paths[HEALTH_PATHS[1]]["get"]["responses"]["503"] = _answer("The server is shutting down.", "Ready")
    for path, parameters in (
        ("/v2/models/{model}/versions/{version}", [model, version]),
        ("/v2/models/{model}", [model]),
    ):
        missing = {"404": _answer(_ERRORS["404"], "Error")}
        described = _get("Inputs, outputs and origin of a model", "Model")
        ready = _get("Whether a model answers", "ModelReady")
        for operation in (described, ready):
            operation["responses"] |= missing
        ready["responses"]["503"] = _answer("The server is shutting down.", "ModelReady")
        paths[path] = {"parameters": parameters, "get": described}
        paths[f"{path}/ready"] = {"parameters": parameters, "get": ready}
        paths = {f"{path}/infer": {"parameters": parameters, "post": _infer()}, **paths}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "xbench-fast serve",
            "version": code_version(),
            "description": f"Open Inference Protocol (KServe V2) over HTTP, and image files as they are. {NOTICE}",
        },
        "servers": [{"url": root_path or "/"}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "--token-file"}},
            "schemas": _schemas(),
        },
    }


def _infer() -> Json:
    image = {"type": "string", "format": "binary", "description": "an image file, as it is"}
    files = {media_type: {"schema": image} for media_type in FILE_TYPES}
    json_form = {"application/json": {"schema": _reference("RequestBody")}}
    raw = {"application/octet-stream": {"schema": {**image, "description": "a JSON request, then raw tensors"}}}
    query = [
        {
            "name": name,
            "in": "query",
            "description": f"{text}; for a body that is an image file",
            "schema": _QUERY_SCHEMAS.get(name, _TEXT),
        }
        for name, text in QUERY.items()
    ]
    length = {
        "name": HEADER_LENGTH,
        "in": "header",
        "description": "bytes of the JSON before the raw tensors of a body in the binary form; 0: the body is an image "
        "file (Triton's raw binary request), and all outputs are answered as raw tensors",
        "schema": {"type": "integer", "minimum": 0},
    }
    return {
        "summary": "Scores, maps, masks, boxes and pictures of images",
        "parameters": [*query, length],
        "requestBody": {"required": True, "content": files | json_form | raw},
        "responses": {
            "200": {
                "description": "The outputs; with Accept: image/png the overlay of one finding, which the headers "
                "xbench-finding and xbench-probability name; with Accept: application/jsonl the boxes of one image, a "
                "line for each finding, with the request's id as the case; with Accept: multipart/related; "
                'type="application/dicom" DICOM objects of the answers about DICOM films.',
                "content": {
                    "application/json": {"schema": _reference("Answer")},
                    "application/octet-stream": {"schema": {"description": "an Answer, then raw tensors"}},
                    PICTURE: {"schema": {"description": "the overlay"}},
                    RELATED: {"schema": {"description": "a part application/dicom for each object"}},
                    LINES: {"schema": {"description": "a JSON object a line, as files of boxes have them"}},
                },
            },
            **{status: _answer(text, "Error") for status, text in _ERRORS.items()},
        },
    }


def _get(summary: str, answer: str) -> Json:
    """An operation without a request body; `answer`: a schema, or the content type of a text."""
    text_answer = {"description": summary, "content": {answer: {"schema": _TEXT}}} if "/" in answer else None
    errors = {status: _answer(_ERRORS[status], "Error") for status in _OF_ALL}
    return {"summary": summary, "responses": {"200": text_answer or _answer(summary, answer), **errors}}


def _answer(description: str, schema: str) -> Json:
    return {"description": description, "content": {"application/json": {"schema": _reference(schema)}}}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Json, optional: Json | None = None) -> Json:
    """An object of exactly these members."""
    members = {**required, **(optional or {})}
    return {"type": "object", "properties": members, "required": list(required), "additionalProperties": False}


def _schemas() -> dict[str, Json]:
    _, request = msgspec.json.schema_components((RequestBody,), ref_template=_reference("{name}")["$ref"])
    request["RequestBody"]["examples"] = [_EXAMPLE]
    datatype = {"enum": [*DATATYPES, "BYTES"]}
    shape = {"type": "array", "items": {"type": "integer"}}
    parameters = {"type": "object", "additionalProperties": {"type": ["string", "boolean", "number"]}}
    ready = {"type": "boolean"}
    state = {"name": _TEXT, "version": _TEXT, "state": {"enum": ["READY", "UNAVAILABLE"]}, "reason": _TEXT}
    models = _object({**state, "platform": _TEXT, "weights": _TEXT, "prompt_set": _TEXT, "findings": _TEXTS})
    tensor = _object({"name": _TEXT, "datatype": datatype, "shape": shape})
    answered = _object(
        {"name": {"enum": list(OUTPUTS)}, "datatype": datatype, "shape": shape},
        {"data": {"type": "array"}, "parameters": parameters},
    )
    return {
        "Server": _object({"name": _TEXT, "version": _TEXT, "extensions": _TEXTS}),
        "Models": _object({"models": {"type": "array", "items": models}}),
        "Index": {"type": "array", "items": _object(state)},
        "Live": _object({"live": ready}),
        "Ready": _object({"ready": ready}),
        "ModelReady": _object({"name": _TEXT, "ready": ready}),
        "Model": _object(
            {
                "name": _TEXT,
                "versions": _TEXTS,
                "platform": _TEXT,
                "inputs": {"type": "array", "items": tensor},
                "outputs": {"type": "array", "items": tensor},
                "parameters": {"type": "object", "required": ["default_set", "prompt_sets", "geometry", "digest"]},
            }
        ),
        **request,
        "Answer": _object(
            {
                "model_name": _TEXT,
                "model_version": _TEXT,
                "parameters": _object({"prompt_set": _TEXT, "tau": {"type": "number"}}),
                "outputs": {"type": "array", "items": answered},
            },
            {"id": _TEXT},
        )
        | {"description": f"columns of boxes: {', '.join(BOX_COLUMNS)}; numbers that are not finite are null"},
        "Error": _object({"error": {"type": "string", "description": "what is wrong, and what to do"}, "code": _TEXT}),
        "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
    }


_EXAMPLE: Final = {
    "inputs": [
        {
            "name": "image",
            "datatype": "BYTES",
            "shape": [1],
            "data": ["<the file in base64>"],
            "parameters": {"content_type": "base64"},
        },
        {"name": "findings", "datatype": "BYTES", "shape": [1], "data": ["Effusion"]},
    ],
    "outputs": [{"name": "probabilities"}, {"name": "boxes"}],
    "parameters": {"tau": 0.5},
}
