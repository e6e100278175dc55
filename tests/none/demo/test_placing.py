"""The demo in a folder of the user: copied whole, nothing overwritten, and a model exported anew kept."""

from __future__ import annotations

import dataclasses
import filecmp
import itertools
import os
import shutil
from pathlib import Path

import pytest
from locked import locked, open_folder
from synthetic import make_bundle
from xbench_fast.demo.placing import MODEL, PACKAGED, place_bundle, place_files
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.errors import BundleError, ConfigError
from xbench_fast.runtime.host.config import load_config


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_all_files_that_the_configuration_names_are_copied(tmp_path: Path) -> None:
    config = load_config(place_files(tmp_path / "a" / "demo"))
    folder = tmp_path / "a" / "demo"
    pictures = {f"chestxdet10/test_data/{path.name}" for path in (PACKAGED / "chestxdet10" / "test_data").iterdir()}
    assert files(folder) == {
        "DATA_CARD.md", "xbench.toml", "chestxdet10/test.json", "chestxdet10/patients.csv", *pictures
    }  # fmt: skip
    assert all(filecmp.cmp(folder / name, PACKAGED / name, shallow=False) for name in files(folder))
    assert config.datasets["chestxdet10"].root == folder / "chestxdet10"
    made = (config.bundles[0], config.datasets["phantoms"].root, config.eval.out)
    assert all(path.is_relative_to(folder / "out") for path in made), "results would lie elsewhere"


def test_a_second_start_completes_what_is_missing(tmp_path: Path) -> None:
    place_files(tmp_path)
    whole = files(tmp_path)
    (tmp_path / "chestxdet10" / "patients.csv").unlink()
    (tmp_path / "xbench.toml").with_name(".xbench.toml.part").write_text("half")
    kept = (tmp_path / "DATA_CARD.md").stat().st_mtime_ns
    place_files(tmp_path)
    assert files(tmp_path) - {".xbench.toml.part"} == whole
    assert (tmp_path / "DATA_CARD.md").stat().st_mtime_ns == kept


@pytest.mark.parametrize("name", ["xbench.toml", "chestxdet10/test.json"])
def test_a_file_of_the_user_is_not_overwritten(tmp_path: Path, name: str) -> None:
    place_files(tmp_path)
    (tmp_path / "DATA_CARD.md").unlink()
    old = (PACKAGED / name).stat()
    (tmp_path / name).write_text("#" * old.st_size)  # of the same size and date
    os.utime(tmp_path / name, ns=(old.st_atime_ns, old.st_mtime_ns))
    before = files(tmp_path)
    with pytest.raises(ConfigError, match=f"{name} exists and differs from the demo's file; nothing was changed"):
        place_files(tmp_path)
    assert files(tmp_path) == before and set((tmp_path / name).read_text()) == {"#"}


def test_a_folder_with_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(ConfigError, match=r"--out .* holds other files; give a new or empty folder\."):
        place_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["images"]
    (tmp_path / "images").rename(tmp_path / ".hidden")
    assert place_files(tmp_path).is_file()


@pytest.mark.parametrize("copied", [0, 1, 3])
def test_a_killed_copy_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: int) -> None:
    copy, counted = shutil.copyfile, itertools.count()

    def killed(source: Path, target: Path) -> None:
        if next(counted) == copied:
            target.write_bytes(source.read_bytes()[:10])
            raise KeyboardInterrupt
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", killed)
    with pytest.raises(KeyboardInterrupt):
        place_files(tmp_path)
    place_files(tmp_path)
    assert len(files(tmp_path)) == 40 + 4
    assert all(filecmp.cmp(tmp_path / name, PACKAGED / name, shallow=False) for name in files(tmp_path))


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "xbench.toml").mkdir()
    with pytest.raises(ConfigError, match=r"xbench\.toml exists and differs"):
        place_files(tmp_path)


def test_a_file_and_a_run_directory_are_no_folder_for_the_demo(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out .*file is a file; give a folder\."):
        place_files(tmp_path / "file")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"--out .*run is a run directory; give another folder"):
        place_files(tmp_path / "run")
    assert files(tmp_path) == {"file", "run/run.json"}


def test_a_folder_that_may_not_be_written_is_named() -> None:
    with open_folder() as folder, locked(folder, 0o555), pytest.raises(OSError) as error:
        place_files(folder / "demo")
    assert error.value.filename is not None and str(folder) in str(error.value.filename)


def test_the_bundle_is_copied_whole(tmp_path: Path) -> None:
    bundle = place_bundle(tmp_path / "out" / "bundles")
    assert bundle.path == tmp_path / "out" / "bundles" / MODEL and bundle.manifest.weights == "demo"
    packaged = PACKAGED / "bundles" / MODEL
    assert files(bundle.path) == files(packaged)
    assert all(filecmp.cmp(bundle.path / name, packaged / name, shallow=False) for name in files(packaged))


def test_a_bundle_of_the_same_checkpoint_stays_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    packaged = Bundle.load(PACKAGED / "bundles" / MODEL)
    anew = dataclasses.replace(packaged.manifest, exporter={**packaged.manifest.exporter, "torch": "9.9.9"})
    written = write_bundle(tmp_path / MODEL, anew, {name: packaged.path / name for name in anew.files})
    assert place_bundle(tmp_path).digest == written.digest != packaged.digest
    (tmp_path / MODEL / "image.onnx").write_bytes(b"damaged")
    assert place_bundle(tmp_path).digest == packaged.digest == Bundle.load(tmp_path / MODEL).digest


def test_another_bundle_or_folder_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    make_bundle(tmp_path / "other" / MODEL)
    before = files(tmp_path)
    with pytest.raises(BundleError, match=f"{MODEL} is the bundle of another model; give another folder with --out"):
        place_bundle(tmp_path / "other")
    (tmp_path / "folder" / MODEL).mkdir(parents=True)
    (tmp_path / "folder" / MODEL / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match="exists and is no bundle; it is not replaced"):
        place_bundle(tmp_path / "folder")
    assert files(tmp_path) == before | {f"folder/{MODEL}/notes.txt"}
