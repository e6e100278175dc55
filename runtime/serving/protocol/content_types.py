"""The parameter `content_type`, by which clients of MLServer say what the elements of a tensor stand for.

The names are MLServer's (its documentation, "Content types and codecs"). docs/serve.md, "What clients send", lists what
is taken.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from ...data.images.kinds import image_kind
from .interface import OUTPUTS
from .request_errors import BadRequest
from .tensors import Tensor, bytes_array

BASE64: Final = "base64"
_TEXT: Final = "str"
_ARRAY: Final = "np"
_OF_INPUTS: Final = (BASE64, _TEXT, _ARRAY)
_OF_REQUESTS: Final = (_ARRAY, _TEXT, "pd")
"""Request codecs of MLServer that leave named inputs as they are: an array, texts, a table of a column each."""

_START: Final = 176  # base64 characters of 132 bytes, where the mark of a DICOM file ends


def decoded_tensor(tensor: Tensor, content_type: object) -> Tensor:
    """The tensor that an input with this parameter gives; None and "" for no parameter.

    base64: its BYTES are base64 text, which is decoded; str and np: its elements are unchanged. Raises BadRequest,
    naming the input, for other content types, for text that is not base64, and for files in base64 that do not say so.
    """
    name = tensor.name[:200]
    if content_type not in (None, "", *_OF_INPUTS):
        raise BadRequest(
            f"The content_type '{str(content_type)[:40]}' of '{name}' is not taken; use {', '.join(_OF_INPUTS)}."
        )
    if tensor.datatype != "BYTES":
        if content_type in (BASE64, _TEXT):
            raise BadRequest(f"The content_type {content_type} of '{name}' is for BYTES, not {tensor.datatype}.")
        return tensor
    items = tensor.array.reshape(-1)
    if content_type != BASE64:
        if any(map(_is_file_in_base64, items)):
            raise BadRequest(f'\'{name}\' holds a file in base64; add "parameters": {{"content_type": "base64"}}.')
        return tensor
    try:
        # `base64 FILE` and openssl break lines (RFC 2045).
        files = [base64.b64decode(bytes(item).translate(None, b"\r\n"), validate=True) for item in items]
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"'{name}' holds text that is not base64.") from error
    return Tensor(tensor.name, tensor.datatype, bytes_array(files).reshape(tensor.array.shape))


def check_request_content_type(content_type: object) -> None:
    """Raises BadRequest for a content type of a whole request that would change what its inputs mean; None and "" for
    no parameter."""
    if content_type not in (None, "", *_OF_REQUESTS):
        raise BadRequest(
            f"The content_type '{str(content_type)[:40]}' of the request is not taken; use {', '.join(_OF_REQUESTS)}, "
            "or give the inputs their own."
        )


def check_output_content_type(name: str, content_type: object, *, files: str) -> None:
    """Raises BadRequest unless an output has this content type anyway; `files`: the content type of files in this
    transport, "" for none. An output that does not exist is not looked at."""
    if content_type in (None, "") or name not in OUTPUTS:
        return
    wanted = _ARRAY if OUTPUTS[name].datatype != "BYTES" else _TEXT if name == "findings" else files
    if content_type != wanted:
        reason = f"use {wanted}" if wanted else "it is answered as raw bytes; leave content_type out"
        raise BadRequest(f"The content_type '{str(content_type)[:40]}' of the output '{name}' is not taken; {reason}.")


def _is_file_in_base64(item: Any) -> bool:
    """Whether an element is the base64 of a PNG, JPEG or DICOM file by its start; no file, finding or prompt is."""
    start = bytes(item[:_START]).translate(None, b"\r\n")
    try:
        return not image_kind(start) and bool(image_kind(base64.b64decode(start[: len(start) // 4 * 4], validate=True)))
    except ValueError:
        return False
