"""A model that is called instead of exported: the rows of a bundle, refusals, and when a result is reused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World, same
from synthetic import SIZE, equalised_input, make_bundle, make_dataset, make_rsna, model, prompt_set, reference_sweep
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.evaluation.cell_options import Options
from xbench_fast.runtime.evaluation.cell_sources import source_opener
from xbench_fast.runtime.evaluation.live_model import LiveModel
from xbench_fast.runtime.evaluation.progress import PlainProgress
from xbench_fast.runtime.evaluation.runner import LoopParts, Runner
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_outcome import RunOutcome

GEOMETRY = Geometry("squash", SIZE, SIZE, "bilinear")
TEXT = prompt_set().features
Scores = tuple[Any, Any]


def blocks(pixels: Any, findings: list[str]) -> Scores:
    """The model of the tests, asked for the findings by name."""
    rows = [prompt_set().findings.index(name) for name in findings]
    return model(pixels, TEXT[rows])


class LiveWorld(World):
    """As `World`, for one live model on a dataset."""

    def live(self, live: LiveModel, data: DatasetConfig, protocol: str = "default") -> RunOutcome:
        self.lines.clear()
        with RunDirectory(self.out) as run:
            run.begin({})
            runner = Runner(
                run,
                Options(batch=3, chunk=8, threads=2, protocol=protocol),
                PlainProgress(self.lines.append),
                LoopParts(
                    open_engine=self.open,
                    open_source=source_opener(None, self.lines.append),
                    sweep=reference_sweep if protocol == "default" else sweep,
                ),
            )
            return runner.evaluate_live(live, [data])


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data", 20, missing=(4,)), "coco")


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def test_rows_equal_those_of_a_bundle(tmp_path: Path, world: LiveWorld, data: DatasetConfig) -> None:
    world.run([make_bundle(tmp_path / "blocks-32").path], [data])
    assert world.live(LiveModel(blocks, GEOMETRY, "student"), data).computed == 1
    assert same(world.table().drop_columns("model"), world.table("student--coco").drop_columns("model"))
    entry = world.entry("student--coco")
    assert (entry["weights"], entry["grid"], entry["version"]) == ("live", [4, 4], None)


class Tensor:
    """As much of a PyTorch tensor as is used, on a device and in half precision."""

    def __init__(self, array: Any, place: str = "cuda, grad, bfloat16") -> None:
        self.array, self.place = array, place

    def detach(self) -> Tensor:
        return Tensor(self.array, self.place.replace(", grad", ""))

    def cpu(self) -> Tensor:
        return Tensor(self.array, self.place.replace("cuda", "cpu"))

    def is_floating_point(self) -> bool:
        return True

    def float(self) -> Tensor:
        return Tensor(self.array, self.place.replace("bfloat16", "float32"))

    def numpy(self) -> Any:
        assert self.place == "cpu, float32"
        return self.array


def test_tensors_are_fetched_from_their_device(world: LiveWorld, data: DatasetConfig) -> None:
    def on_device(pixels: Any, findings: list[str]) -> Scores:
        logits, saliency = blocks(pixels, findings)
        return Tensor(logits), Tensor(saliency)

    def doubles(pixels: Any, findings: list[str]) -> Scores:
        logits, saliency = blocks(pixels, findings)
        return logits.astype(np.float64), saliency.astype(np.float64)

    world.live(LiveModel(blocks, GEOMETRY, "one"), data)
    world.live(LiveModel(on_device, GEOMETRY, "two"), data)
    world.live(LiveModel(doubles, GEOMETRY, "three"), data)
    first = world.table("one--coco").drop_columns("model")
    assert same(first, world.table("two--coco").drop_columns("model"))
    assert same(first, world.table("three--coco").drop_columns("model"))


def test_only_a_named_version_is_reused(world: LiveWorld, data: DatasetConfig) -> None:
    def files() -> list[str]:
        return sorted(path.name for path in (world.out / "cells").iterdir())

    unnamed = LiveModel(blocks, GEOMETRY, "student")
    assert world.live(unnamed, data).computed == 1
    before = files()
    assert world.live(unnamed, data).computed == 1
    assert len(files()) == 1 and files() != before  # what can never be reused is not kept either
    named = LiveModel(blocks, GEOMETRY, "student", "epoch-3")
    assert world.live(named, data).computed == 1
    assert world.live(named, data).reused == 1
    assert world.live(LiveModel(blocks, GEOMETRY, "student", "epoch-4"), data).computed == 1
    assert world.live(named, data).reused == 1  # both are kept
    assert (
        world.live(LiveModel(blocks, Geometry("crop", SIZE, SIZE, "bilinear"), "student", "epoch-3"), data).computed
        == 1
    )


def nothing(count: int, *, grid: tuple[int, ...] = (4, 4), kind: Any = np.float32) -> Scores:
    return np.zeros((count, 2), kind), np.zeros((count, 2, *grid), kind)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda p, f: None, "student returned NoneType; it must return two arrays, logits and saliency."),
        (lambda p, f: (1, 2, 3), "student returned tuple of 3; it must return two arrays, logits and saliency."),
        (lambda p, f: ([[0.0, 0.0]], nothing(1)[1]), "student returned logits as list of 1; return a NumPy array or"),
        (lambda p, f: nothing(1, kind=np.int64), "student returned logits of int64; return floating-point numbers."),
        (lambda p, f: nothing(3), "returned logits [3, 2] and saliency [3, 2, 4, 4] for 1 image and 2 findings; they"),
        (
            lambda p, f: nothing(1, grid=(16,)),
            "saliency [1, 2, 16] for 1 image and 2 findings; they must be [1, 2]",
        ),
        (lambda p, f: (nothing(1)[0] + np.nan, nothing(1)[1]), "(image 0 of the batch, 'Mass'); check its weights."),
        (lambda p, f: nothing(len(p), grid=(len(p), 4)), "saliency of [3, 4] cells, and of [1, 4] before; its grid"),
    ],
)
def test_what_does_not_fit_is_one_sentence(world: LiveWorld, data: DatasetConfig, function: Any, sentence: str) -> None:
    outcome = world.live(LiveModel(function, GEOMETRY, "student"), data)
    assert len(outcome.failed) == 1 and sentence in outcome.failed[0][2], outcome.failed
    assert not (world.out / "errors").exists()


def test_an_exception_of_the_callable_is_named_and_kept(world: LiveWorld, data: DatasetConfig) -> None:
    def broken(pixels: Any, findings: list[str]) -> Scores:
        raise RuntimeError("CUDA out of memory")

    (_, _, reason), *_ = world.live(LiveModel(broken, GEOMETRY, "student"), data).failed
    assert reason.startswith("unexpected RuntimeError: CUDA out of memory (details in ")
    assert "in broken" in (world.out / "errors" / "student--coco.txt").read_text()


def test_a_callable_may_keep_the_pixels_that_it_gets(tmp_path: Path, world: LiveWorld) -> None:
    kept = list[tuple[Any, Any]]()

    def keep(pixels: Any, findings: list[str]) -> Scores:
        kept.append((pixels, pixels.copy()))
        return blocks(pixels, findings)

    large = DatasetConfig("coco", make_dataset(tmp_path / "large", 60), "coco")
    world.live(LiveModel(keep, GEOMETRY, "student"), large)
    assert len(kept) > 20
    for pixels, copied in kept:
        np.testing.assert_array_equal(pixels, copied)


def test_what_is_no_live_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="a callable, and int is none"):
        LiveModel(3, GEOMETRY, "student")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cannot be called 'baseline:mine'"):
        LiveModel(blocks, GEOMETRY, "baseline:mine")


def test_a_protocol_that_equalises_images_does_so_for_a_live_model(world: LiveWorld, tmp_path: Path) -> None:
    seen: set[bytes] = set()

    def look(pixels: Any, findings: list[str]) -> Scores:
        seen.update(image.tobytes() for image in pixels)
        return model(pixels, TEXT[: len(findings)])

    data = DatasetConfig("rsna", make_rsna(tmp_path / "rsna"), "rsna")
    world.live(LiveModel(look, GEOMETRY, "mine", "1"), data, protocol="medklip")
    folder = data.root / "stage_2_train_images"
    assert {equalised_input(path).tobytes() for path in folder.iterdir()} <= seen
    assert world.entry("mine--rsna")["ingredients"]["geometry"] == f"{GEOMETRY.key}-equalised"
    # Back to the default: other pixels, another result.
    before = len(seen)
    world.live(LiveModel(look, GEOMETRY, "mine", "1"), data)
    assert len(seen) == before + 6 and "intensity" not in world.entry("mine--rsna")["ingredients"]
