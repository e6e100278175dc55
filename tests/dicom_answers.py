"""Answers of a made-up model about films of `dicom_films`, and their objects."""

from __future__ import annotations

import datetime
import io
import shutil
import sys
from pathlib import Path
from typing import Any

import dicom_films
import numpy as np
import pydicom
import pytest
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.runtime.reporting.dicom.dicom_object import KINDS, DicomObject
from xbench_fast.runtime.reporting.dicom.film_answer import FindingAnswer
from xbench_fast.runtime.reporting.dicom.film_header import FilmHeader
from xbench_fast.runtime.reporting.dicom.film_objects import ObjectOptions, film_objects
from xbench_fast.runtime.reporting.dicom.identity import ModelIdentity
from xbench_fast.runtime.serving.inference.response_outputs import binary_mask, regions

TAU = 0.7
CLOCK = datetime.datetime(2026, 1, 2, 3, 4, 5)
MODEL = ModelIdentity("kad stand-in", "ab" * 32, "cd" * 32, "fp32", "onnxruntime-cpu", weights="stand-in")


def answer(finding: str = "Effusion", seed: int = 0, logit: float = 0.75, tau: float = TAU) -> FindingAnswer:
    """An answer whose map has several regions, from a model that does not see the outer part of the film."""
    cells = np.random.default_rng(seed).random((5, 6), np.float32)
    normalised = scaled_map(cells, frame=(0.05, 0.0, 0.95, 1.0))
    mask = binary_mask(normalised, tau)
    return FindingAnswer(finding, logit, normalised, mask, regions(normalised, mask))


def empty_answer(finding: str) -> FindingAnswer:
    """The answer with a map that is the same everywhere."""
    return FindingAnswer(finding, -3.0, np.zeros((224, 224), np.float32), np.zeros((224, 224), np.uint8), [])


ANSWERS = [answer(), empty_answer("Größe des Herzens")]


def objects(name: str, **changes: Any) -> list[DicomObject]:
    """All kinds of objects of a film of `dicom_films`."""
    film = FilmHeader.read(dicom_films.film(name, **changes), "the film")
    return film_objects(film, ANSWERS, MODEL, ObjectOptions(KINDS, TAU, CLOCK))


def read(made: DicomObject) -> Any:
    """The data set of an object."""
    return pydicom.dcmread(io.BytesIO(made.content))


def tool(name: str) -> str:
    """The path of a program that reads DICOM; skips the test where it is not installed."""
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: dicom3tools, dcmtk; pip: dcmqi)")
    return path
