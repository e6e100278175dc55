"""A folder of the user's own saliency maps as a model."""

from __future__ import annotations

import errno
import io
import pickle
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from make_images import encode
from synthetic import make_dataset, reference_sweep
from xbench_fast.engines.errors import ConfigError, DataError, ImageError, RunError
from xbench_fast.metrics_gpu.sweep.masks import unpack_masks
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.evaluation.reference import map_arrays
from xbench_fast.runtime.evaluation.reference.map_files import CaseMaps, MapFolder, split_maps
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.stored_maps import load_maps

RNG = np.random.default_rng(5)
CLASSES = ("Lung Lesion", "Edema", "a", "b", "c")


def npy(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def put(folder: Path, files: dict[str, bytes]) -> MapFolder:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return MapFolder(folder)


def named(folder: MapFolder, *ids: str, classes: tuple[str, ...] = CLASSES) -> CaseMaps:
    """The maps of cases with these ids, whose images are called IMAGE-ID.png."""
    cases = [Case(each, Path(f"image-{each}.png"), {}, {}, "all") for each in ids or ("c1", "c2")]
    return folder.of(cases, classes)


def read(folder: MapFolder, case: str = "c1", finding: str = "Lung Lesion") -> np.ndarray:
    found = named(folder).find(case, finding)
    assert found is not None
    return found.read()


MAP = RNG.random((5, 7))


@pytest.mark.parametrize(
    "name",
    [
        "c1/Lung Lesion.npy",
        "c1/Lung_Lesion.npy",
        "c1_Lung Lesion.npy",
        "c1_Lung Lesion_map.npy",
        "c1_Lung_Lesion_map.NPY",
    ],
)
@pytest.mark.parametrize(
    "values",
    [
        *(MAP, MAP.astype(np.float16), MAP[None, None].astype(np.float32), MAP > 0.5),
        *(np.asfortranarray(MAP), np.asfortranarray(MAP[None]), MAP.astype(">f8"), (MAP * 99).astype(">i2")),
    ],
)
def test_names_and_kinds_of_arrays(tmp_path: Path, name: str, values: np.ndarray) -> None:
    found = read(put(tmp_path, {name: npy(values)}))
    assert found.dtype == np.float32 and found.shape == (5, 7)
    np.testing.assert_array_equal(found, values.reshape(5, 7).astype(np.float32))


def test_headers_are_parsed_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython can give a SystemError for a good header if a second thread parses one meanwhile."""
    parse, inside, most = np.lib.format.read_array_header_1_0, [0], [0]

    def slowly(stream: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.005)
        inside[0] -= 1
        return parse(stream)

    item = named(put(tmp_path, {"c1/Edema.npy": npy(MAP)})).find("c1", "Edema")
    assert item is not None
    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", slowly)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: item.read(), range(8)))
    assert most == [1]
    np.testing.assert_array_equal(found, np.repeat(MAP[None].astype(np.float32), 8, axis=0))


def test_archives_hold_one_map_or_one_for_each_finding(tmp_path: Path) -> None:
    np.savez(tmp_path / "c1.npz", Lung_Lesion=MAP, Edema=-MAP)
    (tmp_path / "c2").mkdir()
    np.savez_compressed(tmp_path / "c2" / "Edema.npz", MAP * 2)
    folder = MapFolder(tmp_path)
    np.testing.assert_array_equal(read(folder), MAP.astype(np.float32))
    np.testing.assert_array_equal(read(folder, "c1", "Edema"), -MAP.astype(np.float32))
    np.testing.assert_array_equal(read(folder, "c2", "Edema"), (MAP * 2).astype(np.float32))
    maps = named(folder)
    assert maps.find("c2", "Lung Lesion") is None and maps.find("../c1", "Edema") is None and not maps.unused


def test_png_of_8_and_16_bits(tmp_path: Path) -> None:
    levels = RNG.integers(0, 256, (6, 9), dtype=np.uint8)
    deep = RNG.integers(0, 65536, (6, 9), dtype=np.uint16)
    files = {
        "c1/a.png": encode(levels, "PNG"),
        "c1/b.png": encode(deep, "PNG"),
        "c1/c.png": encode(levels, "PNG", "RGB"),
    }
    folder = put(tmp_path, files)
    np.testing.assert_array_equal(read(folder, "c1", "a"), levels.astype(np.float32))
    np.testing.assert_array_equal(read(folder, "c1", "b"), deep.astype(np.float32))
    with pytest.raises(ImageError, match=r"c\.png cannot be read: .* a map is grey, not coloured"):
        read(folder, "c1", "c")


class Trap:
    """Unpickled, it leaves a file behind."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


def bomb() -> bytes:
    """A header that promises 10**18 values."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**9)})
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("c1/Lung Lesion.npy", b"", "damaged"),
        ("c1/Lung Lesion.npy", npy(MAP)[:-3], "damaged"),
        ("c1/Lung Lesion.npy", npy(MAP[0]), r"the shape \(7,\), a map has two dimensions"),
        ("c1/Lung Lesion.npy", npy(np.zeros((3, 4, 5))), "a map has two dimensions"),
        ("c1/Lung Lesion.npy", npy(np.zeros((0, 4))), "no pixels"),
        ("c1/Lung Lesion.npy", npy(MAP.astype(complex)), "a map holds real numbers"),
        ("c1/Lung Lesion.npy", npy(np.array([["a", "b"]])), "a map holds real numbers"),
        ("c1/Lung Lesion.npy", bomb(), "the limit is"),
        ("c1.npz", b"PK\x03\x04", "damaged"),
        ("c1/Lung Lesion.png", b"\x89PNG\r\n\x1a\n", "damaged"),
    ],
)
def test_files_that_are_no_maps_say_so(tmp_path: Path, name: str, content: bytes, cause: str) -> None:
    folder = put(tmp_path, {name: content})
    with pytest.raises(ImageError, match=rf"cannot be read: .*{cause}"):
        read(folder)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    values = np.empty((2, 2), object)
    values[:] = Trap(mark)
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    (tmp_path / "a").mkdir()
    with zipfile.ZipFile(tmp_path / "a" / "c1.npz", "w") as archive:
        archive.writestr("Lung Lesion.npy", buffer.getvalue())
    with pytest.raises(ImageError, match="a map holds real numbers"):
        read(MapFolder(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c1_Edema_map.pkl").write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(DataError, match=r"no \.npy, \.npz or \.png files; it has 1 pickles, .* with numpy\.save"):
        named(MapFolder(tmp_path / "b"))
    assert not mark.exists()


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; give the folder of the maps"):
        MapFolder(tmp_path / "nowhere")
    twice = put(tmp_path / "x", {"c1/a.npy": npy(MAP), "c1/a.png": encode(np.zeros((2, 2), np.uint8), "PNG")})
    with pytest.raises(DataError, match=r"a\.png and .*a\.npy both hold the map of 'a' in the case 'c1'; keep one"):
        named(twice)
    (tmp_path / "y" / "x").mkdir(parents=True)
    with pytest.raises(ConfigError, match="Two folders of maps are called 'maps:x'"):
        split_maps([f"maps:{tmp_path / 'x'}", f"maps:{tmp_path / 'y' / 'x'}"])
    found, others = split_maps(["kad", f"maps:{tmp_path / 'x'}", f"maps:{tmp_path / 'x'}"])
    assert [folder.name for folder in found] == ["maps:x"] and others == ["kad"]


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data", 20, missing=tuple(range(20))), "coco")


def own_maps(data: DatasetConfig, shape: tuple[int, int]) -> dict[str, bytes]:
    cases = Coco(data.root).cases()
    return {f"{case.case_id}/{name}.npy": npy(RNG.random(shape, np.float32)) for case in cases for name in case.regions}


def run(world: World, data: DatasetConfig, folder: MapFolder, **options: Any) -> Any:
    return world.run([], [data], files=[folder], **options)


def test_maps_become_rows_without_images_or_bundles(tmp_path: Path, data: DatasetConfig) -> None:
    files = own_maps(data, (9, 11))
    folder, world = put(tmp_path / "mine", files), World(tmp_path)
    assert run(world, data, folder).computed == 1
    kept = load_maps(load_run(world.out), "maps:mine", "coco")
    assert kept.saliency is not None and kept.saliency.shape == (12, 9, 11)
    assert world.entry("maps:mine--coco")["weights"] == "maps"
    rows = [row for row in world.table("maps:mine--coco").to_pylist() if row["area"] is not None]
    for index, row in enumerate(rows):
        saliency = np.load(io.BytesIO(files[f"{row['case_id']}/{row['finding']}.npy"]))
        np.testing.assert_array_equal(kept.saliency[index], saliency)
        counts = reference_sweep(saliency[None], unpack_masks(kept.masks[index : index + 1], 224))
        assert (row["area"], row["overlap"]) == (counts.area[0].tolist(), counts.overlap[0].tolist())
        assert (row["argmax"], row["hit"]) == (counts.argmax[0], counts.hit[0])
    assert run(world, data, folder).reused == 1
    put(tmp_path / "mine", {next(iter(files)): npy(RNG.random((9, 11), np.float32) + 1)})
    assert run(world, data, MapFolder(tmp_path / "mine")).computed == 1
    assert any("because this changed: map" in line for line in world.lines)


def test_maps_of_many_sizes_or_of_one_large_size_are_not_kept(tmp_path: Path, data: DatasetConfig) -> None:
    files = own_maps(data, (9, 11))
    first = next(iter(files))
    for name, more in (("mixed", {first: npy(MAP)}), ("large", own_maps(data, (65, 64)))):
        world = World(tmp_path / name)
        assert run(world, data, put(tmp_path / name / "m", {**files, **more}), threads=2).computed == 1
        assert world.entry("maps:m--coco")["grid"] is None
        rows = [row for row in world.table("maps:m--coco").to_pylist() if row["area"] is not None]
        assert len(rows) == 12 and all(row["saliency"] is None and row["region"] for row in rows)


def test_a_missing_or_damaged_map_costs_its_case(tmp_path: Path, data: DatasetConfig) -> None:
    files = own_maps(data, (4, 4))
    del files["case0003/Mass.npy"]
    files["case0000/Effusion.npy"] = b"rubbish"
    files["case0006/Mass.npy"] = npy(np.full((4, 4), np.nan, np.float32))
    world = World(tmp_path)
    run(world, data, put(tmp_path / "mine", files))
    entry = world.entry("maps:mine--coco")
    assert (entry["missing"], entry["unreadable"]) == (1, 1)
    rows = {(row["case_id"], row["finding"]): row for row in world.table("maps:mine--coco").to_pylist()}
    assert rows["case0003", "Mass"]["reason"] == "there is no map of 'Mass'"
    assert rows["case0000", "Mass"]["status"] == "unreadable" and rows["case0000", "Mass"]["area"] is None
    assert "Effusion.npy" in rows["case0000", "Mass"]["reason"]
    assert rows["case0006", "Mass"]["degenerate"] is True


@pytest.mark.parametrize("step", ["_header", "_values", "_read_png"])
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError("no memory")])
def test_a_map_that_the_machine_does_not_give_is_no_damaged_map(
    tmp_path: Path, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """It fails after its content was hashed: a row that says "damaged" would never be computed again."""
    files = own_maps(data, (4, 4))
    del files["case0000/Effusion.npy"]
    files["case0000/Effusion.png"] = encode(np.arange(16, dtype=np.uint8).reshape(4, 4), "png")
    folder, world = put(tmp_path / "mine", files), World(tmp_path)

    def scarce(*_: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(map_arrays, step, scarce)
        with pytest.raises(RunError, match=rf"case0000/\w+\.\w+ .*{error.args[-1]}.*run the same command again"):
            run(world, data, folder)
    assert run(world, data, MapFolder(folder.folder)).computed == 1
    assert world.entry("maps:mine--coco")["unreadable"] == 0


def test_findings_without_any_map_are_left_out(tmp_path: Path, data: DatasetConfig) -> None:
    world = World(tmp_path)
    mine = {name: content for name, content in own_maps(data, (4, 4)).items() if "Mass" in name}
    run(world, data, put(tmp_path / "mine", mine))
    assert world.entry("maps:mine--coco")["findings"] == ["Mass"] and len(world.table("maps:mine--coco")) == 20
    outcome = run(world, data, put(tmp_path / "other", {"x/Mass.npy": npy(MAP)}))
    assert [reason for _, _, reason in outcome.failed] == [
        f"None of the 1 maps in {tmp_path / 'other'} is of a case and a class of the dataset: the first is called "
        "'x/Mass', one of the dataset is called 'case0000/Mass.npy'."
    ]
    broken = run(world, data, put(tmp_path / "empty", {"a.txt": b""}))
    assert "holds no maps" in broken.failed[0][2]
