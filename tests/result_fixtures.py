"""What most tests of results need: a world, a bundle and a dataset in one folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.runtime.host.config import DatasetConfig


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "blocks-32").path


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")
