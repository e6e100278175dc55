"""`xbench-fast prepare` and `cache`: one decoding for all models, the size limit, kill -9, two processes at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.strict_json import CHECKSUM, checksum_of
from xbench_fast.metrics_gpu.grounding.protocols import protocol
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.cache import eviction as caches
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.cache.preparing import PreparedSet
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.images.decode import decode_grey, read_grey
from xbench_fast.runtime.data.images.resizing import to_model
from xbench_fast.runtime.evaluation.cell_sources import source_opener
from xbench_fast.runtime.evaluation.pairing import needed_geometries
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.host.sizes import format_bytes, parse_bytes
from xbench_fast.runtime.results.loaded_dataset import load_dataset

pytestmark = pytest.mark.usefixtures("empty_drawings")

SQUASH = Geometry("squash", 32, 32, "bilinear")
CROP = Geometry("crop", 32, 36, "bicubic")
COMMAND = [sys.executable, "-m", "xbench_fast.runtime.cli"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data", 12, missing=(3,)), "coco")


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each image file is decoded."""
    import xbench_fast.runtime.data.cache.image_store as module

    counted: Counter[str] = Counter()

    def counting(data: bytes, name: str, *, stretched: bool) -> Any:
        counted[Path(name).name] += 1
        return decode_grey(data, name, stretched=stretched)

    monkeypatch.setattr(module, "decode_grey", counting)
    return counted


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(str(caught.value.code)), out, err


def bundles(folder: Path, *geometries: Geometry) -> list[Path]:
    folder.mkdir()
    return [make_bundle(folder / f"blocks-{n}", geometry=g).path for n, g in enumerate(geometries)]


def expected(data: DatasetConfig, geometry: Geometry) -> dict[str, Any]:
    return {
        case.case_id: to_model(read_grey(case.image), geometry)
        for case in Coco(data.root).cases()
        if case.image.is_file()
    }


def assert_prepared(cache: Path, data: DatasetConfig, geometry: Geometry) -> None:
    cases = Coco(data.root).cases()
    with PreparedStore.open(cache, data.name, cases, geometry) as store:
        found = {case.case_id: store.get(n) for n, case in enumerate(cases) if case.image.is_file()}
        for name, pixels in expected(data, geometry).items():
            np.testing.assert_array_equal(found[name], pixels)


def test_models_of_one_geometry_share_the_file_and_one_decoding(
    tmp_path: Path, data: DatasetConfig, decodes: Counter[str]
) -> None:
    paths = bundles(tmp_path / "models", SQUASH, SQUASH)
    world = World(tmp_path)
    outcome = world.run(paths, [data], cache=tmp_path / "cache")
    assert outcome.computed == 2 and len(list((tmp_path / "cache").glob("*-squash-*"))) == 1
    assert set(decodes.values()) == {1} and len(decodes) == 11


def test_models_of_two_geometries_share_the_decoding(
    tmp_path: Path, data: DatasetConfig, decodes: Counter[str]
) -> None:
    paths = bundles(tmp_path / "models", SQUASH, CROP, SQUASH)
    loaded, lines = load_dataset(data), list[str]()
    assert needed_geometries([*paths, tmp_path / "nothing"], protocol("default"), loaded) == [SQUASH, CROP]
    needed = partial(needed_geometries, paths, protocol("default"))
    open_source = source_opener(tmp_path / "cache", lines.append, geometries=needed)
    for geometry in (SQUASH, CROP, SQUASH):
        with open_source(loaded, geometry) as source:
            for case in loaded.cases:
                if case.image.is_file():
                    np.testing.assert_array_equal(source(case)[0], expected(data, geometry)[case.case_id])
    assert set(decodes.values()) == {1} and len(decodes) == 11 and not lines


