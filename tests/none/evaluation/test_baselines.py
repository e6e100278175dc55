"""Baselines: reference rows that need neither a bundle nor an image (docs/metrics.md §4, §5, §13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World, same
from make_images import dicom, encode
from synthetic import make_bundle, make_dataset, reference_sweep
from xbench_fast.engines.errors import ConfigError, ImageError
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_shapes import Rle, union
from xbench_fast.runtime.data.images.size import image_size
from xbench_fast.runtime.evaluation.reference.baselines import BASELINES, draw_case, split_baselines
from xbench_fast.runtime.host.config import DatasetConfig

NAMES = [f"baseline:{name}" for name in BASELINES]
PIXELS = 224 * 224


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data", 20, missing=tuple(range(20))), "coco")


def run(world: World, data: DatasetConfig, baselines: list[str], **options: Any) -> Any:
    """An evaluation of baselines alone."""
    return world.run([], [data], baselines=baselines, **options)


def rows_of(world: World, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = world.table(f"baseline:{name}--coco").to_pylist()
    return rows


def masks(data: DatasetConfig) -> dict[tuple[str, str], Any]:
    i, j = np.arange(224) * 40 // 224, np.arange(224) * 56 // 224
    return {
        (case.case_id, name): region.mask(40, 56)[np.ix_(i, j)]
        for case in Coco(data.root).cases()
        for name, region in case.regions.items()
    }


def test_all_images_may_be_missing(tmp_path: Path, data: DatasetConfig) -> None:
    world = World(tmp_path)
    assert run(world, data, NAMES).computed == 4
    for name in BASELINES:
        rows = rows_of(world, name)
        assert len(rows) == 40 and {row["status"] for row in rows} == {"ok"}
        assert all(row["logit"] is None and row["label"] in (0, 1) for row in rows)
        assert {(r["case_id"], r["finding"]) for r in rows if r["area"] is not None} == set(masks(data))
        assert all(row["region_area"] == 0 for row in rows if row["area"] is None)


def test_ones_is_the_mask_itself(tmp_path: Path, data: DatasetConfig) -> None:
    world, regions = World(tmp_path), masks(data)
    run(world, data, ["baseline:ones"])
    for row in rows_of(world, "ones"):
        if row["area"] is None:
            continue
        mask = regions[row["case_id"], row["finding"]]
        assert set(row["area"]) == {PIXELS} and set(row["overlap"]) == {mask.sum()} == {row["region_area"]}
        assert (row["argmax"], row["degenerate"], row["hit"]) == (0, False, bool(mask[0, 0]))


def test_center_and_chance_go_through_the_sweep(tmp_path: Path, data: DatasetConfig) -> None:
    world, regions = World(tmp_path), masks(data)
    run(world, data, ["baseline:center", "baseline:chance"])
    y = (np.arange(224) + 0.5) / 224 - 0.5
    centred = np.exp(-8 * y[:, None] ** 2).astype(np.float64) * np.exp(-8 * y[None, :] ** 2)
    first = next(row for row in rows_of(world, "center") if row["area"] is not None)
    counts = reference_sweep(centred.astype(np.float32)[None], regions[first["case_id"], first["finding"]][None])
    assert first["area"] == counts.area[0].tolist() and first["overlap"] == counts.overlap[0].tolist()
    assert divmod(first["argmax"], 224)[0] in (111, 112) and first["argmax"] % 224 in (111, 112)
    drawn = {(r["case_id"], r["finding"]): r["argmax"] for r in rows_of(world, "chance") if r["area"] is not None}
    assert len(set(drawn.values())) > 0.8 * len(drawn)  # another map for every pair


def test_chance_depends_on_nothing_but_case_and_class(tmp_path: Path, data: DatasetConfig) -> None:
    (tmp_path / "other").mkdir()
    one, two = World(tmp_path), World(tmp_path / "other")
    run(one, data, ["baseline:chance"], threads=1, chunk=8)
    run(two, data, ["baseline:chance"], threads=3, chunk=3)
    assert same(one.table("baseline:chance--coco"), two.table("baseline:chance--coco"))


def patients(data: DatasetConfig, names: dict[str, str], lone: str = "") -> None:
    """Gives cases these patients; of the class `lone` only the boxes of the first patient are left."""
    file = data.root / "annotations.json"
    told = json.loads(file.read_text())
    for image in told["images"]:
        image["patient_id"] = names.get(image["id"], image["id"])
    number = {entry["name"]: entry["id"] for entry in told["categories"]}
    told["annotations"] = [
        entry
        for entry in told["annotations"]
        if entry["category_id"] != number.get(lone) or names.get(entry["image_id"]) == "p"
    ]
    file.write_text(json.dumps(told))


def test_prior_is_the_mean_region_of_other_patients(tmp_path: Path, data: DatasetConfig) -> None:
    """Against a loop over all other masks; cases 0, 3 and 4 are of one patient, so none of them sees the others."""
    names = dict.fromkeys(("case0000", "case0003", "case0004"), "p")
    patients(data, names)
    world, regions = World(tmp_path), masks(data)
    run(world, data, ["baseline:prior"])
    rows = [row for row in rows_of(world, "prior") if row["area"] is not None]
    assert {(row["case_id"], row["finding"]) for row in rows} == set(regions)
    for row in rows:
        case, finding = row["case_id"], row["finding"]
        patient = names.get(case, case)
        others = [mask for (o, f), mask in regions.items() if f == finding and names.get(o, o) != patient]
        mean = np.mean(np.array(others, np.float64), axis=0).astype(np.float32)
        counts = reference_sweep(mean[None], regions[case, finding][None])
        assert row["area"] == counts.area[0].tolist() and row["overlap"] == counts.overlap[0].tolist()
        assert (row["argmax"], row["hit"]) == (int(counts.argmax[0]), bool(counts.hit[0]))
        assert row["logit"] is None


def test_prior_of_a_limit_or_a_chunk_is_that_of_the_whole_dataset(tmp_path: Path, data: DatasetConfig) -> None:
    (tmp_path / "other").mkdir()
    one, two = World(tmp_path), World(tmp_path / "other")
    run(one, data, ["baseline:prior"])
    run(two, data, ["baseline:prior"], limit=6, chunk=2)
    assert same(one.table("baseline:prior--coco").slice(0, 12), two.table("baseline:prior--coco"))
    file = data.root / "annotations.json"
    told = json.loads(file.read_text())
    told["annotations"][-1]["bbox"][2] += 1  # of a case beyond the limit
    file.write_text(json.dumps(told))
    assert run(two, data, ["baseline:prior"], limit=6, chunk=2).computed == 1
    assert run(two, data, ["baseline:prior"], limit=6, chunk=2).reused == 1


def test_a_finding_of_one_patient_has_no_prior(tmp_path: Path) -> None:
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 20), "coco")
    patients(data, dict.fromkeys(("case0000", "case0004", "case0008"), "p"), lone="Effusion")
    world = World(tmp_path)
    world.run([make_bundle(tmp_path / "blocks-32").path], [data], baselines=["baseline:prior", "baseline:ones"])
    rows = [row for row in rows_of(world, "prior") if row["area"] is not None]
    assert {row["finding"] for row in rows} == {"Mass"} and len(rows) == 7
    with pytest.raises(SystemExit):
        main(["report", str(world.out), "--no-page"])
    told = json.loads((world.out / "report/report.json").read_text())
    # The prior stands beside the model with the pairs it has, and a baseline that lacks none keeps all.
    assert {cell["model"]: cell["n"] for cell in told["cells"]} == {
        "blocks-32": 10, "baseline:prior": 7, "baseline:ones": 10,
    }  # fmt: skip
    text = (world.out / "report/tables.md").read_text()
    assert "baseline:prior on coco: without Effusion, which no second patient has" in text


def test_a_prior_of_fewer_pairs_of_a_class_is_left_out(tmp_path: Path) -> None:
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 20), "coco")
    world = World(tmp_path)
    world.run([], [data], baselines=["baseline:prior"], limit=6)
    world.run([make_bundle(tmp_path / "blocks-32").path], [data])
    with pytest.raises(SystemExit):
        main(["report", str(world.out), "--no-page"])
    assert "it does not have all pairs" in (world.out / "report/tables.md").read_text()


def test_baselines_are_resumed_and_reused(tmp_path: Path, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    from xbench_fast.runtime.results.storage import CellFiles

    real, written = CellFiles.write_part, list[int]()

    def write(self: CellFiles, index: int, table: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(index)
        real(self, index, table)

    with monkeypatch.context() as patch:
        patch.setattr(CellFiles, "write_part", write)
        with pytest.raises(KeyboardInterrupt):
            run(world, data, ["baseline:center"])
    assert world.entry("baseline:center--coco")["state"] == "interrupted"
    assert run(world, data, ["baseline:center"]).computed == 1
    assert world.entry("baseline:center--coco")["computed"] == 4 and len(rows_of(world, "center")) == 40
    assert run(world, data, ["baseline:center"]).reused == 1
    file = data.root / "annotations.json"
    file.write_text(file.read_text().replace('"width": 56', '"width": 57', 1))
    assert run(world, data, ["baseline:center"]).computed == 1


def test_the_command_needs_no_bundle_and_reports_reference_rows(
    tmp_path: Path, data: DatasetConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["eval", "--data", f"coco={data.root}", *(word for name in NAMES for word in ("--model", name))]
    with pytest.raises(SystemExit) as caught:
        main(line)
    assert caught.value.code == 0 and "4 cells finished" in capsys.readouterr().out
    assert json.loads(Path("run/run.json").read_text())["config"]["bundles"] == NAMES
    with pytest.raises(SystemExit) as caught:
        main(["report"])
    out = capsys.readouterr().out
    assert caught.value.code == 0 and "a reference map that sees no image" in out
    cells = {cell["model"]: cell for cell in json.loads(Path("run/report/report.json").read_text())["cells"]}
    assert list(cells) == NAMES
    means = cells["baseline:ones"]["grounding"]["macro"]
    # The zero line of every metric: all of it is the mean region fraction, or follows from it.
    assert means["pointing"] == means["chance"] == means["iou_best"] == means["floor_iou"] == means["iou_fixed"]
    assert means["dice_best"] == means["floor_dice"] == means["dice_fixed"] and means["delta_dice"] == 0
    assert all(not cell["recognition"]["classes"] for cell in cells.values())


def test_a_baseline_stands_beside_a_model(tmp_path: Path) -> None:
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 8), "coco")
    world = World(tmp_path)
    outcome = world.run([make_bundle(tmp_path / "blocks-32").path], [data], baselines=["baseline:ones"])
    assert outcome.computed == 2 and len(rows_of(world, "ones")) == len(world.table()) == 16


def test_names_of_baselines() -> None:
    assert split_baselines(["kad", "baseline:ones", "x", "baseline:ones"]) == (["baseline:ones"], ["kad", "x"])
    with pytest.raises(ConfigError, match=r"There is no baseline 'baseline:centre': did you mean 'baseline:center'\?"):
        split_baselines(["baseline:centre"])


def case(image: Path, region: Any, size: tuple[int, int] | None = None) -> Case:
    return Case("c", image, {"a": 1}, {"a": region}, "all", size=size)


def test_where_the_size_of_a_region_comes_from(tmp_path: Path) -> None:
    box, missing = Boxes(((0, 0, 20, 10),)), tmp_path / "missing.png"
    assert draw_case(case(missing, box), ["a"]).status == "missing"
    assert draw_case(case(missing, box, (40, 40)), ["a"]).masks["a"].shape == (224, 224)
    assert draw_case(case(missing, Rle((4, 4), (0, 8, 8))), ["a"]).masks
    assert draw_case(case(missing, union([Rle((4, 4), (0, 8, 8)), Rle((4, 4), (8, 8))])), ["a"]).masks
    assert draw_case(case(missing, box), ["b"]).status == "ok"
    (tmp_path / "broken.png").write_bytes(b"rubbish")
    broken = draw_case(case(tmp_path / "broken.png", box), ["a"])
    assert broken.status == "unreadable" and "neither PNG, JPEG nor DICOM" in (broken.reason or "")


def test_image_sizes_come_from_headers(tmp_path: Path) -> None:
    pixels = np.zeros((24, 40), np.uint8)
    files = {"a.png": encode(pixels, "PNG"), "a.jpg": encode(pixels, "JPEG"), "a.dcm": dicom(pixels)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content[: len(content) - 10])
        assert image_size(tmp_path / name) == (24, 40)
    for content in (b"", b"\x89PNG\r\n\x1a\nxx", b"\xff\xd8\xff\xd9", files["a.dcm"][:150]):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ImageError, match="bad cannot be read"):
            image_size(tmp_path / "bad")
    with pytest.raises(ImageError, match="No such file"):
        image_size(tmp_path / "nothing")
