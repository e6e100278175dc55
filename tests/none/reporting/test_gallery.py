"""The overlay gallery: which cases it shows, what it keeps of them, and what it says when something is not at hand."""

from __future__ import annotations

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.geometry import Geometry
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.gallery import assembly, pictures, small_pictures
from xbench_fast.runtime.reporting.gallery.assembly import make_gallery, run_lengths
from xbench_fast.runtime.reporting.gallery.choice import PairScore, choose, in_rounds
from xbench_fast.runtime.reporting.gallery.model import Gallery, gallery_payload
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results
from xbench_fast.runtime.results.run_json import store_run

QUICK = Choices(replicates=0)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that sees the whole image, one that sees a crop, and a baseline: `run` and `data`."""
    folder = tmp_path_factory.mktemp("gallery")
    data = DatasetConfig("coco", make_dataset(folder / "data", 24, missing=(4,)), "coco")
    whole = make_bundle(folder / "whole-32", several=True)
    crop = make_bundle(folder / "crop-32", geometry=Geometry("crop", 32, 36, "bilinear"))
    world = World(folder)
    assert world.run([whole.path, crop.path], [data], baselines=["baseline:chance"]).computed == 3
    return folder


@pytest.fixture
def data(template: Path, tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", Path(shutil.copytree(template / "data", tmp_path / "data")), "coco")


@pytest.fixture
def world(template: Path, tmp_path: Path, data: DatasetConfig) -> World:
    """A copy of the template; run.json says where the images are."""
    shutil.copytree(template / "run", tmp_path / "run")
    world = World(tmp_path)
    configure(world, root=str(data.root))
    return world


def configure(world: World, *, reader: str = "coco", **entry: Any) -> None:
    document = json.loads((world.out / "run.json").read_text())
    document["config"] = {"datasets": {"coco": {"reader": reader, **entry}}}
    store_run(world.out, document)


def build(world: World, choices: Choices = QUICK, **options: Any) -> tuple[Gallery | None, str]:
    run = load_run(world.out)
    return make_gallery(run, make_results(run, choices), **options)


def built(world: World, choices: Choices = QUICK, **options: Any) -> Gallery:
    gallery, reason = build(world, choices, **options)
    assert gallery is not None and reason == ""
    return gallery


def stored(world: World, cell: str) -> dict[tuple[str, str], dict[str, Any]]:
    rows = world.table(cell).to_pylist()
    return {(row["case_id"], row["finding"]): row for row in rows if row["region"] is not None}


def scores(*dice: float, hits: str = "") -> list[PairScore]:
    return [PairScore(f"c{n}", (d,), (hits[n : n + 1] == "x",)) for n, d in enumerate(dice)]


def test_the_best_the_worst_and_the_median_come_first() -> None:
    chosen = choose(scores(0.3, 0.9, 0.1, 0.5, 0.7), 3)
    assert chosen == [("c1", "best Dice"), ("c2", "worst Dice"), ("c3", "median Dice")]


def test_hits_and_misses_are_both_shown() -> None:
    """The best three by Dice are hits, the rest is missed: without care no miss but the worst would be shown."""
    chosen = dict(choose(scores(0.9, 0.8, 0.7, 0.3, 0.2, 0.1, hits="xxx"), 5))
    assert chosen["c3"] == "best of those missed" and chosen["c2"] in ("median Dice", "worst of those hit")


def test_disagreement_is_worth_a_place() -> None:
    pairs = [PairScore(f"c{n}", (0.5, 0.5), (True, True)) for n in range(6)]
    pairs[4] = PairScore("c4", (0.5, 0.45), (True, False))
    assert ("c4", "models disagree") in choose(pairs, 4) or choose(pairs, 4)[1] == ("c4", "worst Dice")
    pairs[5] = PairScore("c5", (0.1, 0.1), (False, False))
    assert ("c4", "models disagree") in choose(pairs, 4)


def test_cases_of_all_models_come_before_those_of_some() -> None:
    pairs = [PairScore("only", (1.0,), (True,)), PairScore("both", (0.1, 0.2), (True, False))]
    assert choose(pairs) == [("both", "best Dice")]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), max_size=30), st.randoms())
def test_the_choice_does_not_depend_on_the_order(rows: list[tuple[float, bool]], shuffle: Any) -> None:
    pairs = [PairScore(f"c{n:02d}", (dice,), (hit,)) for n, (dice, hit) in enumerate(rows)]
    chosen = choose(pairs, 7)
    shuffle.shuffle(pairs)
    assert choose(pairs, 7) == chosen
    assert len({case for case, _ in chosen}) == len(chosen) == min(7, len(pairs))
    if {hit for _, hit in rows} == {True, False}:
        outcome = {pair.case_id: pair.hits[0] for pair in pairs}
        assert {outcome[case] for case, _ in chosen} == {True, False}


def test_every_class_gets_its_first_case_before_any_second() -> None:
    rounds = list(in_rounds({("d", "a"): [("1", "x"), ("2", "y")], ("d", "b"): [("3", "x")]}))
    assert rounds == [("d", "a", "1", "x"), ("d", "b", "3", "x"), ("d", "a", "2", "y")]


@settings(max_examples=30)
@given(st.integers(0, 2**24 - 1))
def test_run_lengths_are_row_major_and_start_with_zeros(bits: int) -> None:
    mask = np.array([bits >> n & 1 for n in range(24)], np.bool_).reshape(4, 6)
    flat = [n % 2 for n, length in enumerate(run_lengths(mask)) for _ in range(length)]
    assert flat == mask.astype(int).ravel().tolist()


def test_overlays_hold_what_the_rows_hold(world: World) -> None:
    gallery = built(world)
    assert gallery.models == ("whole-32", "crop-32") and gallery.notes == ()
    assert {case.finding for case in gallery.cases} == {"Mass", "Effusion"}
    for overlay in gallery.overlays:
        case = gallery.cases[overlay.case]
        row = stored(world, f"{overlay.model}--coco")[case.case_id, case.finding]
        assert overlay.area.tolist() == row["area"] and overlay.overlap.tolist() == row["overlap"]
        assert overlay.saliency.ravel().tolist() == row["saliency"] and list(overlay.frame) == row["frame"]
        assert (overlay.argmax, overlay.hit, overlay.degenerate) == (row["argmax"], row["hit"], row["degenerate"])
        assert sum(case.truth[1::2]) == row["region_area"]
    # The same cases for both models.
    shown = [{overlay.case for overlay in gallery.overlays if overlay.model == name} for name in gallery.models]
    assert shown[0] == shown[1] == set(range(len(gallery.cases)))


def test_the_best_threshold_is_that_of_the_tables(world: World) -> None:
    run = load_run(world.out)
    results = make_results(run, QUICK)
    gallery, _ = make_gallery(run, results)
    assert gallery is not None
    for overlay in gallery.overlays:
        scores = results.cells[overlay.model, "coco"].grounding
        assert scores.value("best_tau", gallery.cases[overlay.case].finding) == overlay.best / 100


def test_a_picture_is_the_whole_frame_on_the_evaluation_grid(
    world: World, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no room for the native one."""
    monkeypatch.setattr(assembly, "_native", lambda *_: {})
    gallery = built(world)
    assert not any(gallery.native)
    assert len(gallery.images) == len({case.case_id for case in gallery.cases})
    case = gallery.cases[0]
    assert case.image is not None
    with Image.open(io.BytesIO(gallery.images[case.image])) as shown:
        assert (shown.format, shown.mode, shown.size) == ("JPEG", "L", (224, 224))
        found = np.asarray(shown, np.float64)
    with Image.open(data.root / "images" / f"{case.case_id}.png") as native:
        expected = np.asarray(native.resize((224, 224), Image.Resampling.BICUBIC), np.float64)
    assert np.abs(found - expected).mean() < 6  # noise, which JPEG keeps least of all


