"""DICOM objects of the answers to a request about films."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from ...reporting.dicom.dicom_object import DicomObject
from ...reporting.dicom.film_answer import answers_of
from ...reporting.dicom.film_header import film_header
from ...reporting.dicom.film_objects import ObjectOptions, film_objects
from ...reporting.dicom.identity import ModelIdentity
from ..protocol.requests import Request
from .request_images import Prepared
from .served_models import Selection, ServedModel

OBJECT_OUTPUTS: Final = frozenset({"logits", "saliency_full", "mask", "boxes"})
"""Outputs of an answer that its objects are made of."""


def dicom_output(
    request: Request,
    model: ServedModel,
    selection: Selection,
    images: Sequence[Prepared],
    outputs: Mapping[str, NDArray[Any]],
) -> list[DicomObject]:
    """The objects of all films of a request, whose display has their native size, from its
    `OBJECT_OUTPUTS`.

    Raises ImageError, naming the image, and what `film_objects` raises.
    """
    made: list[DicomObject] = []
    for number, (data, image) in enumerate(zip(request.images, images, strict=True)):
        header = film_header(data, f"Image {number}", image.display)
        found = answers_of(outputs, selection.queries.findings, number)
        made += film_objects(header, found, identity_of(model, selection), options_of(request))
    return made


def identity_of(model: ServedModel, selection: Selection) -> ModelIdentity:
    """What gave the answers of a request."""
    return ModelIdentity.of(model.bundle, selection.prompts, model.info)


def options_of(request: Request) -> ObjectOptions:
    """Kinds and threshold of a request."""
    return ObjectOptions(request.kinds, request.tau)
