"""A real archive, for the files that ask one, and a model for `pacs`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from orthanc_process import Orthanc, orthanc_program
from synthetic import make_served


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orthanc]:
    program = orthanc_program()
    if program is None:
        if os.environ.get("XBENCH_PACS"):
            pytest.fail("XBENCH_PACS says that Orthanc with DICOMweb is here, and it is not")
        pytest.skip("no Orthanc with DICOMweb here (Debian: orthanc, orthanc-dicomweb)")
    with Orthanc(program, tmp_path_factory.mktemp("orthanc")) as process:
        yield process


@pytest.fixture
def orthanc(running: Orthanc) -> Iterator[Orthanc]:
    """An Orthanc without patients."""
    yield running
    running.clear()


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("highdicom", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    return make_served(tmp_path_factory.mktemp("pacs")) / "models" / "blocks-32"
