"""Films in batches: a model's answers about them as DICOM objects, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....engines.base import Scores
from ....engines.errors import DataError
from ....engines.geometry import Geometry
from ...reporting.dicom.dicom_object import DicomObject
from ...reporting.dicom.film_answer import answers_of
from ...reporting.dicom.film_header import FilmHeader, film_header
from ...reporting.dicom.film_objects import film_objects
from ..protocol.requests import Request
from .film_answers import OBJECT_OUTPUTS, identity_of, options_of
from .request_images import NATIVE, Prepared, prepare_file
from .response_outputs import build_answer
from .served_models import ServedModel


@dataclass(frozen=True, eq=False)
class ReadFilm:
    """A film: its header with the pixels in native size, and the input of a model."""

    header: FilmHeader
    prepared: Prepared


def read_film(data: bytes, name: str, geometry: Geometry) -> ReadFilm:
    """The film in the bytes of a DICOM file; `name` is used in messages.

    Raises ImageError, which quotes no value of the file, also for an image that gets no objects.
    """
    prepared = prepare_file(data, geometry, name, side=NATIVE)
    return ReadFilm(film_header(data, name, prepared.display), replace(prepared, display=None))


def answer_films(
    model: ServedModel, request: Request, films: Sequence[ReadFilm]
) -> Iterator[list[DicomObject] | DataError]:
    """The objects of each film, or why it gets none. The engine runs the films as one batch; the images of the request
    are not looked at.

    Raises BadRequest for a set or a finding that does not exist, EngineError, and MissingExtraError.
    """
    asked = replace(request, outputs=OBJECT_OUTPUTS)
    selection = model.select(asked)
    pixels = np.stack([film.prepared.pixels for film in films])[:, None]
    scores = model.engine.run(pixels, selection.prompts.features)
    for at, film in enumerate(films):
        one = Scores(scores.logits[at : at + 1], scores.saliency[at : at + 1])
        answer = build_answer(asked, model, selection, [film.prepared], one)
        found = answers_of(answer.outputs, answer.findings, 0)
        try:
            yield film_objects(film.header, found, identity_of(model, selection), options_of(request))
        except DataError as error:
            yield error
