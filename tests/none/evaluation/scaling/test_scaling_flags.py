"""Flags for shards and clusters: what contradicts itself, what is not there, and where things are put."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError, EngineError, MissingExtraError
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.cli.scaling import Scale
from xbench_fast.runtime.evaluation.scaling.ray_pool import RayWorkers
from xbench_fast.runtime.results.runs.shards import Shard


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(item) for item in arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--shard", "1/2", "--cluster", "local"), "give one of them"),
        (("--shard", "3/2"), "I/N"),
        (("--workers", "2"), "are about --cluster"),
        (("--gpus-per-worker", "0.5"), "are about --cluster"),
        (("--cluster", "local", "--decoder", "dali", "--cache", "kept"), "leave --cache out"),
    ],
)
def test_flags_that_contradict_each_other(
    flags: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("eval", "--all", *flags) == 2
    told = capsys.readouterr().err
    assert sentence in told and len(told.splitlines()) == 1


def test_where_results_and_prepared_images_go(tmp_path: Path) -> None:
    out, configured = tmp_path / "run", tmp_path / "kept"
    assert Scale().directories(out, configured) == (out, configured)
    assert Scale().directories(out, None) == (out, out / "prepared")
    mine = out / "shard-2-of-8"
    assert Scale(shard=Shard(2, 8)).directories(out, configured) == (mine, mine / "prepared")
    assert Scale(cluster="local").directories(out, configured) == (out, None)


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A Ray that reaches what it is asked for, or raises `error`; `asked` are the calls of init."""
    fake = SimpleNamespace(asked=[], error=None, nodes_have=[{"CPU": 8.0, "GPU": 2.0}], closed=0)

    def init(**how: Any) -> None:
        fake.asked.append(how)
        if fake.error is not None:
            raise fake.error

    def shutdown() -> None:
        fake.closed += 1

    fake.init, fake.shutdown = init, shutdown
    fake.is_initialized = lambda: False
    gone = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
    fake.nodes = lambda: [{"Alive": True, "Resources": have} for have in fake.nodes_have] + [gone]
    fake.data = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.data", fake.data)
    return fake


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r"ray is not installed; install xbench-fast\[scale\]"),
        RayWorkers("local"),
    ):
        pass


def test_an_address_where_nobody_answers(fake_ray: SimpleNamespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(ConfigError, match=f"No Ray cluster answers at --cluster {address}"), RayWorkers(address):
            pass
    for address in ("head", "head:", "head:port"):
        with pytest.raises(ConfigError, match="is not HOST:PORT, auto or local"), RayWorkers(address):
            pass
    assert fake_ray.asked == []


def test_something_else_at_the_address(fake_ray: SimpleNamespace) -> None:
    fake_ray.error = RuntimeError("Version mismatch: the cluster has 2.1.\nMore about it.")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"can be used at .*: Version mismatch: the cluster has 2\.1\."):
            RayWorkers(address).__enter__()
    assert fake_ray.asked[0]["address"] == address and fake_ray.closed == 0


def test_a_cluster_of_its_own_is_closed_again(fake_ray: SimpleNamespace) -> None:
    with RayWorkers("local") as workers:
        assert (workers.workers, workers.gpus, workers.threads) == (2, 1.0, 4)
        assert str(workers) == "2 workers, 4 threads each, 1 GPU each"
    assert fake_ray.closed == 1 and fake_ray.asked[0]["include_dashboard"] is False
    fake_ray.nodes_have = [{"CPU": 3.0}, {"CPU": 3.0}, {"memory": 1e9}]
    with RayWorkers("local") as workers:  # one for each living node with CPUs
        assert (workers.workers, workers.gpus, workers.threads) == (2, 0.0, 3)
    fake_ray.nodes_have = [{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}]
    with RayWorkers("local", gpus_per_worker=0.25) as workers:
        assert (workers.workers, workers.threads) == (4, 1)
    with pytest.raises(ConfigError, match=r"room for 1 worker of .* not for 3"), RayWorkers("local", workers=3):
        pass
    assert fake_ray.closed == 4


def test_what_ray_raises_is_a_sentence(fake_ray: SimpleNamespace) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError("The node died.\nA long story.")

    fake_ray.remote = lambda function: SimpleNamespace(options=lambda **how: SimpleNamespace(remote=fail))
    with (
        RayWorkers("local") as workers,
        pytest.raises(EngineError, match=r"gave up \(OSError: The node died\)") as told,
    ):
        workers.describe(None)  # type: ignore[arg-type]
    assert "\n" not in str(told.value)


def test_a_cluster_that_never_has_room_is_not_waited_for_without_end(fake_ray: SimpleNamespace) -> None:
    waited, cancelled = [], []

    def wait(asked: list[Any], *, timeout: float | None = None, **how: Any) -> tuple[list[Any], list[Any]]:
        waited.append(timeout)
        return [], asked

    task = SimpleNamespace(remote=lambda plan: iter(()))
    fake_ray.remote = lambda function: SimpleNamespace(options=lambda **how: task)
    fake_ray.wait, fake_ray.cancel = wait, cancelled.append
    with RayWorkers("local") as workers, pytest.raises(EngineError, match="no room for a worker of 4 CPUs and 1 GPU"):
        workers.describe(None)  # type: ignore[arg-type]
    assert waited[0] is not None and waited[0] >= 60 and len(waited) == len(cancelled) == 1
