"""A server of three models, whose page several files use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving_pages import make_models
from serving_process import ServerProcess


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="package")
def server(folder: Path) -> Iterator[ServerProcess]:
    (folder / "server").mkdir()
    with ServerProcess(folder / "models", folder / "server") as process:
        yield process
