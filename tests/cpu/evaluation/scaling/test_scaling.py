"""The driver and its workers, without a cluster: they are objects of this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import synthetic
from evaluation_world import World, same
from scaling_world import ClusterWorld, InProcess, Watched, plan_for
from synthetic import BlockEngine, make_bundle, make_dataset, make_rsna
from xbench_fast.engines.base import EngineOptions, Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError, RunError
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.evaluation.scaling import driver, worker
from xbench_fast.runtime.evaluation.scaling.jobs import ChunkJob, Part, WorkPlan, everywhere
from xbench_fast.runtime.evaluation.scaling.worker import ChunkWorker, describe
from xbench_fast.runtime.host.config import DatasetConfig

ENGINE = f"{__file__}:WorkerEngine"
CELLS = ("blocks-32--coco", "several-32--coco", "blocks-32--more", "baseline:center--coco")


class WorkerEngine(BlockEngine):
    """The engine of `synthetic`, opened by name as a worker does."""

    def __init__(self, bundle: Bundle, *, threads: int | None = None, options: EngineOptions | None = None) -> None:
        super().__init__(bundle, threads=threads)


class Inputs:
    def __init__(self, folder: Path) -> None:
        make_bundle(folder / "models" / "blocks-32")
        make_bundle(folder / "models" / "several-32", several=True)
        self.bundles = [folder / "models" / name for name in ("blocks-32", "several-32")]
        self.root = make_dataset(folder / "data", 21, missing=(5, 17))
        make_dataset(folder / "more", 9, seed=3)
        self.datasets = [
            DatasetConfig("coco", self.root, "coco"),
            DatasetConfig("more", folder / "more", "coco", prompts="coco"),
        ]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def local(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("local"))
    outcome = world.run(inputs.bundles, inputs.datasets, baselines=["baseline:center"], sweep=sweep, chunk=4)
    assert outcome.computed == 6
    return world


def on_workers(world: ClusterWorld, inputs: Inputs, backend: Any = None, **more: Any) -> Any:
    return world.on_workers(backend or InProcess(), inputs.bundles, inputs.datasets, engine=ENGINE, chunk=4, **more)


def check(world: World, local: World) -> None:
    for name in CELLS:
        assert same(world.table(name), local.table(name))
        ours, theirs = world.entry(name), local.entry(name)
        for entry in (ours, theirs):
            del entry["updated"], entry["seconds"], entry["computed"]
            threads = entry.pop("threads", [1])  # those of whoever computed the parts; a baseline has none
            assert threads == sorted(set(threads)) and min(threads) >= 1
        assert ours == theirs


def test_workers_fill_smaller_batches_up(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a local run does, so that an engine on a GPU meets one shape and the results are the same."""
    given: list[EngineOptions] = []

    def opened(bundle: Bundle, name: str, *, threads: int | None, options: EngineOptions, auto: bool) -> WorkerEngine:
        given.append(options)
        return WorkerEngine(bundle, threads=threads)

    monkeypatch.setattr(worker, "open_engine", opened)
    assert not describe(plan_for(inputs.bundles, inputs.datasets, engine=ENGINE)).error
    assert [(options.pad, options.max_batch) for options in given] == [(True, 3)] * 2


@pytest.mark.parametrize("auto", [False, True])
def test_what_engines_say_on_workers_is_said_once(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auto: bool
) -> None:
    """Also while chunks are computed; and the next engine is taken on workers only where the user named none."""

    class Talking(WorkerEngine):
        def _run(self, pixels: Any, text: Any) -> Any:
            self.options.say(f"{self.bundle.name}: batches are halved")
            return super()._run(pixels, text)

    def opened(bundle: Bundle, name: str, *, threads: int | None, options: EngineOptions, auto: bool) -> WorkerEngine:
        options.say(f"{bundle.name}: another engine, auto {auto}")
        engine = Talking(bundle, threads=threads)
        engine.options = options
        return engine

    monkeypatch.setattr(worker, "open_engine", opened)
    world = ClusterWorld(tmp_path)
    assert on_workers(world, inputs, auto=auto).failed == []
    for name in ("blocks-32", "several-32"):
        assert world.lines.count(f"{name}: another engine, auto {auto}") == 1
        assert world.lines.count(f"{name}: batches are halved") == 1


