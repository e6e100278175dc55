"""The HTTP form of the Open Inference Protocol: a JSON object, then the tensors' raw bytes (binary extension)."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.strict_json import distinct_keys, no_constant
from ...data.images.kinds import image_kind
from ..protocol.content_types import BASE64, check_output_content_type, decoded_tensor
from ..protocol.request_errors import BadRequest
from ..protocol.requests import TEXT_LIMIT, Answer, Request, to_request, to_tensors
from ..protocol.tensors import (
    DATATYPES,
    Tensor,
    array_to_raw,
    bytes_array,
    check_count,
    check_input,
    check_items,
    check_shape,
    raw_to_array,
)

HEADER_LENGTH: Final = "inference-header-content-length"
_MEDIA_TYPES: Final[Mapping[str, str]] = {"dicom": "application/dicom", "png": "image/png", "jpeg": "image/jpeg"}
FILE_TYPES: Final = (*_MEDIA_TYPES.values(), "image/jpg")
"""Content types of a body that is an image file; the last one is not registered, but many clients send it."""

JSON_TYPES: Final = (
    "application/json",
    "application/octet-stream",
    "",
    "application/x-www-form-urlencoded",
    "text/plain",
)
"""Content types of the protocol's own form; the last three are those that clients send who name none."""

_JSON_ELEMENTS: Final = 1 << 21  # JSON takes about ten bytes and a microsecond per number; larger tensors use raw bytes
_JSON_MARKS: Final = 1 << 21  # commas and brackets: parsing each takes time, and other requests wait for it
_BASE64: Final = {"content_type": BASE64}


@dataclass(frozen=True)
class DecodedRequest:
    """A request, and the outputs to send as raw bytes."""

    request: Request
    binary: frozenset[str]


def check_content_type(header: str) -> bool:
    """Whether a body of this Content-Type is an image file. Raises BadRequest with status 415 for a type that is not
    taken."""
    kind = header.partition(";")[0].strip().lower()
    if kind in FILE_TYPES:
        return True
    if kind not in JSON_TYPES:
        raise BadRequest(
            f"The Content-Type {kind[:100]} is not taken; send application/json, application/octet-stream (JSON and "
            f"raw tensors), or an image file as {', '.join(FILE_TYPES)}.",
            status=415,
        )
    return False


def json_length(value: str | None, size: int) -> int:
    """How many bytes of a body of `size` are JSON, by Inference-Header-Content-Length if sent. Raises BadRequest."""
    if value is None:
        return size
    if not (value.isascii() and value.isdigit()) or len(value) > 18 or int(value) > size:
        raise BadRequest(f"Inference-Header-Content-Length is '{value[:40]}', the body has {size} bytes.")
    return int(value)


def is_raw(content_type: str, header_length: str | None, body: bytes) -> bool:
    """Whether a body of the protocol's content types is an image file all the same: Triton's raw binary request, which
    announces 0 bytes of JSON, or a file as application/octet-stream, which no JSON begins like."""
    if header_length is not None:
        return json_length(header_length, len(body)) == 0
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/octet-stream" and bool(image_kind(body))


def decode_infer(model: str, body: bytes, header_length: str | None) -> DecodedRequest:
    """An inference request from its body; `header_length`: the value of that header, if it was sent.

    Raises BadRequest, and no other error, for any bytes.
    """
    length = json_length(header_length, len(body))
    content = _json_object(body[:length])
    raw = memoryview(body)[length:]
    inputs: list[Tensor] = []
    position = 0
    for item in _list(content, "inputs"):
        tensor, used = _input(item, raw[position:])
        inputs.append(tensor)
        position += used
    if position != len(raw):
        raise BadRequest(f"The body has {len(raw) - position} bytes that belong to no input.")
    parameters = _parameters(content)
    outputs, binary = _wanted(content)
    request = to_request(model, inputs, parameters, outputs, _identifier(content))
    binary_by_default = parameters.get("binary_data_output") is True
    chosen = {name for name in request.outputs if binary.get(name, binary_by_default)}
    return DecodedRequest(request, frozenset(chosen))


