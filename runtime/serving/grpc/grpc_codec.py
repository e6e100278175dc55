"""Inference messages of the protocol <-> requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..protocol.content_types import check_output_content_type, decoded_tensor
from ..protocol.request_errors import BadRequest
from ..protocol.requests import TEXT_LIMIT, Answer, Parameter, Request, to_request, to_tensors
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

if TYPE_CHECKING:
    from .open_inference_pb2 import ModelInferRequest

_MOST_ENTRIES: Final = 64  # inputs, outputs or parameters: bounds the work that one small message can ask for
_CONTENTS: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Datatype -> the field of InferTensorContents that holds it; FP16 has none and is sent as raw bytes."""


def decode_infer(message: ModelInferRequest) -> Request:
    """The request in a ModelInferRequest, whose model may not exist. Raises BadRequest, and no other error."""
    for member, entries in (("inputs", message.inputs), ("outputs", message.outputs)):
        if len(entries) > _MOST_ENTRIES:
            raise BadRequest(f"'{member}' has {len(entries)} entries, at most {_MOST_ENTRIES} are allowed.")
    if not message.inputs:
        raise BadRequest("'inputs' is empty; at least one tensor is needed.")
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise BadRequest(f"There are {len(raw)} raw_input_contents for {len(message.inputs)} inputs.")
    inputs = [_input(item, raw[number] if raw else None) for number, item in enumerate(message.inputs)]
    parameters = _parameters(message.parameters)
    if len(message.id) > TEXT_LIMIT:
        raise BadRequest(f"'id' has more than {TEXT_LIMIT} characters.")
    return to_request(message.model_name, inputs, parameters, [_output(item) for item in message.outputs], message.id)


def encode_infer(answer: Answer) -> bytes:
    """The ModelInferResponse of an answer, serialized, all tensors as raw bytes."""
    from .open_inference_pb2 import ModelInferResponse

    reply = ModelInferResponse(model_name=answer.model, model_version=answer.version, id=answer.id)
    reply.parameters["prompt_set"].string_param = answer.prompt_set
    reply.parameters["tau"].double_param = answer.tau
    for tensor in to_tensors(answer):
        reply.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
        reply.raw_output_contents.append(array_to_raw(tensor))
    return bytes(reply.SerializeToString())


def _input(item: Any, raw: bytes | None) -> Tensor:
    name, datatype = item.name[:200], item.datatype
    check_input(name, datatype, item.parameters)
    given = {field.name: values for field, values in item.contents.ListFields()}
    if raw is not None and given:
        raise BadRequest(f"'{name}' has both raw_input_contents and contents.")
    shape = check_shape(name, list(item.shape))
    array = raw_to_array(name, datatype, shape, raw) if raw is not None else _typed(name, datatype, shape, given)
    return decoded_tensor(Tensor(item.name, datatype, array), _content_type(item))


def _typed(name: str, datatype: str, shape: tuple[int, ...], given: Mapping[str, Any]) -> NDArray[Any]:
    """The array of typed contents; small integers are sent as 32-bit ones and are checked."""
    field = _CONTENTS.get(datatype)
    if field is None:
        raise BadRequest(f"{datatype} has no typed contents; send '{name}' in raw_input_contents.")
    for other in given:
        if other != field:
            raise BadRequest(f"'{name}' is {datatype} and needs {field}, not {other}.")
    if datatype == "BYTES":
        check_items(name, len(given.get(field, ())))
    values = list(given.get(field, ()))
    check_count(name, len(values), shape)
    if datatype == "BYTES":
        return bytes_array(values).reshape(shape)
    dtype = np.dtype(DATATYPES[datatype])
    if dtype.kind in "iu" and values:
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise BadRequest(f"'{name}' holds a number that is not a valid {datatype}.")
    return np.array(values, dtype).reshape(shape)


def _output(item: Any) -> str:
    if "classification" in item.parameters:
        raise BadRequest("Classification is not supported; ask for 'probabilities'.")
    if any(key.startswith("shared_memory") for key in item.parameters):
        raise BadRequest("Shared memory is not supported; leave its parameters out.")
    name: str = item.name[:200]
    check_output_content_type(name, _content_type(item), files="")
    return name


def _content_type(item: Any) -> object:
    """The parameter content_type of an input or output, "" for none; one that is no string is no known one either."""
    if "content_type" not in item.parameters:
        return ""
    value = item.parameters["content_type"]
    return getattr(value, value.WhichOneof("parameter_choice") or "string_param")


def _parameters(entries: Mapping[str, Any]) -> dict[str, Parameter]:
    if len(entries) > _MOST_ENTRIES:
        raise BadRequest(f"'parameters' has {len(entries)} entries, at most {_MOST_ENTRIES} are allowed.")
    parameters: dict[str, Parameter] = {}
    for name, value in entries.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is None:
            raise BadRequest(f"The parameter '{name[:200]}' has no value.")
        parameters[name] = getattr(value, choice)
    return parameters