def test_workers_leave_what_a_local_run_leaves(inputs: Inputs, local: World, tmp_path: Path) -> None:
    world, backend = ClusterWorld(tmp_path), InProcess()
    outcome = on_workers(world, inputs, backend)
    assert (outcome.computed, outcome.failed) == (6, [])
    check(world, local)
    assert len(backend.jobs) == 2 * (6 + 3) and not list(world.out.glob("cells/*.parts"))
    backend.jobs.clear()
    assert on_workers(world, inputs, backend).reused == 6 and not backend.jobs
    # and the same directory serves a run without workers
    assert world.run(inputs.bundles, inputs.datasets, sweep=sweep, chunk=4).reused == 4


def test_workers_equalise_where_the_protocol_does(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks-32", sets=("rsna",), findings=("pneumonia", "Mass")).path
    data = [DatasetConfig("rsna", make_rsna(tmp_path / "data"), "rsna")]
    local, world = World(tmp_path / "local"), ClusterWorld(tmp_path / "cluster")
    local.run([bundle], data, sweep=sweep, protocol="medklip", chunk=4)
    world.on_workers(InProcess(), [bundle], data, engine=ENGINE, chunk=4, protocol="medklip")
    assert same(world.table("blocks-32--rsna"), local.table("blocks-32--rsna"))
    assert world.entry("blocks-32--rsna")["ingredients"] == local.entry("blocks-32--rsna")["ingredients"]


def test_what_came_back_is_not_computed_again(inputs: Inputs, local: World, tmp_path: Path) -> None:
    def stop(number: int, part: Part) -> None:
        if number == 7:
            raise KeyboardInterrupt

    world, backend = ClusterWorld(tmp_path), InProcess()
    with pytest.raises(KeyboardInterrupt):
        on_workers(world, inputs, Watched(backend, stop))
    states = [world.entry(name)["state"] for name in CELLS]
    assert "interrupted" in states and "running" not in states
    assert on_workers(world, inputs, backend).failed == []
    assert len(backend.jobs) == 18 - 7
    check(world, local)


def test_a_local_run_goes_on_from_parts_of_workers_and_the_other_way(
    inputs: Inputs, local: World, tmp_path: Path
) -> None:
    world = ClusterWorld(tmp_path)
    world.interrupt = (3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        world.run(inputs.bundles[:1], inputs.datasets, sweep=sweep, chunk=4)
    parts = len(list(world.out.glob("cells/*.parts/0*.parquet")))
    assert parts
    backend = InProcess()
    assert on_workers(world, inputs, backend).failed == []
    assert len(backend.jobs) == 18 - parts
    check(world, local)


def test_one_bad_cell_does_not_stop_the_others(inputs: Inputs, tmp_path: Path) -> None:
    def other(plan: WorkPlan) -> WorkPlan:
        return replace(plan, datasets={**plan.datasets, "coco": replace(plan.datasets["coco"], root=tmp_path / "no")})

    world = ClusterWorld(tmp_path)
    outcome = on_workers(world, inputs, elsewhere=other)
    assert outcome.computed == 4
    assert [(model, dataset) for model, dataset, _ in outcome.failed] == [("several-32", "coco"), ("blocks-32", "coco")]
    for _, _, reason in outcome.failed:
        assert "On a worker: The folder" in reason and "does not exist" in reason and "same paths" in reason


def job_of(inputs: Inputs, tmp_path: Path) -> tuple[WorkPlan, ChunkJob]:
    backend = InProcess()
    on_workers(ClusterWorld(tmp_path), inputs, backend)
    return plan_for(inputs.bundles, inputs.datasets, engine=ENGINE, chunk=4), backend.jobs[0]


def test_a_worker_that_sees_or_runs_something_else_refuses(inputs: Inputs, tmp_path: Path) -> None:
    plan, job = job_of(inputs, tmp_path)
    worker = ChunkWorker(plan)
    assert worker(0, job)[0].error == ""
    for change, sentence in (
        ({"annotations": "other"}, "reads other annotations of 'coco'"),
        ({"cases": "other"}, "sees other images"),
        ({"bundle": "other"}, "sees another bundle"),
        ({"engine": "tensorrt fp16"}, "name the engine with --engine"),
        ({"decoder": "other"}, "decodes images with cpu"),
    ):
        (part,) = ChunkWorker(plan)(0, replace(job, **change))
        assert sentence in part.error and part.content == b"" and part.trace == ""
    worker.close()


def test_images_that_changed_on_the_worker_are_seen(inputs: Inputs, tmp_path: Path) -> None:
    plan, job = job_of(inputs, tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(inputs.root, copy)
    moved = replace(plan, datasets={**plan.datasets, "coco": replace(plan.datasets["coco"], root=copy)})
    assert ChunkWorker(moved)(0, job)[0].error == ""  # a copy, of another age
    image = copy / "images" / "case0001.png"
    image.write_bytes(image.read_bytes() + b"\0")
    assert "sees other images" in ChunkWorker(moved)(0, job)[0].error


def test_a_fault_of_the_program_is_one_line_and_a_file(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError("once")

    monkeypatch.setattr(WorkerEngine, "_run", fail)
    monkeypatch.setattr("xbench_fast.engines.select.ENGINES.load", lambda name: WorkerEngine)
    world = ClusterWorld(tmp_path)
    outcome = on_workers(world, inputs)
    assert len(outcome.failed) == 4 and outcome.computed == 2
    assert "unexpected ZeroDivisionError: once" in outcome.failed[0][2] and "\n" not in outcome.failed[0][2]
    text = next((world.out / "errors").glob("*.txt")).read_text()
    assert "On the worker:" in text and "in fail" in text


def test_a_cluster_that_gives_up_keeps_what_came_back(inputs: Inputs, local: World, tmp_path: Path) -> None:
    class Ending(InProcess):
        def compute(self, plan: WorkPlan, jobs: Sequence[ChunkJob]) -> Iterator[Part]:
            for number, part in enumerate(super().compute(plan, jobs)):
                if number == 5:
                    raise EngineError("The cluster gave up.")
                yield part

    world, backend = ClusterWorld(tmp_path), InProcess()
    outcome = on_workers(world, inputs, Ending())
    assert {reason for _, _, reason in outcome.failed} == {"The cluster gave up."}
    assert on_workers(world, inputs, backend).failed == []
    assert len(backend.jobs) == 18 - 5
    check(world, local)


def test_a_disk_that_refuses_ends_the_run(inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise RunError("The disk is full.")

    monkeypatch.setattr("xbench_fast.runtime.results.storage.CellFiles.take_part", refuse)
    world = ClusterWorld(tmp_path)
    with pytest.raises(RunError, match="disk is full"):
        on_workers(world, inputs)
    assert world.entry("blocks-32--coco")["state"] == "interrupted"


def test_what_workers_run_with(inputs: Inputs) -> None:
    plan = plan_for(inputs.bundles, inputs.datasets, engine=ENGINE)
    found = describe(plan)
    assert found.infos is not None and set(found.infos) == {"blocks-32", "several-32"}
    assert found.infos["blocks-32"].backend == "numpy"  # type: ignore[union-attr]
    assert "not another" in describe(replace(plan, code="another")).error
    lost = describe(replace(plan, bundles={"blocks-32": Path("nowhere")}))
    assert lost.infos is not None and "On a worker" in str(lost.infos["blocks-32"])


def test_paths_mean_the_same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    moved = everywhere(DatasetConfig("mine", Path("data"), "readers/mine.py:Mine"))
    assert moved.root == tmp_path / "data" and moved.reader == f"{tmp_path}/readers/mine.py:Mine"
    assert everywhere(DatasetConfig("mine", Path("data"), "package.module:Mine")).reader == "package.module:Mine"


class CountingEngine(WorkerEngine):
    """Takes the graph apart; a text whose first feature is `refused` has a score that is not finite."""

    encoded: ClassVar[list[int]] = []
    refused: ClassVar[float | None] = None

    def _encode(self, pixels: Any) -> Any:
        self.encoded.append(len(pixels))
        return pixels

    def _ask(self, part: Any, text: Any) -> Scores:
        scores = self._run(part, text)
        return Scores(scores.logits * np.float32(np.nan), scores.saliency) if text[0, 0] == self.refused else scores


@pytest.fixture
def several(inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[DatasetConfig]]:
    """A bundle with three prompt sets, and a dataset that asks them."""
    usual = synthetic.prompt_set
    sets = ("coco", "other", "third")

    def prompt_set(name: str, **how: Any) -> Any:
        made = usual(name, **how)
        return replace(made, features=made.features + np.float32(sets.index(name)))

    monkeypatch.setattr(synthetic, "prompt_set", prompt_set)
    monkeypatch.setattr("xbench_fast.engines.select.ENGINES.load", lambda name: CountingEngine)
    monkeypatch.setattr(CountingEngine, "refused", None)
    CountingEngine.encoded.clear()
    return make_bundle(tmp_path / "blocks-32", sets=sets).path, [DatasetConfig("coco", inputs.root, "coco", sets)]


def test_several_prompt_sets(
    several: tuple[Path, list[DatasetConfig]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk is one job for all sets, which encodes an image once; rows and keys are those of one pass here. A set
    that is added is asked alone."""
    bundle, data = several
    ticks = count()
    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    far, near, backend = ClusterWorld(tmp_path / "far"), World(tmp_path / "near"), InProcess()
    some = [replace(data[0], prompts=("coco", "third"))]
    models = [f"blocks-32@{name}" for name in ("coco", "other", "third")]

    def run(asked: list[DatasetConfig]) -> list[list[str]]:
        CountingEngine.encoded.clear()
        far.on_workers(backend, [bundle], asked, engine=ENGINE, chunk=4, baselines=())
        return [[cell.model for cell in job.cells] for job in backend.jobs]

    assert run(some) == [[models[0], models[2]]] * 6 and sum(CountingEngine.encoded) == 19
    entries = [far.entry(f"{models[at]}--coco") for at in (0, 2)]
    assert all(entry["computed"] == 21 for entry in entries)
    assert [entry["seconds"] for entry in entries] == [1.5, 1.5], "a second of their images, and one of each"
    assert run(data) == [[models[1]]] * 6 and sum(CountingEngine.encoded) == 19
    assert near.run([bundle], data, sweep=sweep, chunk=4).computed == 3
    for model in models:
        name = f"{model}--coco"
        assert same(far.table(name), near.table(name)) and far.entry(name)["key"] == near.entry(name)["key"]


def test_one_set_that_fails_leaves_the_others(
    several: tuple[Path, list[DatasetConfig]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, data = several
    monkeypatch.setattr(CountingEngine, "refused", 2.0)  # of the set `other`
    far = ClusterWorld(tmp_path / "far")
    outcome = far.on_workers(InProcess(), [bundle], data, engine=ENGINE, chunk=4, baselines=())
    assert outcome.computed == 2 and [model for model, *_ in outcome.failed] == ["blocks-32@other"]
    assert len([line for line in far.lines if "each prompt set is computed alone, because of all:" in line]) == 1
    assert far.entry("blocks-32@coco--coco")["state"] == far.entry("blocks-32@third--coco")["state"] == "done"