def encode_infer(answer: Answer, binary: frozenset[str]) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON part if raw bytes follow it.

    In JSON, numbers that are not finite are null, and BYTES other than names are base64, with the parameter
    content_type. Raises BadRequest for a tensor too large for JSON.
    """
    outputs: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for tensor in to_tensors(answer):
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.array.shape)}
        if tensor.name in binary:
            raw.append(array_to_raw(tensor))
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            entry |= _json_data(tensor)
        outputs.append(entry)
    head: dict[str, Any] = {"model_name": answer.model, "model_version": answer.version}
    if answer.id:
        head["id"] = answer.id
    head["parameters"] = {"prompt_set": answer.prompt_set, "tau": answer.tau}
    text = _JSON_OUT.encode({**head, "outputs": outputs}).encode()
    return b"".join((text, *raw)), len(text) if raw else None


def _json_object(data: bytes) -> dict[str, Any]:
    if len(data) > _JSON_MARKS and sum(map(data.count, (b",", b"[", b"{"))) > _JSON_MARKS:
        raise BadRequest(f"The JSON has more than {_JSON_MARKS} elements; send tensors as binary data.")
    try:
        document = _JSON_IN.decode(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if media_type := _MEDIA_TYPES.get(image_kind(data)):
            raise BadRequest(
                f"The body is an image file; send it with the header 'Content-Type: {media_type}'."
            ) from error
        raise BadRequest(f"The request is not valid JSON: {str(error)[:200]}.") from error
    if not isinstance(document, dict):
        raise BadRequest("The request is not a JSON object.")
    return document


# Created once: json.loads and json.dumps create new ones in every call with options.
_JSON_IN: Final = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_constant=no_constant)
_JSON_OUT: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _list(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = content.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise BadRequest(f"'{key}' must be a list of objects with at least one in it.")
    if len(value) > 64:
        raise BadRequest(f"'{key}' has {len(value)} entries, at most 64 are allowed.")
    return value


def _input(item: Mapping[str, Any], raw: memoryview) -> tuple[Tensor, int]:
    """A tensor, and how many of the raw bytes it takes."""
    name, datatype = item.get("name"), item.get("datatype")
    if not isinstance(name, str) or not isinstance(datatype, str):
        raise BadRequest("Every input needs a 'name' and a 'datatype'.")
    short = name[:200]
    parameters = _members(item, f"The parameters of '{short}'")
    check_input(short, datatype, parameters)
    size, data = parameters.get("binary_data_size"), item.get("data")
    if size is None:
        shape = check_shape(short, item.get("shape"))
        tensor = Tensor(name, datatype, _from_json(short, datatype, shape, data))
        return decoded_tensor(tensor, parameters.get("content_type")), 0
    if data is not None:
        raise BadRequest(f"'{short}' has both 'data' and 'binary_data_size'.")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(raw):
        raise BadRequest(f"binary_data_size of '{short}' does not fit the {len(raw)} bytes that are left.")
    tensor = Tensor(name, datatype, raw_to_array(short, datatype, item.get("shape"), raw[:size]))
    return decoded_tensor(tensor, parameters.get("content_type")), size


def _from_json(name: str, datatype: str, shape: tuple[int, ...], data: object) -> NDArray[Any]:
    """The array of JSON data, which may be flat or nested as the shape is."""
    flat: list[Any] = []
    _flatten(data, flat, name, len(shape))
    check_count(name, len(flat), shape)
    if datatype == "BYTES":
        check_items(name, len(flat))
        return bytes_array([_to_bytes(item, name) for item in flat]).reshape(shape)
    kinds: tuple[type, ...] = (bool,) if datatype == "BOOL" else (int, float) if "FP" in datatype else (int,)
    if not all(isinstance(item, kinds) and isinstance(item, bool) == (datatype == "BOOL") for item in flat):
        raise BadRequest(f"'{name}' holds something that is not a valid {datatype}.")
    try:
        return np.array(flat, DATATYPES[datatype]).reshape(shape)
    except (OverflowError, ValueError) as error:
        raise BadRequest(f"'{name}' holds a number that is not a valid {datatype}.") from error


def _flatten(data: object, flat: list[Any], name: str, depth: int) -> None:
    if not isinstance(data, list):
        raise BadRequest(f"'{name}' has no 'data' list and no binary_data_size.")
    for item in data:
        if isinstance(item, list) and depth > 1:
            _flatten(item, flat, name, depth - 1)
        elif isinstance(item, list | dict):
            raise BadRequest(f"The data of '{name}' are nested deeper than its shape.")
        else:
            flat.append(item)


def _to_bytes(item: object, name: str) -> bytes:
    if not isinstance(item, str):
        raise BadRequest(f"'{name}' holds something that is not text.")
    try:
        return item.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"'{name}' holds text that is not valid Unicode.") from error


def _members(content: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The 'parameters' of an object. Members that are null are left out, as if they were not sent: serialisers of
    typed languages write every member."""
    value = content.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"{what} must be an object.")
    return {key: item for key, item in value.items() if item is not None}


def _parameters(content: Mapping[str, Any]) -> dict[str, Any]:
    value = _members(content, "'parameters'")
    if not all(isinstance(item, str | bool | int | float) for item in value.values()):
        raise BadRequest("'parameters' must be an object of strings, numbers and booleans.")
    return value


def _wanted(content: Mapping[str, Any]) -> tuple[list[str], dict[str, bool]]:
    """The requested outputs, and whether to send them as raw bytes, for those with this parameter."""
    if content.get("outputs") in (None, []):
        return [], {}
    names: list[str] = []
    binary: dict[str, bool] = {}
    for item in _list(content, "outputs"):
        name = item.get("name")
        if not isinstance(name, str):
            raise BadRequest("Every output needs a 'name'.")
        parameters = _members(item, f"The parameters of the output '{name[:200]}'")
        names.append(name[:200])
        if parameters.get("classification"):
            raise BadRequest("Classification is not supported; ask for 'probabilities'.")
        check_output_content_type(name, parameters.get("content_type"), files=BASE64)
        if isinstance(parameters.get("binary_data"), bool):
            binary[name] = parameters["binary_data"]
    return names, binary


def _identifier(content: Mapping[str, Any]) -> str:
    value = content.get("id")
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > TEXT_LIMIT:
        raise BadRequest(f"'id' must be a string of at most {TEXT_LIMIT} characters.")
    return value


def _json_data(tensor: Tensor) -> dict[str, Any]:
    flat = tensor.array.reshape(-1)
    if flat.size > _JSON_ELEMENTS:
        raise BadRequest(f"'{tensor.name}' has {flat.size} numbers, too many for JSON; ask for it as binary data.")
    if tensor.name == "findings":
        return {"data": [item.decode() for item in flat]}
    if tensor.datatype == "BYTES":
        return {"data": [base64.b64encode(item).decode() for item in flat], "parameters": dict(_BASE64)}
    values = flat.tolist()
    if tensor.datatype.startswith("FP"):
        values = [value if math.isfinite(value) else None for value in values]
    return {"data": values}
