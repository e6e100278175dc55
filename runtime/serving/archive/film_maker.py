"""A model that makes the objects of films, in the batches of an evaluation (docs/pacs.md §1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any, Protocol

from ....engines.errors import DataError
from ...reporting.dicom.dicom_object import DicomObject
from ...reporting.dicom.identity import writer_version
from ..inference.film_answers import identity_of
from ..inference.film_batches import ReadFilm, answer_films, read_film
from ..inference.served_models import ServedModel
from ..protocol.requests import Request


class FilmMaker(Protocol):
    """What makes objects. batch: films that are answered at once. identity: of all that decides the objects."""

    batch: int
    identity: str

    def read(self, data: bytes, name: str) -> Any:
        """The film in the bytes of a file, with the attribute header, whose uid is its SOP Instance UID. Raises
        ImageError, which quotes no value."""

    def answer(self, films: Sequence[Any]) -> Iterator[list[DicomObject] | DataError]:
        """The objects of each film, or why it gets none."""


class ModelMaker:
    """The objects of an open model's answers to a request, whose images are not looked at.

    Raises BadRequest for a set or a finding that does not exist.
    """

    def __init__(self, model: ServedModel, request: Request, batch: int) -> None:
        self.batch = batch
        self._model, self._request = model, request
        selection = model.select(request)
        decided = [
            *astuple(identity_of(model, selection)), writer_version(), request.tau, request.kinds, request.findings,
            request.highest_only,
        ]  # fmt: skip
        self.identity = hashlib.sha256(json.dumps(decided).encode()).hexdigest()

    def read(self, data: bytes, name: str) -> ReadFilm:
        return read_film(data, name, self._model.geometry)

    def answer(self, films: Sequence[ReadFilm]) -> Iterator[list[DicomObject] | DataError]:
        return answer_films(self._model, self._request, films)