def test_prepare_then_eval_decodes_nothing_more(
    tmp_path: Path, data: DatasetConfig, decodes: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = bundles(tmp_path / "models", SQUASH, CROP)
    (data.root / "images" / "case0007.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    line = ["prepare", "--bundles", tmp_path / "models", "--data", f"coco={data.root}", "--cache", "kept"]
    status, out, _ = ran(capsys, *line, "--threads", 2)
    assert status == 0 and "12 images: 10 decoded, 0 ready before" in out and "1 missing, 1 unreadable" in out
    assert set(decodes.values()) == {1} and len(decodes) == 11
    status, out, _ = ran(capsys, *line, "--json", "-")
    row = json.loads(out)["datasets"][0]
    assert status == 0 and (row["decoded"], row["ready"], row["missing"], row["unreadable"]) == (0, 10, 1, 1)
    outcome = World(tmp_path).run(paths, [data], cache=tmp_path / "kept")
    assert outcome.computed == 2 and set(decodes.values()) == {1}
    assert {path.name.split("-")[1] for path in (tmp_path / "kept").iterdir()} == {"squash", "crop", "masks"}


def test_prepare_for_a_geometry_needs_no_bundle(
    tmp_path: Path, data: DatasetConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["prepare", "--data", f"coco={data.root}", "--data", "absent=nowhere"]
    line += ["--geometry", SQUASH.key, "--geometry", CROP.key]
    status, out, _ = ran(capsys, *line)
    assert status == 0 and "absent: skipped" in out
    for geometry in (SQUASH, CROP):
        assert_prepared(tmp_path / "run" / "prepared", data, geometry)
    # The default place lies in the run directory, and eval accepts a run directory that holds nothing else.
    outcome = World(tmp_path).run(bundles(tmp_path / "models", SQUASH), [data])
    assert outcome.computed == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--geometry", "squash"], "--geometry squash is not of the form"),
        (["--geometry", "squash-224-256-bicubic"], "is not of the form"),
        (["--geometry", "squash-32-32-bilinear", "--model", "kad"], "contradict"),
        (["--geometry", "squash-32-32-bilinear", "--cache-limit", "1 kB"], "do not fit the cache limit"),
        (["--geometry", "squash-32-32-bilinear", "--cache-limit", "many"], "--cache-limit must be an amount of data"),
        ([], "No bundle was found"),
        (["--geometry", "squash-32-32-bilinear", "--dataset", "rsna"], "is not configured"),
    ],
)
def test_mistakes_are_one_sentence(
    data: DatasetConfig, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    status, _, err = ran(capsys, "prepare", "--data", f"coco={data.root}", *flags)
    assert status == (1 if "1 kB" in flags else 2) and words in err and "Traceback" not in err


def test_sizes() -> None:
    assert [parse_bytes(text, "x") for text in ("20GB", "1.5 GiB", "500m", "7", 7, "2 B")] == [
        20_000_000_000,
        1_610_612_736,
        500_000_000,
        7,
        7,
        2,
    ]
    assert [format_bytes(n) for n in (0, 999, 632_000_000, 1_234, 99_400, 10**14)] == [
        "0 B",
        "999 B",
        "632 MB",
        "1.23 kB",
        "99.4 kB",
        "100000 GB",
    ]
    for text in ("", "GB", "-3", "3 QB", True):
        with pytest.raises(ConfigError, match="x must be an amount of data"):
            parse_bytes(text, "x")
    for text in ("9" * 400, "9" * 5000 + "TB", f"{'9' * 307}TB"):
        with pytest.raises(ConfigError, match="x is larger than any disk"):
            parse_bytes(text, "x")


@pytest.mark.parametrize(("flags", "threads"), [((), 3), (("--threads", 2), 2)])
def test_the_threads_of_the_configuration_are_used(
    data: DatasetConfig,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[object, ...],
    threads: int,
) -> None:
    import xbench_fast.runtime.data.cache.preparing as module

    used, real = [], module.prepare

    def noting(images: Any, cases: range, threads: int, *rest: Any) -> Any:
        used.append(threads)
        return real(images, cases, threads, *rest)

    monkeypatch.setattr(module, "prepare", noting)
    Path("xbench.toml").write_text(f"[eval]\nthreads = 3\n[datasets.coco]\nroot = '{data.root}'\n")
    assert ran(capsys, "prepare", "--geometry", SQUASH.key, *flags)[0] == 0 and used == [threads]


def fill(cache: Path, data: DatasetConfig, name: str, geometry: Geometry = SQUASH, used: float | None = None) -> Path:
    cases = Coco(data.root).cases()
    with PreparedSet.open(cache, name, cases, [geometry]) as images:
        assert [images.fill(n) for n in range(3)] == ["decoded"] * 3
    folder = next(path for path in cache.iterdir() if path.name.startswith(f"{name}-{geometry.mode}"))
    if used is not None:
        for file in ("use", "index.json"):
            os.utime(folder / file, (used, used))
    return folder


def outdate(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_text().replace("pillow-", "pillow-0."))
    (folder / "index.json").write_text(json.dumps({**index, CHECKSUM: checksum_of(index)}))


def test_the_longest_unused_store_goes_first_and_one_in_use_stays(tmp_path: Path, data: DatasetConfig) -> None:
    root = tmp_path / "cache"
    third, first, old = (fill(root, data, name, used=n) for name, n in (("c", 300), ("a", 100), ("old", 900)))
    second = fill(root, data, "b", used=200)
    outdate(old)
    (root / "notes").mkdir()
    (root / "notes" / "lock").write_text("mine")
    (root / "notes" / "diary.txt").write_text("dear")
    infos = {info.path: info for info in caches.list_stores(root)}
    assert set(infos) == {first, second, third, old}
    assert (infos[first].dataset, infos[first].geometry, infos[first].images, infos[first].cases) == (
        "a",
        SQUASH.key,
        3,
        12,
    )
    assert infos[old].outdated and not infos[first].outdated and infos[first].used == 100
    sizes = [infos[path].bytes for path in (old, first, second, third)]
    assert min(sizes) > 3 * 1024
    with PreparedStore.open(root, "b", Coco(data.root).cases(), SQUASH) as held:
        os.utime(second / "use", (50, 50))
        held.load(0)
        assert caches.list_stores(root)[[i.path for i in caches.list_stores(root)].index(second)].in_use
        removed, fits = caches.make_room(root, sum(sizes[1:]))
        assert fits and [info.path for info in removed] == [old]
        removed, fits = caches.make_room(root, sizes[3], keep=(third,))
        assert not fits or removed
        assert [info.path for info in removed] == [first] and second.is_dir() and third.is_dir()
        assert caches.clear(root)[1][0].path == second and held.get(0) is not None and not third.exists()
    assert (root / "notes" / "diary.txt").exists()


def test_eval_keeps_to_the_limit(tmp_path: Path, data: DatasetConfig, decodes: Counter[str]) -> None:
    loaded, lines, root = load_dataset(data), list[str](), tmp_path / "cache"
    fill(root, data, "old", used=100)
    need = 12 * (32 * 32 + 64)
    with source_opener(root, lines.append, limit=need)(loaded, SQUASH) as source:
        source(loaded.cases[0])
    assert "of old, squash-32-32-bilinear were deleted" in lines[0]
    assert [path.name.split("-")[0] for path in root.iterdir()] == ["coco"]
    decodes.clear()
    # Both geometries together are too large: the one that is needed now is kept.
    both = source_opener(root, lines.append, limit=need, geometries=lambda _: [SQUASH, CROP])
    for _ in range(2):
        with both(loaded, CROP) as source:
            source(loaded.cases[0])
    assert decodes["case0000.png"] == 1 and [p.name.split("-")[1] for p in root.iterdir()] == ["crop"]
    with source_opener(root, lines.append, limit=need - 1)(loaded, SQUASH) as source:
        np.testing.assert_array_equal(source(loaded.cases[0])[0], expected(data, SQUASH)["case0000"])
    assert "would not fit the cache limit" in lines[-1] and len(list(root.iterdir())) == 1


def test_the_commands_of_the_cache(tmp_path: Path, data: DatasetConfig, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "cache"
    kept, old = fill(root, data, "kept"), fill(root, data, "old")
    outdate(old)
    (root / ".removed-1-half").mkdir()
    (root / ".removed-1-half" / "pixels.bin").write_bytes(b"x")
    Path("xbench.toml").write_text("cache = 'cache'\ncache_limit = '1 GB'\n")
    status, out, _ = ran(capsys, "cache")
    assert status == 0 and "2 stores" in out and "outdated" in out and "3 of 12" in out
    found = json.loads(ran(capsys, "cache", "--json", "-")[1])
    assert [row["dataset"] for row in found["stores"]] == ["kept", "old"] and found["bytes"] > 6 * 1024
    status, out, _ = ran(capsys, "cache", "prune")
    assert status == 0 and f"deleted: {old.name}" in out and kept.name not in out
    assert [path.name for path in root.iterdir()] == [kept.name]
    with PreparedStore.open(root, "kept", Coco(data.root).cases(), SQUASH):
        status, out, err = ran(capsys, "cache", "prune", "--cache-limit", "0")
        assert status == 1 and "in use and larger than the limit" in err
        assert "in use, kept" in ran(capsys, "cache", "clear")[1]
    status, out, _ = ran(capsys, "cache", "--cache", root, "clear")
    assert status == 0 and "deleted: kept" in out and not list(root.iterdir())
    assert "nothing was deleted" in ran(capsys, "cache", "clear")[1]
    assert "0 stores" in ran(capsys, "cache", "--cache", tmp_path / "nowhere")[1]


def test_a_store_deleted_while_it_is_opened_is_begun_again(tmp_path: Path, data: DatasetConfig) -> None:
    """Two threads of processes' work: one deletes without end, the other opens, fills and reads."""
    cases, root = Coco(data.root).cases(), tmp_path / "cache"
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from xbench_fast.runtime.data.cache.eviction import clear
        print("ready", flush=True)
        while True:
            clear(Path(sys.argv[1]))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(root)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        for _ in range(60):
            with PreparedStore.open(root, "coco", cases, SQUASH) as store:
                assert store.is_kept
                store.load(0)
                assert store.get(0) is not None and next(root.glob("coco-*")).is_dir()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


@pytest.fixture
def large(tmp_path: Path) -> DatasetConfig:
    root = make_dataset(tmp_path / "large", 400)
    for path in sorted((root / "images").iterdir())[12:]:
        shutil.copyfile(root / "images" / "case0000.png", path)
    return DatasetConfig("coco", root, "coco")


def prepare_line(data: DatasetConfig) -> list[str]:
    return [*COMMAND, "prepare", "--data", f"coco={data.root}", "--cache", "kept", "--geometry", SQUASH.key]


def prepared_count(cache: Path) -> int:
    return sum(info.images for info in caches.list_stores(cache))


def test_a_killed_prepare_goes_on_where_it_was(
    tmp_path: Path, large: DatasetConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.Popen([*prepare_line(large), "--threads", "1"], stdout=subprocess.DEVNULL)
    while process.poll() is None and prepared_count(tmp_path / "kept") < 5:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = prepared_count(tmp_path / "kept")
    assert before >= 5
    status, out, _ = ran(capsys, *prepare_line(large)[3:], "--json", "-")
    row = json.loads(out)["datasets"][0]
    assert status == 0 and (row["ready"], row["decoded"]) == (before, 400 - before)
    assert_prepared(tmp_path / "kept", large, SQUASH)


def test_two_processes_at_once_decode_every_image_once(tmp_path: Path, large: DatasetConfig) -> None:
    line = [*prepare_line(large), "--geometry", CROP.key, "--threads", "1", "--json", "-"]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    rows = []
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        rows.append(json.loads(out)["datasets"][0])
    assert sum(row["decoded"] for row in rows) == 400 and sum(row["ready"] for row in rows) == 400
    for geometry in (SQUASH, CROP):
        assert_prepared(tmp_path / "kept", large, geometry)
