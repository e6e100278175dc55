"""Requests and answers, and their form as tensors of the Open Inference Protocol."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ConfigError
from ....engines.prompts.prompt_files import FindingPrompts, prompt_sets
from ....engines.registry import did_you_mean
from ....engines.strict_json import distinct_keys
from ...data.images.kinds import image_kind
from ...reporting.dicom.dicom_object import DEFAULT_KINDS, KINDS
from .content_types import check_request_content_type
from .interface import DEFAULT_OUTPUTS, INPUTS, OUTPUTS
from .request_errors import BadRequest
from .tensors import Tensor

Parameter = str | bool | int | float

TEXT_LIMIT: Final = 8192
"""Maximum characters of one prompt or name; far above any model's context."""

QUERY_LIMIT: Final = 256
"""Maximum texts in a set of own prompts."""

FILM_LIMIT: Final = 16
"""Maximum films of a request for DICOM objects: their pixels are held in native size."""

OWN_SET: Final = "own"
"""The name in an answer of the set of a request's own prompts."""

_PARAMETERS: Final = ("prompt_set", "tau", "timeout", "dicom_kinds")
_IGNORED: Final = ("sequence_id", "sequence_start", "sequence_end", "priority", "binary_data_output")
_PROMPT_BYTES: Final = 1 << 20  # of the JSON text of prompts; checked before it is parsed


@dataclass(frozen=True)
class Request:
    """Images for one model. Either `images`, the bytes of N files (DICOM, PNG, JPEG), or `pixels` uint8 [N, 1, S, S]
    that fit the model's geometry, bright = radio-dense.

    findings: of the set, to answer for, None for all. The set is always run as a whole, since in some models
    the queries influence one another. prompt_set: name of an encoded set, None for the model's default. prompts:
    own texts instead, as a separate set, not of more findings than are given. tau: threshold of mask, boxes and
    overlay. timeout: seconds, None for the server's. highest_only: answer for one finding, the one of the highest
    probability in the first image. kinds: of the DICOM objects of the output dicom. pixels are taken to be the whole
    image: their frame is (0, 0, 1, 1).
    """

    model: str
    images: tuple[bytes, ...] = ()
    pixels: NDArray[np.uint8] | None = None
    findings: tuple[str, ...] | None = None
    prompt_set: str | None = None
    prompts: tuple[FindingPrompts, ...] | None = None
    outputs: frozenset[str] = DEFAULT_OUTPUTS
    tau: float = 0.5
    timeout: float | None = None
    id: str = ""
    highest_only: bool = False
    kinds: tuple[str, ...] = DEFAULT_KINDS

    @property
    def count(self) -> int:
        """Number of images."""
        return len(self.images) if self.pixels is None else len(self.pixels)


@dataclass(frozen=True)
class Answer:
    """Outputs by name, as `OUTPUTS` describes them; BYTES are object arrays of bytes."""

    model: str
    version: str
    prompt_set: str
    findings: tuple[str, ...]
    tau: float
    outputs: Mapping[str, NDArray[Any]]
    id: str = ""


def check_request(request: Request) -> None:
    """Raises BadRequest for what is wrong independently of the model."""
    if (request.pixels is None) != bool(request.images):
        raise BadRequest("Give either 'image' or 'pixels', with at least one image.")
    if request.count == 0:
        raise BadRequest("The request holds no image; give at least one.")
    unknown = sorted(request.outputs - OUTPUTS.keys())
    if unknown:
        raise BadRequest(f"There is no output '{unknown[0]}': {did_you_mean(unknown[0], sorted(OUTPUTS))}.")
    if not request.outputs:
        raise BadRequest("The request asks for no output.")
    if "dicom" in request.outputs:
        _check_dicom(request)
    if not (math.isfinite(request.tau) and 0.0 <= request.tau <= 1.0):
        raise BadRequest(f"tau is {request.tau:g}; it must be a number from 0 to 1.")
    if request.timeout is not None and not (math.isfinite(request.timeout) and request.timeout > 0):
        raise BadRequest("The timeout must be a number of seconds above 0.")
    if request.findings is not None:
        _check_names(request.findings)
    if request.prompts is not None:
        _check_prompts(request)


