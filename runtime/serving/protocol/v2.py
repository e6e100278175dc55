"""The Open Inference Protocol's tensors <-> requests and answers, and its metadata, for HTTP and gRPC alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ....engines.errors import ConfigError
from ....engines.prompt_files import FindingPrompts, prompt_sets
from ....engines.strict_json import distinct_keys
from ..inference.own_prompts import OWN_SET
from .errors import BadRequest
from .requests import DEFAULT_OUTPUTS, OUTPUTS, TEXT_LIMIT, Answer, Request, closest
from .tensors import Tensor

__all__ = ["EXTENSIONS", "INPUTS", "SERVER_NAME", "Parameter", "own_prompts", "to_request", "to_tensors"]

SERVER_NAME: Final = "xbench-fast"
EXTENSIONS: Final = ("binary_tensor_data", "model_repository(index)")
Parameter = str | bool | int | float

INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "image": ("BYTES",),
    "pixels": ("UINT8",),
    "findings": ("BYTES",),
    "prompt_set": ("BYTES",),
    "prompts": ("BYTES",),
    "tau": ("FP32", "FP64"),
}
"""Input -> its datatypes. image: N files; pixels: [N, 1, S, S]; findings: names of the set; prompt_set: one name;
prompts: one JSON text, a set as in a prompt file; tau: one number. Either image or pixels is needed."""

_PARAMETERS: Final = ("prompt_set", "tau", "timeout")
_IGNORED: Final = ("sequence_id", "sequence_start", "sequence_end", "priority", "binary_data_output")
_PROMPT_BYTES: Final = 1 << 20


def to_request(
    model: str,
    inputs: Sequence[Tensor],
    parameters: Mapping[str, Parameter],
    outputs: Sequence[str],
    request_id: str = "",
) -> Request:
    """A request from its tensors; no `outputs`: the default ones. The parameters prompt_set, tau and timeout
    (microseconds, 0 for none, as Triton has it) are read; those of sequences and priorities are ignored.

    Raises BadRequest, naming the tensor or parameter.
    """
    tensors = _by_name(inputs)
    _check_parameters(parameters)
    if len(set(outputs)) != len(outputs):
        raise BadRequest("An output stands twice in 'outputs'.")
    image, pixels = tensors.get("image"), tensors.get("pixels")
    own, names = tensors.get("prompts"), tensors.get("findings")
    set_name = parameters.get("prompt_set")
    if "prompt_set" in tensors:
        set_name = _text(_single(tensors["prompt_set"]), "prompt_set")
    tau = parameters.get("tau", 0.5)
    if "tau" in tensors:
        tau = float(_single(tensors["tau"]))
    timeout = _number(parameters.get("timeout", 0), "timeout")
    return Request(
        model=model,
        images=() if image is None else _files(image),
        pixels=None if pixels is None else np.asarray(pixels.array, np.uint8),
        findings=None if names is None else tuple(_text(item, "findings") for item in names.array.reshape(-1)),
        prompt_set=None if set_name is None else _string(set_name, "prompt_set"),
        prompts=None if own is None else own_prompts(_single(own)),
        outputs=frozenset(outputs) if outputs else DEFAULT_OUTPUTS,
        tau=_number(tau, "tau"),
        timeout=timeout / 1e6 or None,
        id=request_id,
    )


def to_tensors(answer: Answer) -> list[Tensor]:
    """The outputs of an answer."""
    return [Tensor(name, OUTPUTS[name].datatype, array) for name, array in answer.outputs.items()]


def own_prompts(data: bytes) -> tuple[FindingPrompts, ...]:
    """Own prompts from JSON: {finding: [texts] or {"positive": [...], "negative": [...]}}, as a set in a prompt file.

    Raises BadRequest.
    """
    if len(data) > _PROMPT_BYTES:
        raise BadRequest(f"'prompts' has {len(data)} bytes, the limit is {_PROMPT_BYTES}.")
    try:
        content = json.loads(data, object_pairs_hook=distinct_keys)
        return prompt_sets({OWN_SET: content}, Path("The input 'prompts'"))[OWN_SET]
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The input 'prompts' is not valid JSON: {error}.") from error
    except ConfigError as error:
        raise BadRequest(str(error)) from error


def _by_name(inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for tensor in inputs:
        if tensor.name not in INPUTS:
            raise BadRequest(f"There is no input '{tensor.name[:200]}': {closest(tensor.name[:200], INPUTS)}.")
        if tensor.name in tensors:
            raise BadRequest(f"The input '{tensor.name}' stands twice.")
        if tensor.datatype not in INPUTS[tensor.name]:
            wanted = " or ".join(INPUTS[tensor.name])
            raise BadRequest(f"The input '{tensor.name}' must be {wanted}, not {tensor.datatype[:40]}.")
        tensors[tensor.name] = tensor
    return tensors


def _check_parameters(parameters: Mapping[str, Parameter]) -> None:
    for name in parameters:
        if name not in (*_PARAMETERS, *_IGNORED):
            raise BadRequest(f"There is no parameter '{name[:200]}': {closest(name[:200], _PARAMETERS)}.")


def _files(tensor: Tensor) -> tuple[bytes, ...]:
    if tensor.array.ndim not in (1, 2) or (tensor.array.ndim == 2 and tensor.shape[1] != 1):
        raise BadRequest(f"The input 'image' must have shape [N] or [N, 1], not {list(tensor.shape)}.")
    return tuple(tensor.array.reshape(-1))


def _single(tensor: Tensor) -> Any:
    if tensor.array.size != 1:
        raise BadRequest(f"The input '{tensor.name}' must hold one element, not {tensor.array.size}.")
    return tensor.array.reshape(-1)[0]


def _text(item: bytes, name: str) -> str:
    if len(item) > 4 * TEXT_LIMIT:
        raise BadRequest(f"A text in '{name}' has {len(item)} bytes, more than {4 * TEXT_LIMIT}.")
    try:
        return item.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"A text in '{name}' is not UTF-8.") from None


def _string(value: Parameter, name: str) -> str:
    if not isinstance(value, str) or not value or len(value) > TEXT_LIMIT:
        raise BadRequest(f"'{name}' must be a text that is not empty.")
    return value


def _number(value: Parameter, name: str) -> float:
    try:
        if not isinstance(value, bool | str):
            return float(value)
    except OverflowError:
        pass
    raise BadRequest(f"'{name}' must be a number.")
