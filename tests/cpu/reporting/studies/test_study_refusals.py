"""What studies leave out or refuse: maps that were not kept, variants of other protocols or of unknown size."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from stored_counts import CLASSES, add_cell, random_rows
from study_world import answer, study
from synthetic import make_dataset
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.evaluation.reference.map_files import MapFolder
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.studies import calibration_study
from xbench_fast.runtime.results.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("empty_drawings")

RNG = np.random.default_rng(7)
INGREDIENTS = {"engine": "numpy fp32", "decoder": "cpu 1", "limit": None}


def own_maps(folder: Path, data: Path, *sizes: tuple[int, int]) -> MapFolder:
    """A map for each region, the sizes in turn."""
    wanted = [(case.case_id, name) for case in Coco(data).cases() for name in case.regions]
    for place, (case, name) in enumerate(wanted):
        path = folder / case / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, RNG.random(sizes[place % len(sizes)], np.float32))
    return MapFolder(folder)


@pytest.mark.parametrize("sizes", [((70, 60),), ((9, 9), (5, 7))])
def test_own_maps_that_were_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sizes: tuple[tuple[int, int], ...]
) -> None:
    data, world = make_dataset(tmp_path / "data", 16), World(tmp_path)
    config = DatasetConfig("coco", data, "coco")
    small = own_maps(tmp_path / "small", data, (6, 6))
    world.run([], [config], files=[own_maps(tmp_path / "mine", data, *sizes), small])
    why = "its maps are larger than 64 x 64 or of several sizes, so the run did not keep them."
    said = study(capsys, "failures", world.out, "--replicates", 40)
    assert f"No overlays of maps:mine on coco: {why}" in said
    cases = answer(world.out, "failures")["cases"]
    drawn = {row["model"]: row["overlay"] is not None for row in cases}
    assert drawn == {"maps:mine": False, "maps:small": True}
    said = study(capsys, "calibration", world.out, "--replicates", 40)
    assert f"No quantile normalisation of maps:mine on coco: {why}" in said


def run_of(path: Path, *cells: tuple[str, dict[str, object]], seed: int = 1) -> Path:
    with RunDirectory(path) as made:
        made.begin({})
        for model, details in cells:
            add_cell(made, model, "one", random_rows(seed), **{"model_family": "kad", **details})
    return path


@pytest.mark.parametrize("name", ["prompts", "resolution", "mechanisms"])
def test_variants_of_different_protocols_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their threshold 0.5 is another thing, and so are all differences."""
    one = run_of(tmp_path / "a", ("kad", {}))
    two = run_of(tmp_path / "b", ("kad", {"protocol": "medklip", "grid": [8, 8]}))
    said = study(capsys, name, one, two, "--replicates", 40, code=1)
    assert "was evaluated by protocol 'default'" in said and "by 'medklip'" in said
    assert "their numbers cannot be compared; evaluate both with the same --protocol" in said
    assert not (one / "studies").exists()
    three = run_of(tmp_path / "c", ("kad", {"protocol": "medklip", "grid": [4, 4], "saliency_map": "patch-text"}))
    study(capsys, name, two, three, "--replicates", 40)


def test_a_variant_of_unknown_size_is_no_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(
        tmp_path / "run",
        ("fine", {"grid": [8, 8]}),
        ("coarse", {"grid": [4, 4]}),
        ("mixed", {"grid": None, "map_size": None}),
        ("large", {"grid": None, "map_size": [100, 90]}),
    )
    said = study(capsys, "resolution", run, "--replicates", 40)
    assert "kad on The one: mixed is left out, because the size of its maps is not known." in said
    found = answer(run, "resolution")["differences"]
    assert {row["reference"] for row in found} == {"coarse [4 x 4]"}
    assert {row["variant"] for row in found} == {"fine [8 x 8]", "large [100 x 90]"}
    alone = run_of(tmp_path / "alone", ("fine", {"grid": [8, 8]}), ("mixed", {"grid": None}))
    said = study(capsys, "resolution", alone, "--replicates", 40, code=1)
    assert "No model family has two variants on one dataset" in said and "mixed is left out" in said