def to_request(
    model: str,
    inputs: Sequence[Tensor],
    parameters: Mapping[str, Parameter],
    outputs: Sequence[str],
    request_id: str = "",
) -> Request:
    """A request from its tensors; without `outputs`, the default ones. The parameters prompt_set, tau and timeout
    (microseconds, 0 for none, as in Triton) are read; parameters of sequences and priorities are ignored. content_type:
    see `check_request_content_type`. dicom_kinds: kinds of DICOM objects, separated by commas.

    Raises BadRequest, naming the tensor or parameter.
    """
    tensors = _by_name(inputs)
    _check_parameters(parameters)
    if len(set(outputs)) != len(outputs):
        raise BadRequest("'outputs' has a duplicate output.")
    image, pixels = tensors.get("image"), tensors.get("pixels")
    prompts, names = tensors.get("prompts"), tensors.get("findings")
    set_name = parameters.get("prompt_set")
    if "prompt_set" in tensors:
        set_name = _text(_single(tensors["prompt_set"]), "prompt_set")
    tau = parameters.get("tau", 0.5)
    if "tau" in tensors:
        tau = float(_single(tensors["tau"]))
    kinds = parameters.get("dicom_kinds", ",".join(DEFAULT_KINDS))
    timeout = _number(parameters.get("timeout", 0), "timeout")
    return Request(
        model=model,
        images=() if image is None else _files(image),
        pixels=None if pixels is None else np.asarray(pixels.array, np.uint8),
        findings=None if names is None else tuple(_text(item, "findings") for item in names.array.reshape(-1)),
        prompt_set=None if set_name is None else _string(set_name, "prompt_set"),
        prompts=None if prompts is None else own_prompts(_single(prompts)),
        outputs=frozenset(outputs) if outputs else DEFAULT_OUTPUTS,
        tau=_number(tau, "tau"),
        timeout=timeout / 1e6 or None,
        id=request_id,
        kinds=tuple(part.strip() for part in _string(kinds, "dicom_kinds").split(",")),
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


def _check_dicom(request: Request) -> None:
    """Before anything is decoded: DICOM objects refer to a film that an archive has."""
    if request.pixels is not None or any(image_kind(data) != "dicom" for data in request.images):
        raise BadRequest("The output 'dicom' is about DICOM films; send every image as a DICOM file, as 'image'.")
    if request.count > FILM_LIMIT:
        raise BadRequest(f"The output 'dicom' is of at most {FILM_LIMIT} films a request, not {request.count}.")
    for kind in request.kinds:
        if kind not in KINDS:
            raise BadRequest(f"There is no kind of DICOM object '{kind[:40]}': {did_you_mean(kind[:40], KINDS)}.")


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise BadRequest("'findings' is empty; leave it out to ask for all of the set.")
    if len(set(names)) != len(names):
        raise BadRequest("'findings' has a duplicate finding.")
    if any(len(name) > TEXT_LIMIT for name in names):
        raise BadRequest(f"A name in 'findings' has more than {TEXT_LIMIT} characters.")
    _check_unicode(names, "findings")


def _check_prompts(request: Request) -> None:
    prompts = request.prompts or ()
    if request.prompt_set is not None:
        raise BadRequest("Give either 'prompts' (own texts) or 'prompt_set' (an encoded set), not both.")
    if not prompts:
        raise BadRequest("'prompts' has no finding.")
    texts = [text for entry in prompts for text in (*entry.positive, *entry.negative)]
    if len(texts) > QUERY_LIMIT or any(len(text) > TEXT_LIMIT for text in texts):
        raise BadRequest(f"'prompts' may hold {QUERY_LIMIT} texts of {TEXT_LIMIT} characters each.")
    _check_names(tuple(entry.finding for entry in prompts))
    _check_unicode(texts, "prompts")


def _check_unicode(texts: Sequence[str], where: str) -> None:
    """JSON can write half of a surrogate pair, which is no character and has no bytes."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"A text in '{where}' is not valid Unicode.") from None


def _by_name(inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for tensor in inputs:
        if tensor.name not in INPUTS:
            raise BadRequest(
                f"There is no input '{tensor.name[:200]}': {did_you_mean(tensor.name[:200], sorted(INPUTS))}."
            )
        if tensor.name in tensors:
            raise BadRequest(f"The input '{tensor.name}' is given twice.")
        if tensor.datatype not in INPUTS[tensor.name]:
            wanted = " or ".join(INPUTS[tensor.name])
            raise BadRequest(f"The input '{tensor.name}' must be {wanted}, not {tensor.datatype[:40]}.")
        tensors[tensor.name] = tensor
    return tensors


def _check_parameters(parameters: Mapping[str, Parameter]) -> None:
    for name, value in parameters.items():
        if name == "content_type":
            check_request_content_type(value)
        elif name not in (*_PARAMETERS, *_IGNORED):
            raise BadRequest(f"There is no parameter '{name[:200]}': {did_you_mean(name[:200], sorted(_PARAMETERS))}.")


def _files(tensor: Tensor) -> tuple[bytes, ...]:
    if tensor.array.ndim not in (1, 2) or (tensor.array.ndim == 2 and tensor.array.shape[1] != 1):
        raise BadRequest(f"The input 'image' must have shape [N] or [N, 1], not {list(tensor.array.shape)}.")
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
        raise BadRequest(f"'{name}' must be a string that is not empty.")
    return value


def _number(value: Parameter, name: str) -> float:
    try:
        if not isinstance(value, bool | str):
            return float(value)
    except OverflowError:
        pass
    raise BadRequest(f"'{name}' must be a number.")
