"""The objects of all films, which several files read."""

from __future__ import annotations

from collections.abc import Mapping

import dicom_films
import pytest
from dicom_answers import objects
from xbench_fast.runtime.reporting.dicom.dicom_object import DicomObject


@pytest.fixture(scope="package")
def made() -> Mapping[str, list[DicomObject]]:
    pytest.importorskip("highdicom")
    return {name: objects(name) for name in dicom_films.NAMES}
