"""The HTTP form of the Open Inference Protocol: a JSON object, then the tensors' raw bytes (binary extension)."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ....engines.strict_json import distinct_keys, no_constant
from ...data.images.kinds import image_kind
from ..protocol.content_types import BASE64, check_output_content_type, decoded_tensor
from ..protocol.request_errors import BadRequest
from ..protocol.requests import Answer, Parameter, Request, to_request, to_tensors
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
from .request_json import InputTensor, RequestBody, RequestedOutput

T = TypeVar("T")

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
"""Content types of the protocol's own form; the last three are sent by clients that name no type."""

_JSON_ELEMENTS: Final = 1 << 21  # JSON takes about ten bytes and a microsecond per number; larger tensors use raw bytes
_JSON_MARKS: Final = 1 << 21  # commas and brackets: parsing each takes time, and other requests wait for it
_KEPT_BYTES: Final = 1 << 11  # of JSON whose parsed form is kept, at most 256 of them
_BASE64: Final = {"content_type": BASE64}


@dataclass(frozen=True)
class DecodedRequest:
    """A request, and the outputs to send as raw bytes."""

    request: Request
    binary: frozenset[str]


def check_content_type(header: str) -> bool:
    """Whether a body of this Content-Type is an image file. Raises BadRequest with status 415 for a type that is not
    taken."""
    media_type = header.partition(";")[0].strip().lower()
    if media_type in FILE_TYPES:
        return True
    if media_type not in JSON_TYPES:
        raise BadRequest(
            f"The Content-Type {media_type[:100]} is not taken; send application/json, application/octet-stream "
            f"(JSON and raw tensors), or an image file as {', '.join(FILE_TYPES)}.",
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
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/octet-stream" and bool(image_kind(body))


def decode_infer(model: str, body: bytes, header_length: str | None) -> DecodedRequest:
    """An inference request from its body; `header_length`: the value of that header, if it was sent.

    Raises BadRequest, and no other error, for any bytes.
    """
    length = json_length(header_length, len(body))
    # The JSON before raw tensors is short and often the same: parsing it took 4 % of a request's time.
    parse = _repeated_json if header_length is not None and length <= _KEPT_BYTES else _request_json
    content = parse(body[:length])
    raw = memoryview(body)[length:]
    inputs: list[Tensor] = []
    position = 0
    for item in content.inputs:
        tensor, used = _input(item, raw[position:])
        inputs.append(tensor)
        position += used
    if position != len(raw):
        raise BadRequest(f"The body has {len(raw) - position} bytes that belong to no input.")
    parameters: dict[str, Parameter] = _sent(content.parameters)
    outputs, binary = _requested(content.outputs or [])
    request = to_request(model, inputs, parameters, outputs, content.id or "")
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


def _request_json(data: bytes) -> RequestBody:
    if len(data) > _JSON_MARKS and sum(map(data.count, (b",", b"[", b"{"))) > _JSON_MARKS:
        raise BadRequest(f"The JSON has more than {_JSON_MARKS} elements; send tensors as binary data.")
    try:
        # Not msgspec's own decoder, which takes the last of two members of one name.
        return msgspec.convert(_JSON_IN.decode(data.decode("utf-8-sig")), RequestBody)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The request has not the form that the protocol defines: {error}.") from error
    except (ValueError, RecursionError) as error:
        if media_type := _MEDIA_TYPES.get(image_kind(data)):
            raise BadRequest(
                f"The body is an image file; send it with the header 'Content-Type: {media_type}'."
            ) from error
        raise BadRequest(f"The request is not valid JSON: {str(error)[:200]}.") from error


@lru_cache(256)
def _repeated_json(data: bytes) -> RequestBody:
    """As `_request_json`; nobody changes what it returns."""
    return _request_json(data)


# Created once: json.loads and json.dumps create new ones in every call with options.
_JSON_IN: Final = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_constant=no_constant)
_JSON_OUT: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _input(item: InputTensor, raw: memoryview) -> tuple[Tensor, int]:
    """A tensor, and how many of the raw bytes it takes."""
    short, datatype, parameters = item.name[:200], item.datatype, _sent(item.parameters)
    check_input(short, datatype, parameters)
    size = parameters.get("binary_data_size")
    if size is None:
        shape = check_shape(short, item.shape)
        tensor = Tensor(item.name, datatype, _from_json(short, datatype, shape, item.data))
        return decoded_tensor(tensor, parameters.get("content_type")), 0
    if item.data is not None:
        raise BadRequest(f"'{short}' has both 'data' and 'binary_data_size'.")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(raw):
        raise BadRequest(f"binary_data_size of '{short}' does not fit the {len(raw)} bytes that are left.")
    tensor = Tensor(item.name, datatype, raw_to_array(short, datatype, item.shape, raw[:size]))
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


def _sent(parameters: Mapping[str, T | None] | None) -> dict[str, T]:
    """The parameters that are not null."""
    return {key: value for key, value in (parameters or {}).items() if value is not None}


def _requested(outputs: Sequence[RequestedOutput]) -> tuple[list[str], dict[str, bool]]:
    """The names of the requested outputs, and whether to send them as raw bytes, for those with this parameter."""
    names: list[str] = []
    binary: dict[str, bool] = {}
    for item in outputs:
        parameters = _sent(item.parameters)
        names.append(item.name[:200])
        if parameters.get("classification"):
            raise BadRequest("Classification is not supported; ask for 'probabilities'.")
        check_output_content_type(item.name, parameters.get("content_type"), files=BASE64)
        if isinstance(parameters.get("binary_data"), bool):
            binary[item.name] = parameters["binary_data"]
    return names, binary


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
