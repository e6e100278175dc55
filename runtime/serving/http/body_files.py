"""An image file as the body of a request; a picture, or lines of boxes, as the body of an answer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

import numpy as np

from ....engines.registry import did_you_mean
from ...results.schema import GRID
from ..protocol.multipart import body_of
from ..protocol.request_errors import BadRequest
from ..protocol.requests import Answer, Parameter, Request, to_request
from ..protocol.tensors import Tensor, bytes_array
from .http_codec import DecodedRequest

PICTURE: Final = "image/png"
LINES: Final = "application/jsonl"

QUERY: Final = {
    "finding": "a finding to answer for; can be repeated",
    "findings": "the same, several names separated by commas",
    "output": "an output to answer with; can be repeated",
    "outputs": "the same, several names separated by commas",
    "tau": "threshold of mask, boxes and overlay, 0 to 1",
    "prompt_set": "a prompt set of the bundle",
    "dicom_kinds": "kinds of DICOM objects, separated by commas: overlay, mask, report, fractions, map",
    "timeout": "microseconds, 0 for none",
    "id": "is returned in the answer; the case in lines of boxes",
}
"""Query parameters of a request whose body is an image file; they mean what they mean in JSON."""

_NUMBERS: Final = ("tau", "timeout")


def decode_file(model: str, body: bytes, query: Iterable[tuple[str, str]], *, raw: bool = False) -> DecodedRequest:
    """The request for one image file; its options are the `QUERY` parameters; `raw`: all outputs as raw bytes. Raises
    BadRequest."""
    given: dict[str, list[str]] = {}
    for name, value in query:
        if name not in QUERY:
            raise BadRequest(f"There is no query parameter '{name[:200]}': {did_you_mean(name[:200], QUERY)}.")
        given.setdefault(name, []).append(value)
    inputs = [Tensor("image", "BYTES", bytes_array([body]))]
    if findings := _names(given, "finding"):
        texts = [name.encode(errors="surrogatepass") for name in findings]
        inputs.append(Tensor("findings", "BYTES", bytes_array(texts)))
    parameters: dict[str, Parameter] = {}
    for name in (*_NUMBERS, "prompt_set", "dicom_kinds"):
        if name in given:
            value = _one(given, name)
            parameters[name] = _number(value) if name in _NUMBERS else value
    request = to_request(model, inputs, parameters, _names(given, "output"), _one(given, "id"))
    return DecodedRequest(request, request.outputs if raw else frozenset())


def as_picture(request: Request) -> Request:
    """The request for one overlay: of the finding with the highest probability. Raises BadRequest."""
    if request.count > 1:
        raise BadRequest(f"A picture shows one image, the request has {request.count}; ask for application/json.")
    return dataclasses.replace(request, outputs=frozenset({"findings", "probabilities", "overlay"}), highest_only=True)


def picture_of(answer: Answer) -> tuple[bytes, dict[str, str]]:
    """PNG of the answer to a request of `as_picture`, and headers that say what it shows."""
    return answer.outputs["overlay"][0, 0], {
        "xbench-finding": quote(answer.findings[0], safe=" "),
        "xbench-probability": f"{answer.outputs['probabilities'][0, 0]:.6g}",
        "vary": "accept",
    }


def as_lines(request: Request) -> Request:
    """The request for the boxes of one image, whose case is the request's id. Raises BadRequest."""
    if request.count > 1:
        raise BadRequest(f"Lines of boxes are of one image, the request has {request.count}; ask for application/json.")
    if not request.id.strip():
        raise BadRequest("Lines of boxes name their case; give it as the request's id.")
    return dataclasses.replace(request, outputs=frozenset({"findings", "boxes"}))


def lines_of(answer: Answer) -> bytes:
    """The answer to a request of `as_lines`: for each finding a line of a file of boxes (docs/boxes.md §1).

    Boxes are on the image squashed to `GRID` x `GRID`, where their corners are whole numbers.
    """
    rows = answer.outputs["boxes"]
    lines = []
    for number, finding in enumerate(answer.findings):
        boxes = rows[rows[:, 1] == number]
        line = {
            "case": answer.id,
            "finding": finding,
            "boxes": np.rint(boxes[:, 2:6].astype(np.float64) * GRID).astype(int).tolist(),
            "scores": boxes[:, 6].tolist(),
            "frame": "resized",
            "view": [GRID, GRID],
            "model": answer.model,
            "prompt": answer.prompt_set,
            "note": f"tau {answer.tau:g}",
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines).encode()


def as_objects(request: Request) -> Request:
    """The request for DICOM objects: without a finding, of the one with the highest probability in the first film."""
    highest = request.findings is None
    return dataclasses.replace(request, outputs=frozenset({"dicom"}), highest_only=highest)


def objects_of(answer: Answer) -> tuple[bytes, str]:
    """The answer to a request of `as_objects` as a multipart message (RFC 2387), and its content type."""
    kind, pieces = body_of(list(answer.outputs["dicom"]))
    return b"".join(pieces), kind


def _names(given: dict[str, list[str]], name: str) -> list[str]:
    """The values of `name`, and of its plural between commas, each once; empty ones, as forms send, are none."""
    several = (part.strip() for text in given.get(f"{name}s", ()) for part in text.split(","))
    return list(dict.fromkeys(filter(None, (*given.get(name, ()), *several))))


def _one(given: dict[str, list[str]], name: str) -> str:
    values = given.get(name, [""])
    if len(values) > 1:
        raise BadRequest(f"The query parameter '{name}' is given {len(values)} times.")
    return values[0]


def _number(text: str) -> Parameter:
    """The number, else the text, which is refused where a number must be."""
    try:
        return float(text)
    except ValueError:
        return text
