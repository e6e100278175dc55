"""The engine of the next bundle is opened while the cells of the current one are computed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evaluation_world import World
from synthetic import BlockEngine, make_bundle, make_dataset
from xbench_fast.engines.base import EngineInfo, EngineOptions
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError
from xbench_fast.runtime.evaluation import run_evaluation, runner
from xbench_fast.runtime.evaluation.opening import NextEngine, Turn
from xbench_fast.runtime.evaluation.run_evaluation import Asked, Evaluation
from xbench_fast.runtime.host.config import Config, DatasetConfig
from xbench_fast.runtime.results.run_json import read_run

PATIENCE = 60.0


class TracedEngine(BlockEngine):
    """Writes down what happens to it, and does what the test has for it."""

    world: TracedWorld

    def _open(self) -> EngineInfo:
        name = self.bundle.name
        self.world.note(f"open {name}")
        self.options.say(f"{name}: opened")
        self.world.do(f"open {name}", self)
        return super()._open()

    def _run(self, pixels: Any, text: Any) -> Any:
        self.world.do(f"run {self.bundle.name}", self)
        return super()._run(pixels, text)

    def _close(self) -> None:
        self.world.note(f"close {self.bundle.name}")


class TracedWorld(World):
    """Bundles a, b and c on one dataset. `work`: what is done at an event, such as "open b", in turn."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.paths = [make_bundle(folder / name).path for name in "abc"]
        self.data = [DatasetConfig("coco", make_dataset(folder / "data", 6), "coco")]
        self.events: list[str] = []
        self.work: dict[str, list[Callable[[TracedEngine], Any]]] = {}
        self.happened: dict[str, threading.Event] = {}

    def open(self, bundle: Any, name: str, *, threads: int | None = None, turn: Any = None, **_: Any) -> TracedEngine:
        engine = TracedEngine(bundle, threads=threads, options=EngineOptions(say=turn.say, neighbour=turn))
        engine.world = self
        return engine

    def note(self, event: str) -> None:
        self.events.append(event)
        self.happened.setdefault(event, threading.Event()).set()

    def do(self, event: str, engine: TracedEngine) -> None:
        if waiting := self.work.get(event):
            waiting.pop(0)(engine)

    def after(self, event: str) -> Callable[[TracedEngine], None]:
        def wait(_: TracedEngine) -> None:
            assert self.happened.setdefault(event, threading.Event()).wait(PATIENCE), f"{event} did not happen"

        return wait

    def evaluate(self) -> list[str]:
        self.run(self.paths, self.data)
        return [re.sub(r"[\d.]+ cases/s", "N cases/s", line) for line in self.lines]

    def states(self) -> list[str]:
        return [cell["state"] for cell in read_run(self.out)["cells"].values()]

    def threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "next-engine"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TracedWorld:
    monkeypatch.setattr(runner, "runs_on_gpu", lambda name, device: True)
    return TracedWorld(tmp_path)


def test_on_a_cpu_engines_open_one_after_the_other(world: TracedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "runs_on_gpu", lambda name, device: False)
    world.evaluate()
    assert world.events == [f"{what} {name}" for name in "abc" for what in ("open", "close")]


def in_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NextEngine, "start_after", lambda self, path: None)


def test_the_next_engine_opens_before_the_cell_ends_and_no_other(world: TracedWorld) -> None:
    world.work["run a"] = [world.after("open b")]
    world.work["run b"] = [world.after("open c")]
    lines = world.evaluate()
    assert world.events == ["open a", "open b", "close a", "open c", "close b", "close c"]
    places = [lines.index(f"{name}: opened") for name in "abc"]
    ends = [next(at for at, line in enumerate(lines) if line.startswith(f"{name} on coco: 6 cases")) for name in "abc"]
    assert [*zip(places, ends, strict=True)] == sorted(zip(places, ends, strict=True)) and ends[0] < places[1]
    assert not world.threads()


@pytest.mark.parametrize("error", [EngineError("it cannot run here."), ValueError("a third party's")])
def test_an_engine_that_fails_says_what_it_said_in_turn(
    tmp_path: Path, world: TracedWorld, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(_: TracedEngine) -> None:
        raise error

    def told(one: TracedWorld) -> tuple[list[str], list[str]]:
        one.work["open b"] = [fails, fails]
        cells = []
        try:
            cells = one.evaluate()
        except ValueError as raised:
            cells = [*one.lines[:-1], str(raised)]
        return [re.sub(r"[\d.]+ cases/s", "N cases/s", line) for line in cells], sorted(one.states())

    world.work["run a"] = [world.after("open b")]
    advance = told(world)
    assert world.events.count("open b") == 2, "in advance and at its turn"
    (tmp_path / "other").mkdir()
    other = TracedWorld(tmp_path / "other")
    in_turn(monkeypatch)
    assert told(other) == advance
    assert other.events.count("open b") == 1 and not world.threads()


def test_too_little_memory_in_advance_is_not_said(world: TracedWorld) -> None:
    """b asks for room while a runs; it is opened again when a is closed."""
    world.work["open b"] = [lambda engine: engine.options.neighbour.give_way()]
    world.work["run a"] = [world.after("open b")]
    lines = world.evaluate()
    assert world.events[:4] == ["open a", "open b", "close a", "open b"]
    assert lines.count("b: opened") == 1 and not any("failed" in line for line in lines)
    assert world.states() == ["done"] * 3


def test_an_engine_in_advance_gives_way_to_the_current_one(world: TracedWorld) -> None:
    asked: list[bool] = []

    def lacks_memory(engine: TracedEngine) -> None:
        world.after("open b")(engine)
        asked.extend(engine.options.neighbour.give_way() for _ in range(2))

    world.work["run a"] = [lacks_memory]
    lines = world.evaluate()
    assert asked == [True, False]
    assert world.events[:5] == ["open a", "open b", "close b", "close a", "open b"]
    assert lines.count("b: opened") == 1 and world.states() == ["done"] * 3


def test_an_interruption_waits_for_the_opening_and_closes(world: TracedWorld) -> None:
    stopped = threading.Event()

    def interrupted(engine: TracedEngine) -> None:
        world.after("open b")(engine)
        stopped.set()
        raise KeyboardInterrupt

    world.work["run a"] = [interrupted]
    world.work["open b"] = [lambda _: stopped.wait(PATIENCE)]
    with pytest.raises(KeyboardInterrupt):
        world.evaluate()
    assert world.events == ["open a", "open b", "close a", "close b"] and not world.threads()


def test_nothing_is_opened_where_no_cell_needs_it(world: TracedWorld, tmp_path: Path) -> None:
    world.paths[1] = make_bundle(tmp_path / "none", sets=("other",)).path
    world.evaluate()
    assert "open none" not in world.events and "open c" in world.events


def test_no_plan_is_built_beside_a_running_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are timed on the device that the other one uses."""
    options: list[EngineOptions] = []
    monkeypatch.setattr(run_evaluation, "open_engine", lambda *_, **how: options.append(how["options"]))
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 2), "coco")
    bundle = make_bundle(tmp_path / "a").path
    config = Config(bundles=(bundle,), datasets={"coco": data})
    evaluation = Evaluation.of(config, Asked(models=[str(bundle)]))
    following = NextEngine([], lambda *_: None, print)
    for turn in (Turn(following, print, ahead=True), following.turn()):
        evaluation._open_engine(8, Bundle.load(bundle), "tensorrt", threads=1, turn=turn)
    assert [how.build for how in options] == [False, True]
    assert all(how.max_batch == 8 and how.pad for how in options)
