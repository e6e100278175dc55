"""A request and its answer, whatever carries them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.prompt_files import FindingPrompts
from .errors import BadRequest

__all__ = [
    "BOX_COLUMNS",
    "DEFAULT_OUTPUTS",
    "DRAWN",
    "OUTPUTS",
    "TEXT_LIMIT",
    "Answer",
    "OutputSpec",
    "Request",
    "check_request",
    "closest",
]

TEXT_LIMIT: Final = 8192
"""Characters of one prompt or name; far above any model's context."""

QUERY_LIMIT: Final = 256
"""Texts in a set of own prompts."""

BOX_COLUMNS: Final = ("image", "finding", "x0", "y0", "x1", "y1", "peak")


@dataclass(frozen=True)
class OutputSpec:
    """An output: its V2 datatype, its shape (N images, F findings, K boxes, h, w the model's grid) and its meaning."""

    datatype: str
    shape: tuple[int | str, ...]
    description: str


OUTPUTS: Final[Mapping[str, OutputSpec]] = {
    "findings": OutputSpec("BYTES", ("F",), "the findings asked for, in the order of the other outputs"),
    "logits": OutputSpec("FP32", ("N", "F"), "score of the positive prompts, their mean where there are several"),
    "logits_negative": OutputSpec("FP32", ("N", "F"), "score of the negative prompts; NaN where there is none"),
    "probabilities": OutputSpec("FP64", ("N", "F"), "sigmoid(logits)"),
    "probabilities_pair": OutputSpec(
        "FP64", ("N", "F"), "softmax over the positive and the negative prompt; NaN where there is no negative one"
    ),
    "saliency": OutputSpec("FP32", ("N", "F", "h", "w"), "the model's own map, not normalised"),
    "saliency_full": OutputSpec(
        "FP32", ("N", "F", 224, 224), "the map on the image squashed to 224 x 224, scaled to 0..1 by its extremes"
    ),
    "mask": OutputSpec("UINT8", ("N", "F", 224, 224), "1 where saliency_full >= tau"),
    "boxes": OutputSpec(
        "FP32",
        ("K", 7),
        "connected regions of the mask: image, finding, x0, y0, x1, y1 as fractions of the image's width and height, "
        "largest value of saliency_full inside",
    ),
    "overlay": OutputSpec("BYTES", ("N", "F"), "PNG of the image with the map and the mask's outline"),
    "preview": OutputSpec("BYTES", ("N",), "PNG of the image in grey, for those who cannot show the file itself"),
    "sizes": OutputSpec("INT32", ("N", 2), "height and width of the image file"),
    "frames": OutputSpec(
        "FP64", ("N", 4), "y0, x0, y1, x1: the part of the image the model saw, as fractions of its height and width"
    ),
}
"""Every output there is; an answer holds those asked for, in this order."""

DRAWN: Final = frozenset({"overlay", "preview"})
"""Outputs that show the image itself."""

DEFAULT_OUTPUTS: Final = frozenset({"findings", "logits", "probabilities"})


@dataclass(frozen=True)
class Request:
    """Images for one model. Either `images`, the bytes of N files (DICOM, PNG, JPEG), or `pixels` uint8 [N, 1, S, S]
    that fit the model's geometry, bright = radio-dense.

    findings: those of the set to answer for, None for all. The set is run as a whole whatever is selected, since in
    some models the queries see one another. prompt_set: name of an encoded set, None for the model's default. prompts:
    own texts instead, a set of its own, not of more findings than are given. tau: threshold of mask, boxes and overlay.
    timeout: seconds, None for the server's. pixels are taken to be the whole image: their frame is (0, 0, 1, 1).
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

    @property
    def count(self) -> int:
        """How many images it holds."""
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
    """BadRequest for what can be told without the model."""
    if (request.pixels is None) != bool(request.images):
        raise BadRequest("Give either 'image' or 'pixels', with at least one image.")
    if request.count == 0:
        raise BadRequest("The request holds no image; give at least one.")
    unknown = sorted(request.outputs - OUTPUTS.keys())
    if unknown:
        raise BadRequest(f"There is no output '{unknown[0]}': {closest(unknown[0], OUTPUTS)}.")
    if not request.outputs:
        raise BadRequest("The request asks for no output.")
    if not (math.isfinite(request.tau) and 0.0 <= request.tau <= 1.0):
        raise BadRequest(f"tau is {request.tau:g}; it must be a number from 0 to 1.")
    if request.timeout is not None and not (math.isfinite(request.timeout) and request.timeout > 0):
        raise BadRequest("The timeout must be a number of seconds above 0.")
    if request.findings is not None:
        _check_names(request.findings)
    if request.prompts is not None:
        _check_prompts(request)


def closest(name: str, known: Collection[str]) -> str:
    """ "did you mean ...?" for a message, and what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    shown = ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")
    return (f"did you mean '{close[0]}'? " if close else "") + f"known are {shown or 'none'}"


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise BadRequest("'findings' is empty; leave it out to ask for all of the set.")
    if len(set(names)) != len(names):
        raise BadRequest("A finding stands twice in 'findings'.")
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
