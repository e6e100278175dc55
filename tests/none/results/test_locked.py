"""Files and folders that may not be read: a sentence or a status, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from locked import locked, open_folder
from make_images import encode
from synthetic import make_dataset
from xbench_fast.engines.errors import ConfigError, DataError, ImageAccessError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.cli.datasets_command import _describe
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.pixels import direct_source
from xbench_fast.runtime.data.images.decode import is_there, read_grey
from xbench_fast.runtime.evaluation.decoded_case import decode_case
from xbench_fast.runtime.evaluation.pairing import select_bundles
from xbench_fast.runtime.host.config import DatasetConfig, find_config, load_config
from xbench_fast.runtime.host.paths import has_file, has_folder
from xbench_fast.runtime.results.loaded_dataset import load_dataset

SQUASH = Geometry("squash", 32, 32, "bicubic")


@pytest.fixture
def world() -> Iterator[Path]:
    with open_folder() as folder:
        make_dataset(folder / "data", 4)
        load_dataset(DatasetConfig("coco", folder / "data", "coco"))  # what is imported late is imported now
        yield folder


def test_presence(world: Path) -> None:
    film = world / "data" / "images" / "case0000.png"
    assert has_file(film) and has_folder(film.parent) and is_there(film)
    assert not has_file(film.parent) and not has_folder(film) and not has_file(Path("a\0b"))
    assert not is_there(film.parent) and not is_there(film / "x") and not is_there(world / "none")
    with locked(world / "data"):
        assert not has_file(film) and not has_folder(film.parent)
        with pytest.raises(ImageAccessError, match="Permission denied"):
            is_there(film)


def test_a_dataset_whose_root_may_not_be_reached(world: Path) -> None:
    config = DatasetConfig("coco", world / "data" / "images", "coco")
    with locked(world / "data"):
        assert _describe(config)["found"] is False
        with pytest.raises(DataError, match="may not be entered; correct its root"):
            load_dataset(config)
        with pytest.raises(DataError, match="may not be entered; correct its root"):
            Coco(config.root)
        with pytest.raises(ConfigError, match="There is no bundle called"):
            select_bundles(load_config(), [str(config.root)])


def test_a_configuration_file_that_may_not_be_looked_at(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (world / "data" / "xbench.toml").write_text("")
    with locked(world / "data"), pytest.raises(ConfigError, match="cannot be read: Permission denied; check --config"):
        find_config(world / "data" / "xbench.toml")
    monkeypatch.chdir(world / "data")
    with locked(world / "data"):
        assert find_config(None) is None


def test_an_image_that_may_not_be_reached_is_unreadable(world: Path) -> None:
    case = Coco(world / "data").cases()[0]
    with locked(world / "data" / "images"):
        found = decode_case(case, direct_source(SQUASH), SQUASH, ())
    assert found.status == "unreadable" and "case0000.png cannot be read: Permission denied" in str(found.reason)
    case.image.unlink()
    assert decode_case(case, direct_source(SQUASH), SQUASH, ()).status == "missing"


@pytest.mark.parametrize("mode", [0, 0o444])
def test_the_audit_of_a_locked_folder(world: Path, mode: int) -> None:
    """With the right to list but not to enter it, names are seen and nothing else."""
    dataset = Coco(world / "data")
    dataset.cases()
    with locked(world / "data" / "images", mode):
        found = audit(dataset, decode=True)
    assert found.images_missing == 4 and not found.passed and found.unannotated_files == 0
    assert "case0000.png cannot be read: Permission denied" in found.missing[0]


def test_a_file_without_rights_is_not_remembered(world: Path) -> None:
    film = world / "film.png"
    film.write_bytes(encode(np.eye(40, dtype=np.uint8), "PNG"))
    case = Case("a", film, {}, {}, "all")
    with PreparedStore.open(world / "cache", "demo", [case], SQUASH) as store:
        with locked(film), pytest.raises(ImageAccessError, match="Permission denied"):
            store.load(0)
        assert not store._reasons
    with PreparedStore.open(world / "cache", "demo", [case], SQUASH) as store:
        np.testing.assert_array_equal(store.load(0)[1:], read_grey(film).shape)
    assert json.loads((next((world / "cache").iterdir()) / "index.json").read_text())["meaning"]["cases"] == 1
