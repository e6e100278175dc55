"""What counts as a store of prepared images, what is never touched, and the flags of `xbench-fast cache`."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from locked import locked, open_folder
from make_images import encode
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.prompts import phrase_features
from xbench_fast.engines.prompts.phrase_features import PHRASE_FEATURES
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.cache import eviction as caches
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.cache.locks import in_use, remove_store
from xbench_fast.runtime.data.cache.store_layout import read_meaning, write_index
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.images import dali
from xbench_fast.runtime.data.images.decode import reader_version

SQUASH = Geometry("squash", 32, 32, "bilinear")


def make_store(root: Path, name: str = "demo", reader: str | None = None) -> Path:
    """A store of one image."""
    film = root.parent / "film.png"
    film.write_bytes(encode(np.eye(40, dtype=np.uint8), "PNG"))
    with PreparedStore.open(root, name, [Case("a", film, {}, {}, "all")], SQUASH, reader=reader) as store:
        store.load(0)
    return next(path for path in root.iterdir() if path.name.startswith(name))


def listed(root: Path) -> set[Path]:
    return {info.path for info in caches.list_stores(root)}


def tree(root: Path) -> dict[str, int]:
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*")}


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return int(str(caught.value.code)), capsys.readouterr().out


@pytest.mark.parametrize(
    "files",
    [
        {"lock": ""},
        {"use": "", "lock": ""},
        {"index.json": '{"pages": 3}', "lock": ""},
        {"index.json": '{"meaning": {"key": "0123"}}', "use": ""},
        {"pixels.bin": "x" * 1024, "records.bin": "y" * 64, "use": ""},
        {},
    ],
)
@pytest.mark.parametrize("name", ["notes", "demo-squash-32-32-bilinear-0123456789abcdeg", ".removed-1-notes.txt"])
def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path, name: str, files: dict[str, str]) -> None:
    """A wrong --cache costs nothing, whatever its files are called."""
    folder = tmp_path / "cache" / name
    folder.mkdir(parents=True)
    for file, text in {**files, **({"diary.txt": "dear"} if name.startswith(".") else {})}.items():
        (folder / file).write_text(text)
    before = tree(tmp_path)
    assert not listed(tmp_path / "cache") and caches.make_room(tmp_path / "cache", 0) == ([], True)
    assert caches.clear(tmp_path / "cache") == ([], []) and tree(tmp_path) == before


def test_a_folder_with_a_stores_name_needs_a_stores_content(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "demo-squash-32-32-bilinear-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    for pixels, records in ((None, None), (1024, None), (1023, 64), (1024, 65), (1024, 128)):
        for name, size in (("pixels.bin", pixels), ("records.bin", records)):
            if size is not None:
                (folder / name).write_bytes(bytes(size))
        assert not listed(tmp_path / "cache") and not (folder / "use").exists()
    (folder / "records.bin").write_bytes(bytes(64))
    assert listed(tmp_path / "cache") == {folder}


@pytest.mark.parametrize("index", [None, "", '{"meaning": 3}'])
def test_a_store_with_a_damaged_index_can_be_deleted(tmp_path: Path, index: str | None) -> None:
    folder = make_store(tmp_path / "cache")
    (folder / "index.json").unlink() if index is None else (folder / "index.json").write_text(index)
    assert listed(tmp_path / "cache") == {folder}
    assert [info.path for info in caches.clear(tmp_path / "cache")[0]] == [folder] and not folder.exists()


def test_a_store_whose_index_is_of_another_one_is_left_alone(tmp_path: Path) -> None:
    folder = make_store(tmp_path / "cache")
    meaning = dict(read_meaning(folder) or {})
    write_index(folder, {**meaning, "key": "0" * 64}, None)
    assert not listed(tmp_path / "cache")


def test_a_flipped_bit_in_an_index_is_damage_and_an_index_without_a_checksum_is_of_an_older_version(
    tmp_path: Path,
) -> None:
    folder = make_store(tmp_path / "cache")
    file, about = folder / "index.json", dict(read_meaning(folder) or {})
    content = file.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        file.write_bytes(changed)
        # In the name of the checksum a flip leaves the index as it was.
        assert read_meaning(folder) in (None, about) and listed(tmp_path / "cache") == {folder}
    key = str(about["key"])
    file.write_bytes(content.replace(key.encode(), key.replace(key[5], "x").encode()))
    assert read_meaning(folder) is None and listed(tmp_path / "cache") == {folder}
    older = {name: value for name, value in json.loads(content).items() if name != "checksum"}
    file.write_text(json.dumps(older))
    assert make_store(tmp_path / "cache") == folder and read_meaning(folder) == about
    assert caches.list_stores(tmp_path / "cache")[0].images == 1, "an older store is kept"


@pytest.mark.parametrize("target", ["outside", "inside", "gone", "itself"])
def test_of_a_link_to_a_store_the_link_alone_is_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    root, other = tmp_path / "cache", tmp_path / "large"
    store = make_store(root if target == "inside" else other)
    root.mkdir(exist_ok=True)
    link = root / store.name.replace("demo", "linked")
    link.symlink_to(link if target == "itself" else store)
    grave = root / f".removed-7-{store.name}"
    grave.symlink_to(store)
    (root / ".removed-7-notes").symlink_to(tmp_path)
    if target == "gone":
        remove_store(store)
    before = tree(other)
    assert link in listed(root)
    assert not any(info.link for info in caches.make_room(root, 0)[0]) and link.is_symlink()
    status, out = ran(capsys, "cache", "--cache", root, "clear")
    assert status == 0 and f"deleted: {link.name} (a link; what it points to stays)" in out
    assert {path.name for path in root.iterdir()} == {".removed-7-notes"} and tree(other) == before


def test_a_store_without_the_file_use_is_not_in_use(tmp_path: Path) -> None:
    folder = make_store(tmp_path / "cache")
    (folder / "use").unlink()
    assert not in_use(folder) and not (folder / "use").exists()
    assert not caches.list_stores(tmp_path / "cache")[0].in_use and not (folder / "use").exists()
    assert remove_store(folder) and not list((tmp_path / "cache").iterdir())
    assert remove_store(folder) and not in_use(folder)


def test_a_store_is_in_use_while_another_process_holds_it(tmp_path: Path) -> None:
    folder = make_store(tmp_path / "cache")
    held = os.open(folder / "use", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_SH)
    assert in_use(folder) and not remove_store(folder) and folder.is_dir()
    os.close(held)
    assert not in_use(folder) and remove_store(folder) and not folder.exists()


def test_a_store_of_another_user_is_kept() -> None:
    with open_folder() as home:
        folder = make_store(home / "cache")
        with locked(folder, 0o755):
            assert in_use(folder) and not remove_store(folder)
            assert [info.in_use for info in caches.list_stores(home / "cache")] == [True]
            assert [info.path for info in caches.clear(home / "cache")[1]] == [folder]
        (folder / "use").unlink()
        with locked(folder, 0o755):
            assert not remove_store(folder)
        with locked(folder):
            assert in_use(folder) and caches.clear(home / "cache") == ([], [])
        assert (folder / "pixels.bin").exists()


def test_stores_of_other_readers_are_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dali, "dali_version", lambda: "2.0")
    readers = {
        "exact": reader_version(),
        "dali": dali.dali_reader(),
        "older": dali.dali_reader().replace("2.0", "1.50"),
        "former": f"dali-2.0+{reader_version()}",
        "longer": reader_version() + "1",
    }
    for name, reader in readers.items():
        make_store(tmp_path / "cache", name, reader)
    found = {info.dataset: info.outdated for info in caches.list_stores(tmp_path / "cache")}
    assert found == {"exact": False, "dali": False, "older": True, "former": True, "longer": True}


def test_flags_stand_before_or_after_the_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "kept"
    Path("my.toml").write_text("cache = 'kept'\ncache_limit = '1 GB'\n")

    def deleted(*line: object) -> Any:
        status, out = ran(capsys, "cache", *line)
        found = json.loads(out)
        assert status == 0 and found["cache"] == str(root) and set(found) == {"cache", "deleted", "kept"}
        return [row["dataset"] for row in found["deleted"]], [row["dataset"] for row in found["kept"]]

    for line in (
        ["--cache", root, "--json", "-", "clear"],
        ["clear", "--cache", root, "--json", "-"],
        ["--config", tmp_path / "my.toml", "clear", "--json", "-"],
        ["--json", "-", "clear", "--config", tmp_path / "my.toml"],
        ["--cache", tmp_path / "other", "clear", "--cache", root, "--json", "-"],
        ["prune", "--cache", root, "--json", "-", "--cache-limit", "0"],
        ["--json", "-", "prune", "--cache", root, "--cache-limit", "0"],
    ):
        folder = make_store(root)
        assert deleted(*line) == (["demo"], []) and not folder.exists()
    folder = make_store(root)
    assert deleted("prune", "--config", tmp_path / "my.toml", "--json", "-") == ([], []) and folder.exists()
    held = os.open(folder / "use", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_SH)
    assert deleted("clear", "--cache", root, "--json", "-") == ([], ["demo"]) and folder.exists()
    os.close(held)
    status, out = ran(capsys, "cache", "clear", "--cache", root)
    assert status == 0 and out.startswith("deleted: demo-squash")


def test_text_features_of_phrases_are_listed_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database stays, empty, for processes that have it open; it is no store while it keeps nothing."""
    path, options = tmp_path / PHRASE_FEATURES, ("--cache", tmp_path)
    assert ran(capsys, "cache", *options)[1].startswith(f"{tmp_path}: 0 stores")
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE features (phrase BLOB PRIMARY KEY, content BLOB) WITHOUT ROWID")
        other.executemany("INSERT INTO features VALUES (?, ?)", [(bytes([n]), bytes(4096)) for n in range(40)])
        other.commit()
        (found,) = json.loads(ran(capsys, "cache", *options, "--json", "-")[1])["stores"]
        assert (found["dataset"], found["images"], found["path"]) == ("phrases", 40, str(path))
        assert found["bytes"] > 40 * 4096
        assert f"deleted: {PHRASE_FEATURES}" in ran(capsys, "cache", *options, "clear")[1]
        assert other.execute("SELECT count(*) FROM features").fetchone() == (0,)
        assert listed(tmp_path) == set() and path.stat().st_size < 4 * 4096
        other.execute("INSERT INTO features VALUES (x'00', x'00')")
        other.commit()
        assert listed(tmp_path) == {path}
        assert caches.make_room(tmp_path, 0)[1] and listed(tmp_path) == set()
        other.execute("INSERT INTO features VALUES (x'00', x'00')")
        other.commit()
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(phrase_features, "_PATIENCE", 0.01)
        assert f"in use, kept: {PHRASE_FEATURES}" in ran(capsys, "cache", *options, "clear")[1]
    for name in ("a link", "a broken link"):
        target = tmp_path / "elsewhere.sqlite"
        if name == "a link":
            path.rename(target)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        content = target.read_bytes() if name == "a link" else b""
        assert (
            listed(tmp_path) == {path} and f"{PHRASE_FEATURES} (a link;" in ran(capsys, "cache", *options, "clear")[1]
        )
        assert not path.is_symlink() and (not content or target.read_bytes() == content)
        target.unlink(missing_ok=True)
    path.write_bytes(b"no database")
    assert listed(tmp_path) == set() and "nothing was deleted" in ran(capsys, "cache", *options, "clear")[1]
    assert path.read_bytes() == b"no database"


def test_a_damaged_database_of_phrases_is_listed_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, options = tmp_path / PHRASE_FEATURES, ("--cache", tmp_path)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute(phrase_features._TABLE)
        store.executemany("INSERT INTO features VALUES (?, ?)", [(bytes([n]), bytes(4096)) for n in range(40)])
    whole = path.read_bytes()
    for place in (3, 60, 100, whole.index(b"BLOB PRIMARY")):  # the name of the format, the encoding, a page, the table
        changed = bytearray(whole)
        changed[place] ^= 0x40
        path.write_bytes(changed)
        assert listed(tmp_path) == {path}, place
        assert f"deleted: {PHRASE_FEATURES}" in ran(capsys, "cache", *options, "clear")[1]
        assert listed(tmp_path) == set() and (not path.exists() or path.stat().st_size < 4 * 4096)
