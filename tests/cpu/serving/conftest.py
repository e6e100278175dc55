"""A served model that several files ask; a file that needs another server makes its own of the same names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving_process import ServerProcess
from synthetic import make_served


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="package")
def server(folder: Path) -> Iterator[ServerProcess]:
    (folder / "server").mkdir()
    with ServerProcess(folder / "models", folder / "server", "--max-body", "2MB") as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="package")
def client(server: ServerProcess) -> Iterator[Any]:
    httpx = pytest.importorskip("httpx")
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made