def test_pictures_have_their_native_size_as_far_as_the_budget_goes(
    world: World, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = built(world)
    assert len(gallery.native) == len(gallery.images) and all(gallery.native)
    shapes = set()
    for case in gallery.cases:
        assert case.image is not None
        with Image.open(io.BytesIO(gallery.images[case.image])) as shown:
            with Image.open(data.root / "images" / f"{case.case_id}.png") as native:
                assert (shown.format, shown.mode, shown.size) == ("JPEG", "L", native.size)
                expected = np.asarray(native.convert("L"), np.float64)
            assert np.abs(np.asarray(shown, np.float64) - expected).mean() < 8
            shapes.add(shown.size)
    assert any(width != height for width, height in shapes)
    monkeypatch.setattr(pictures, "_LONGEST", 20)
    with Image.open(io.BytesIO(built(world).images[0])) as reduced:
        assert max(reduced.size) == 20
    sizes = [len(image) for image in gallery.images]
    less = len(json.dumps(gallery_payload(gallery))) - sum(sizes)
    monkeypatch.setattr(pictures, "_LONGEST", 2048)
    monkeypatch.setattr(assembly, "_FINE", 0.0)
    flags = built(world, budget=less + sum(sizes)).native
    assert list(flags) == sorted(flags, reverse=True)  # the first cases first


def test_prepared_images_are_used_where_they_hold_the_whole_frame(
    world: World, data: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS

    cases = DATASETS.load("coco")(data.root).cases()
    cache = tmp_path / "cache"
    for geometry in (Geometry("squash", 32, 32, "bicubic"), Geometry("squash", 256, 256, "bilinear")):
        with PreparedStore.open(cache, "coco", cases, geometry) as store:
            for number in range(len(cases)):
                if cases[number].image.is_file():
                    store.load(number)
    document = json.loads((world.out / "run.json").read_text())
    document["config"]["cache"] = str(cache)
    store_run(world.out, document)
    monkeypatch.setattr(assembly, "_native", lambda *_: {})
    plain = built(world)
    monkeypatch.setattr(small_pictures, "direct_source", lambda geometry: lambda case: pytest.fail("decoded again"))
    gallery = built(world)
    assert len(gallery.images) == len(plain.images) and gallery.notes == ()


def test_small_pictures_are_read_only_where_native_ones_do_not_fit(
    world: World, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = small_pictures._read
    asked: list[int] = []
    monkeypatch.setattr(small_pictures, "_read", lambda *told: asked.append(1) or read(*told))
    whole = built(world)
    assert all(whole.native) and not asked
    size = len(json.dumps(gallery_payload(whole)))
    with monkeypatch.context() as patch:
        patch.setattr(assembly, "picture_size", lambda image: size)
        assert built(world, budget=size).images and asked
    asked.clear()
    case = whole.cases[0]
    (data.root / "images" / f"{case.case_id}.png").write_bytes(b"no image")
    left = built(world)
    assert asked and left.cases[0].image is None and all(left.native)


def test_the_budget_bounds_the_gallery(world: World) -> None:
    whole = len(json.dumps(gallery_payload(built(world))))
    for budget in (whole, whole // 2, whole // 4):
        gallery = built(world, budget=budget)
        assert len(json.dumps(gallery_payload(gallery), separators=(",", ":"))) <= budget + 2000
        assert all(overlay.case < len(gallery.cases) for overlay in gallery.overlays)
    assert len(built(world, most=2).cases) == 4


def test_a_dataset_that_is_gone_loses_its_pictures_only(world: World, data: DatasetConfig) -> None:
    shutil.rmtree(data.root)
    gallery = built(world)
    assert gallery.images == () and all(case.image is None for case in gallery.cases) and gallery.overlays
    assert len(gallery.notes) == 1 and str(data.root) in gallery.notes[0]
    configure(world, root=str(data.root), reader="nowhere")
    assert "nowhere" in built(world).notes[0]


def test_code_named_by_a_run_is_not_run(world: World, data: DatasetConfig, tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nclass Reader: pass\n")
    configure(world, root=str(data.root), reader=f"{trap}:Reader")
    shutil.rmtree(world.out / "images")  # which would say where the images are
    gallery = built(world)
    assert not (tmp_path / "sprung").exists() and not gallery.images and "trap.py" in gallery.notes[0]
    # Named by the user instead, it is.
    given_now = DatasetConfig("coco", data.root, "xbench_fast.runtime.data.datasets.formats.coco:Coco")
    assert built(world, datasets={"coco": given_now}).images


def test_unchanged_pictures_are_found_without_annotations(world: World, data: DatasetConfig, tmp_path: Path) -> None:
    """By the hashes in the rows and the index of the run directory, in a folder that was moved too."""
    whole, source = built(world), data.root / "annotations.json"
    said = source.read_text()
    source.write_text("no annotations")
    assert built(world).images == whole.images and built(world).notes == ()
    moved = DatasetConfig("coco", data.root.rename(tmp_path / "moved"), "coco")
    assert built(world, datasets={"coco": moved}).images == whole.images
    case = whole.cases[0].case_id
    (moved.root / "images" / f"{case}.png").rename(moved.root / f"{case}.png")
    left = built(world, datasets={"coco": moved})
    assert not left.images and "images are not available" in left.notes[0]
    (moved.root / "annotations.json").write_text(said)
    assert "1 of" in built(world, datasets={"coco": moved}).notes[0]


def test_a_picture_is_the_one_that_all_models_read(world: World, data: DatasetConfig) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    case, (first,) = built(world).cases[0].case_id, (world.out / "cells").glob("whole-32--*.parquet")
    (data.root / "annotations.json").write_text("no annotations")

    def hashed(content: bytes | None) -> None:
        table = pq.read_table(first)
        ids, hashes = (table[name].to_pylist() for name in ("case_id", "image_hash"))
        changed = [content if each == case else old for each, old in zip(ids, hashes, strict=True)]
        at = table.schema.get_field_index("image_hash")
        field = table.schema.field(at)
        pq.write_table(table.set_column(at, field, pa.array(changed, field.type)), first)

    hashed(None)  # of a case that this model did not read
    assert built(world).images and built(world).notes == ()
    hashed(bytes(range(16)))  # of another file, as it was when this model read it
    left = built(world)
    assert not left.images and "images are not available" in left.notes[0]


@pytest.mark.parametrize("index", ["absent", "damaged", "other", "no path", "numbers", "null", "zero byte"])
def test_without_an_index_the_annotations_say_where_pictures_are(world: World, data: DatasetConfig, index: str) -> None:
    whole, (file,) = built(world), (world.out / "images").iterdir()
    if index == "absent":
        file.unlink()
    elif index == "damaged":
        file.write_bytes(b"PAR1")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(file)
        names = table["path"].to_pylist()
        paths: dict[str, Any] = {
            "other": names[1:] + names[:1],  # another file for each image: its content is compared
            "numbers": [*range(len(names))],
            "null": [None] * len(names),
            "zero byte": [f"{name}\0" for name in names],
        }
        table = table.drop_columns(["path"])
        pq.write_table(table.append_column("path", pa.array(paths[index])) if index in paths else table, file)
    assert built(world).images == whole.images and built(world).notes == ()
    (data.root / "annotations.json").write_text("no annotations")
    assert not built(world).images


def test_a_picture_that_is_gone_is_counted(world: World, data: DatasetConfig) -> None:
    case = built(world).cases[0]
    (data.root / "images" / f"{case.case_id}.png").unlink()
    notes = built(world).notes
    assert "1 of" in notes[0] and "changed after the evaluation" in notes[1]


def test_pictures_that_are_not_those_of_the_evaluation_are_named(world: World, data: DatasetConfig) -> None:
    import pyarrow.parquet as pq

    assert built(world).notes == ()
    source = data.root / "annotations.json"
    source.write_text(source.read_text() + " ")
    assert built(world).notes == ()  # every picture is still the one that was read
    for path in (world.out / "cells").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["image_hash"]), path)
    assert "changed after the evaluation" in built(world).notes[0]


def test_another_picture_of_a_case_is_named(world: World, data: DatasetConfig) -> None:
    first, other = (data.root / "images" / f"{case.case_id}.png" for case in built(world).cases[:2])
    first.write_bytes(other.read_bytes())
    assert "changed after the evaluation" in built(world).notes[0]


def test_a_run_from_before_maps_were_kept_says_so(world: World) -> None:
    import pyarrow.parquet as pq

    for path in (world.out / "cells").glob("*.parquet"):
        table = pq.read_table(path).drop_columns(["saliency", "region", "frame"])
        pq.write_table(table, path)
    gallery, reason = build(world)
    assert gallery is None and "kept no maps" in reason and "eval" in reason


def test_a_run_without_models_says_so(tmp_path: Path, data: DatasetConfig) -> None:
    world = World(tmp_path)
    world.run([], [data], baselines=["baseline:chance"])
    assert build(world) == (None, "The run has no finished model with a region to show.")


def test_the_report_s_protocol_is_the_gallery_s(world: World) -> None:
    """Counts of another sweep than the evaluation's, with the arithmetic that the viewer needs to draw them."""
    from xbench_fast.metrics_gpu.sweep.sweep import sweep

    gallery = built(world, Choices(protocol="medklip", replicates=0))
    overlay = gallery.overlays[-1]
    case = gallery.cases[overlay.case]
    row = stored(world, f"{overlay.model}--coco")[case.case_id, case.finding]
    mask = np.frombuffer(row["region"], np.uint8).reshape(1, 224, 28)
    counts = sweep(
        np.array(row["saliency"], np.float32).reshape(1, 4, 4), mask, frames=np.array([row["frame"]]),
        sweeping=Sweeping(upsample="nearest", normalise="none", comparison=">", tau_scale=0.016),
    )  # fmt: skip
    assert overlay.area.tolist() == counts.area[0].tolist() != row["area"]
    how = gallery_payload(gallery)["arithmetic"]["medklip"]
    assert (how["upsample"], how["normalise"], how["scale"]) == ("nearest", "none", 0.016)
    sent = np.frombuffer(base64.b64decode(how["thresholds"]), "<f4")
    np.testing.assert_array_equal(sent, Sweeping(comparison=">", tau_scale=0.016).thresholds)
