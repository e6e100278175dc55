"""`--protocol medklip` and `mavl` equalise the histogram of RSNA images, and such results never mix with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World, same
from numpy.typing import NDArray
from synthetic import SIZE, equalised_input, make_bundle, make_dataset, make_rsna, model, prompt_set
from xbench_fast.engines.errors import RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.metrics_gpu.grounding.protocols import PROTOCOLS, protocol
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.datasets.rsna import Rsna
from xbench_fast.runtime.data.images.decoders import Decoder
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.selected_pairs import scored_pairs

PLAIN = Geometry("squash", SIZE, SIZE, "bilinear")
EQUALISED = Geometry("squash", SIZE, SIZE, "bilinear", "equalised")
CELL = "blocks-32--rsna"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("rsna", make_rsna(tmp_path / "data"), "rsna")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "models" / "blocks-32", sets=("rsna",), findings=("pneumonia", "Mass")).path


def logits(table: Any) -> list[float]:
    found: list[float] = table["logit"].to_pylist()
    return found


def prepared(cache: Path, data: DatasetConfig, geometry: Geometry) -> list[NDArray[np.uint8] | None]:
    cases = Rsna(data.root).cases()
    with PreparedStore.open(cache, data.name, cases, geometry) as store:
        return [store.get(number) for number in range(len(cases))]


@pytest.mark.parametrize("name", ["medklip", "mavl"])
def test_the_model_reads_what_the_authors_loader_gives(
    world: World, data: DatasetConfig, bundle: Path, name: str
) -> None:
    world.run([bundle], [data], sweep=sweep, protocol=name)
    pixels = np.stack([equalised_input(case.image) for case in Rsna(data.root).cases()])[:, None]
    wanted = model(pixels, prompt_set().features[:1])[0][:, 0]
    assert logits(world.table(CELL)) == wanted.tolist()
    assert world.entry(CELL)["ingredients"]["intensity"] == "equalised"


def test_prepared_pixels_of_two_protocols_never_mix(
    world: World, data: DatasetConfig, bundle: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    world.run([bundle], [data], cache=cache, sweep=sweep)
    default = world.table(CELL)
    assert "intensity" not in world.entry(CELL)["ingredients"]
    assert world.run([bundle], [data], cache=cache, sweep=sweep, protocol="medklip").computed == 1
    told = "computed again, because this changed: intensity, sweep (protocol medklip instead of default)"
    assert any(told in line for line in world.lines)
    assert not set(logits(world.table(CELL))) & set(logits(default))
    # A second run reads the cache, and so does one of the first protocol.
    equalised = world.table(CELL)
    for name, wanted in (("medklip", equalised), ("default", default)):
        (world.out / world.entry(CELL)["file"]).unlink()
        world.run([bundle], [data], cache=cache, sweep=sweep, protocol=name)
        assert same(world.table(CELL), wanted)
    assert len(list(cache.glob("*-squash-*"))) == 2 and len(list(cache.glob("*-masks-*"))) == 1
    cases = Rsna(data.root).cases()
    for case, plain, changed in zip(cases, prepared(cache, data, PLAIN), prepared(cache, data, EQUALISED), strict=True):
        assert plain is not None and changed is not None
        np.testing.assert_array_equal(changed, equalised_input(case.image))
        assert not np.array_equal(plain, changed)


def test_other_protocols_and_other_datasets_keep_their_pixels(
    world: World, data: DatasetConfig, bundle: Path, tmp_path: Path
) -> None:
    assert {name: protocol(name).equalises for name in PROTOCOLS} == {
        "default": (), "paper": (), "chexlocalize": (), "medklip": ("rsna",), "mavl": ("rsna",), "biovil": ()
    }  # fmt: skip
    coco = DatasetConfig("coco", make_dataset(tmp_path / "coco", 6), "coco")
    plain = make_bundle(tmp_path / "plain-32").path
    world.run([plain], [coco], sweep=sweep)
    before = world.table("plain-32--coco")
    world.run([plain], [coco], sweep=sweep, protocol="medklip")
    assert "intensity" not in world.entry("plain-32--coco")["ingredients"]
    assert logits(world.table("plain-32--coco")) == logits(before)


def test_a_decoder_on_the_gpu_leaves_these_images_to_the_exact_one(
    world: World, data: DatasetConfig, bundle: Path
) -> None:
    world.run([bundle], [data], sweep=sweep, protocol="medklip", decoder=Decoder("dali"))
    assert world.entry(CELL)["state"] == "done"
    assert world.entry(CELL)["ingredients"]["decoder"].startswith("cpu ")


def test_maps_of_other_images_are_not_counted_as_that_protocol(world: World, data: DatasetConfig, bundle: Path) -> None:
    for evaluated, wanted, words in (
        ("default", "medklip", "equalises the histogram of these images, and they were not equalised"),
        ("medklip", "default", "does not equalise the histogram of these images, and they were equalised"),
    ):
        world.run([bundle], [data], sweep=sweep, protocol=evaluated)
        results = make_report(world.out, Choices(protocol=wanted, replicates=0)).results
        run = load_run(world.out)
        assert words in results.left_out["blocks-32", "rsna"]
        assert f"evaluate again with --protocol {wanted}" in results.left_out["blocks-32", "rsna"]
        with pytest.raises(RunError, match="blocks-32 on rsna has no numbers"):
            scored_pairs(run, run.cell("blocks-32", "rsna"), Choices(protocol=wanted))
        assert scored_pairs(run, run.cell("blocks-32", "rsna"), Choices()).protocol.name == evaluated


def test_a_result_of_medklip_without_equalisation_is_computed_again(
    world: World, data: DatasetConfig, bundle: Path
) -> None:
    """A run directory of an earlier version: its entry has no intensity."""
    world.run([bundle], [data], sweep=sweep)
    run = load_run(world.out)
    run.data["cells"][CELL]["protocol"] = "medklip"
    with pytest.raises(RunError, match="evaluate again with --protocol medklip"):
        scored_pairs(run, run.cell("blocks-32", "rsna"), Choices())


def test_baselines_read_no_image(world: World, data: DatasetConfig) -> None:
    world.run([], [data], baselines=["baseline:ones"], sweep=sweep)
    run = load_run(world.out)
    cell = run.cell("baseline:ones", "rsna")
    assert len(scored_pairs(run, cell, Choices(protocol="medklip")).counts) == 3


def test_prepare_for_a_protocol(
    data: DatasetConfig, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["prepare", "--bundles", str(bundle.parent), "--data", f"rsna={data.root}", "--cache", "kept"]

    def ran(*more: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([*line, *more])
        return int(str(caught.value.code)), *capsys.readouterr()

    status, out, _ = ran("--protocol", "mavl")
    assert status == 0 and "squash-32-32-bilinear-equalised: 6 images: 6 decoded" in out
    status, _, err = ran("--protocol", "maul")
    assert status == 2 and "Unknown protocol 'maul'" in err and "mavl" in err
    (tmp_path / "xbench.toml").write_text("[eval]\nprotocol = 'medklip'\n")
    status, out, _ = ran()
    assert status == 0 and "6 images: 0 decoded, 6 ready before" in out
    status, out, _ = ran("--protocol", "default")
    assert status == 0 and "squash-32-32-bilinear: 6 images: 6 decoded" in out
    pixels = prepared(tmp_path / "kept", data, EQUALISED)
    np.testing.assert_array_equal(pixels[0], equalised_input(Rsna(data.root).cases()[0].image))