def test_maps_of_one_model_are_compared_with_the_authors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever was evaluated first; another size is another model, and so is another precision."""
    rows = {name: random_rows(1) for name in ("official", "patch-text")}
    for index, row in enumerate(rows["patch-text"]):
        row.hit = row.hit if row.hit is None else index % 3 == 0
    cells = [
        ("kad-224-patch-text", "patch-text", "a"),
        ("kad-512", "official", "a"),
        ("kad-224", "official", "a"),
        ("clip-224-value-value-fp16", "value-value", "b"),
        ("clip-224-fp16", "official", "c"),
        ("mine-official", "official", "a"),
        ("mine", "official", "a"),
    ]
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        for model, name, prompts in cells:
            drawn = rows["patch-text" if name == "patch-text" else "official"]
            facts: dict[str, Any] = {"saliency_map": name, "ingredients": {**INGREDIENTS, "prompt_set": prompts}}
            add_cell(made, model, "one", drawn, **facts)
    said = study(capsys, "mechanisms", tmp_path / "run", "--replicates", 40)
    for model in ("kad-512", "mine-official"):
        assert f"{model} on The one has no second variant" in said
    assert "clip-224-fp16 on The one: some variants have other prompts or weights" in said
    assert "kad-224 on The one: some variants have other prompts" not in said
    differences = answer(tmp_path / "run", "mechanisms")["differences"]
    assert {row["model"] for row in differences} == {"kad-224", "clip-224-fp16"}
    found = [row for row in differences if row["model"] == "kad-224"]
    assert {(row["reference"], row["variant"]) for row in found} == {
        ("kad-224 [official]", "kad-224-patch-text [patch-text]")
    }
    means = {}
    for name, drawn in rows.items():
        hits = [[row.hit for row in drawn if row.finding == finding and row.region_area] for finding in CLASSES[:2]]
        means[name] = np.mean([np.mean(own) for own in hits])
    (row,) = (row for row in found if (row["class"], row["measure"]) == ("mean", "pointing"))
    assert row["difference"] == pytest.approx(means["patch-text"] - means["official"])
    assert {row["difference"] for row in found if row["measure"] == "auc"} == {0}
    twice = [run_of(tmp_path / name, ("kad", {})) for name in ("first", "again")]
    assert "No model has two saliency maps on one dataset" in study(capsys, "mechanisms", *twice, code=1)


def test_the_size_of_own_maps_is_noted_whether_they_are_kept_or_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of one name in two runs is one family; the larger maps are not kept, and are the finer variant."""
    data = make_dataset(tmp_path / "data", 16)
    outs = []
    for name, size in (("large", (100, 100)), ("small", (6, 6))):
        (tmp_path / name).mkdir()
        world = World(tmp_path / name)
        maps = own_maps(tmp_path / name / "mine", data, size)
        world.run([], [DatasetConfig("coco", data, "coco")], files=[maps])
        entry = world.entry("maps:mine--coco")
        assert entry["map_size"] == list(size) and entry["grid"] == ([6, 6] if name == "small" else None)
        outs.append(world.out.rename(tmp_path / f"run-{name}"))
    study(capsys, "resolution", *outs, "--replicates", 40)
    found = answer(outs[0], "resolution")["differences"]
    assert {(row["reference"], row["variant"]) for row in found} == {("run-small [6 x 6]", "run-large [100 x 100]")}


def test_pairs_without_a_stored_map_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of rows from elsewhere may hold counts of pairs and no map of them."""
    kept = SimpleNamespace(case_id=("a", "b"), finding=["Mass", "Mass"])
    monkeypatch.setattr(calibration_study, "kept_maps", lambda *_: (kept, None))
    cell: Any = SimpleNamespace(
        rows=SimpleNamespace(protocol="default"),
        classes=("Mass", "Edema"),
        class_of=[0, 1, 0],
        case_ids=["a", "b", "c"],
    )
    run: Any = None
    with pytest.raises(RunError, match="the run keeps no map of 2 of its 3 pairs, such as Edema on b"):
        calibration_study.quantile_pairs(cell, run)
