"""The server's interface in the Open Inference Protocol: its name, extensions, inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SERVER_NAME: Final = "xbench-fast"
EXTENSIONS: Final = ("binary_tensor_data", "model_repository(index)")

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

BOX_COLUMNS: Final = ("image", "finding", "x0", "y0", "x1", "y1", "peak")


@dataclass(frozen=True)
class OutputSpec:
    """An output: its V2 datatype, its shape (N images, F findings, K boxes, D objects, h, w
    the model's grid) and its meaning."""

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
    "dicom": OutputSpec(
        "BYTES",
        ("D",),
        "DICOM objects of the answers about DICOM films (docs/dicom.md), each a whole file that names its film",
    ),
    "sizes": OutputSpec("INT32", ("N", 2), "height and width of the image file"),
    "frames": OutputSpec(
        "FP64", ("N", 4), "y0, x0, y1, x1: the part of the image the model saw, as fractions of its height and width"
    ),
}
"""All outputs; an answer holds the requested ones, in this order."""

DRAWN: Final = frozenset({"overlay", "preview"})
"""Outputs that show the image itself."""

DEFAULT_OUTPUTS: Final = frozenset({"findings", "logits", "probabilities"})
