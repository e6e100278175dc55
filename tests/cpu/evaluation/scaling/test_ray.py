"""A real Ray on this machine, started once: Ray Data's workers, one of them killed, and Ray Serve.

The cluster takes half a minute to start where other work is going on, and each evaluation some ten seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluation_world import World, same
from scaling_world import ClusterWorld, Watched
from serving_process import image_request
from synthetic import make_bundle, make_dataset, save_graph
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.select import open_engine
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.evaluation.scaling.jobs import Part, WorkPlan
from xbench_fast.runtime.evaluation.scaling.ray_pool import RayWorkers
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.serving import ray_serve
from xbench_fast.runtime.serving.ray_serve import ReplicaSettings, application, build

for package in ("ray", "onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

# Ray warns about its own settings and those of its dependencies.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

READERS = Path(__file__).parents[3] / "slow_reader.py"
ENGINE, CHUNK = "onnxruntime-cpu", 2


class LocalWorld(ClusterWorld):
    """Its runs without workers use the real engine."""

    def open(self, bundle: Any, name: str, *, threads: int | None = None, **_: Any) -> Any:
        return open_engine(bundle, name, threads=threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ray")
    graph = save_graph(made / "blocks.onnx")
    make_bundle(made / "models" / "blocks-32", graph=graph)
    make_bundle(made / "models" / "several-32", several=True, graph=graph)
    make_bundle(made / "two" / "blocks-32", sets=("coco", "other"), graph=graph)
    make_dataset(made / "slow", 40, missing=(7,))
    make_dataset(made / "deadly", 6, seed=2)
    make_dataset(made / "sound", 6, seed=3)
    return made


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[RayWorkers]:
    """Two workers of one CPU each, on a cluster of its own."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        with RayWorkers("local", workers=2, threads=1) as workers:
            yield workers
    finally:
        ray.shutdown()


def data(folder: Path, name: str, reader: str = "coco") -> DatasetConfig:
    return DatasetConfig(name, folder / name, reader, prompts="coco")


@pytest.fixture(scope="module")
def local(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = LocalWorld(tmp_path_factory.mktemp("local"))
    slow = data(folder, "slow", f"{READERS}:Slow")
    outcome = world.run([folder / "models" / "blocks-32"], [slow], sweep=sweep, engine=ENGINE, chunk=CHUNK, threads=1)
    assert outcome.computed == 1
    return world


def test_a_run_stopped_resumed_and_robbed_of_a_worker_is_that_of_one_machine(
    folder: Path, cluster: RayWorkers, local: World, tmp_path: Path
) -> None:
    bundles, datasets = [folder / "models" / "blocks-32"], [data(folder, "slow", f"{READERS}:Slow")]
    world, name, how = LocalWorld(tmp_path), "blocks-32--slow", {"engine": ENGINE, "chunk": CHUNK}

    def stop(number: int, part: Part) -> None:
        if number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.on_workers(Watched(cluster, stop), bundles, datasets, **how)
    assert world.entry(name)["state"] == "interrupted"
    kept = len(list(world.out.glob("cells/blocks*.parts/0*.parquet")))
    assert kept == 4

    seen: list[int] = []

    def kill(number: int, part: Part) -> None:
        seen.append(part.worker)
        if number == 1:
            os.kill(part.worker, signal.SIGKILL)

    assert world.on_workers(Watched(cluster, kill), bundles, datasets, **how).failed == []
    assert len(seen) == 20 - kept
    # Somebody else did the rest: the other worker, and the one that came for the killed one.
    assert len(set(seen) - {seen[1]}) >= 1 and seen[-1] != seen[1]
    assert same(world.table(name), local.table(name))
    ours, theirs = world.entry(name), local.entry(name)
    assert (ours["key"], ours["engine"], ours["cases"]) == (theirs["key"], theirs["engine"], theirs["cases"])
    assert ours["computed"] == 40 - CHUNK * kept
    again = world.run(bundles, datasets, sweep=sweep, threads=1, **how)
    assert (again.reused, again.computed) == (1, 0)


def test_what_cannot_work_fails_alone(folder: Path, cluster: RayWorkers, tmp_path: Path) -> None:
    """A chunk that ends its worker each time, a dataset the workers do not have, and one that is sound; each is asked
    two prompt sets in one job."""
    every = [data(folder, "deadly", f"{READERS}:Deadly"), data(folder, "slow"), data(folder, "sound")]
    datasets = [replace(one, prompts=("coco", "other")) for one in every]

    def elsewhere(plan: WorkPlan) -> WorkPlan:
        moved = replace(plan.datasets["slow"], root=tmp_path / "not-mounted")
        return replace(plan, datasets={**plan.datasets, "slow": moved})

    world = LocalWorld(tmp_path)
    outcome = world.on_workers(
        cluster, [folder / "two" / "blocks-32"], datasets, elsewhere, (), engine=ENGINE, chunk=CHUNK
    )
    assert len(outcome.failed) == 4 and outcome.computed == 2
    reasons = {dataset: reason for _, dataset, reason in outcome.failed}
    assert set(reasons) == {"deadly", "slow"}
    assert "the cases 3 to 4 ended the process of their worker 3 times" in reasons["deadly"]
    assert "not-mounted" in reasons["slow"] and "under the same paths" in reasons["slow"]
    tables = [world.table(f"blocks-32@{name}--sound").drop_columns(["model"]) for name in ("coco", "other")]
    assert len(tables[0]) == 2 * 6 and same(*tables), "both sets have the same texts"
    # What the deadly chunk's neighbours gave is kept for the next run.
    assert len(list(world.out.glob("cells/*deadly*.parts/0*.parquet"))) == 2 * 2


def test_the_command_on_a_cluster(
    folder: Path, cluster: RayWorkers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["eval", "--all", "--bundles", folder / "models", "--data", f"coco={folder / 'sound'}", "--engine", ENGINE]
    line += ["--batch", 2, "--chunk", CHUNK, "--threads", 1]

    def run(*more: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, line), *map(str, more)])
        return int(ended.value.code or 0), capsys.readouterr().out

    status, shown = run("--out", tmp_path / "cluster" / "run", "--cluster", "local", "--workers", 2)
    assert status == 0 and "2 workers, 1 thread each: engine onnxruntime-cpu" in shown and "2 cells finished" in shown
    status, _ = run("--out", tmp_path / "plain" / "run")
    assert status == 0
    ours, theirs = World(tmp_path / "cluster"), World(tmp_path / "plain")
    for name in ("blocks-32--coco", "several-32--coco"):
        assert same(ours.table(name), theirs.table(name)) and ours.entry(name)["key"] == theirs.entry(name)["key"]
    assert not (ours.out / "prepared").exists()
    status, shown = run("--out", ours.out)
    assert status == 0 and "2 of them before" in shown


def test_a_cluster_too_small(cluster: RayWorkers) -> None:
    for more, sentence in (
        ({"workers": 9, "threads": 1}, r"room for 2 workers of 1 CPU each, not for 9 \(1 node of 2 CPUs\)"),
        ({"workers": 2, "gpus_per_worker": 0.5}, "room for 0 workers of 1 CPU and 0.5 GPU each, not for 2"),
    ):
        with pytest.raises(ConfigError, match=sentence), RayWorkers("local", **more):
            pass


def test_ray_serve_answers_as_the_plain_server(folder: Path, cluster: RayWorkers) -> None:
    from ray import serve
    from xbench_fast.runtime.serving.access_log import AccessLog
    from xbench_fast.runtime.serving.http.http_app import create_app
    from xbench_fast.runtime.serving.inference.served_models import Catalogue
    from xbench_fast.runtime.serving.inference.service import Service
    from xbench_fast.runtime.serving.prometheus_metrics import Metrics

    settings = ReplicaSettings((folder / "models" / "several-32",), engine=ENGINE, access_log=False)
    film = (folder / "sound" / "images" / "case0001.png").read_bytes()
    body, headers = image_request(film, outputs=("findings", "logits", "saliency", "boxes"))
    path = "/v2/models/several-32/infer"

    async def plain() -> Any:
        with Catalogue(settings.bundles, engine=ENGINE, threads=1) as catalogue:
            async with Service(catalogue, settings.service, Metrics()) as service:
                app = create_app(service, settings.http, AccessLog(enabled=False))
                transport = httpx.ASGITransport(app=app)
                async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                    return await client.post(path, content=body, headers=headers)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(application(settings), name="test", route_prefix="/")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            answer = client.post(path, content=body, headers=headers)
            ready = client.get("/v2/health/ready").json()
            wrong = client.post("/v2/models/absent/infer", content=body, headers=headers)
    finally:
        serve.shutdown()
    expected = asyncio.run(plain())
    assert (answer.status_code, expected.status_code) == (200, 200) and ready == {"ready": True}
    assert answer.json()["outputs"] == expected.json()["outputs"] and len(answer.json()["outputs"]) == 4
    assert wrong.status_code == 404 and "several-32" in wrong.json()["error"]


def test_settings_of_the_deployment(folder: Path) -> None:
    for args, sentence in (
        ({"bundle": "x"}, "no setting 'bundle': did you mean 'bundles'"),
        ({"bundles": str(folder)}, "holds no bundle"),
        (
            {"bundles": str(folder / "models"), "model": "absent"},
            "no bundle called 'absent' in .*: known are blocks-32, several-32",
        ),
        ({"bundles": str(folder / "models"), "replicas": "two"}, "is not a number"),
        ({"bundles": str(folder / "models"), "token_file": str(folder / "none")}, "cannot be read"),
        ({"bundles": str(folder / "models"), "threads": "0"}, "threads=0 must be at least 1"),
        ({"bundles": str(folder / "models"), "replicas": "0"}, "replicas=0 must be at least 1"),
        ({"bundles": str(folder / "models"), "gpus": "nan"}, "gpus=nan must be at least 0"),
        ({"bundles": str(folder / "models"), "max_batch": "0"}, "max_batch is 0"),
        ({"bundles": str(folder / "models"), "timeout": "nan"}, "timeout is nan"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            build(args)
    assert build({"bundles": str(folder / "models"), "model": "blocks-32", "replicas": "2"}) is not None


def test_the_deployment_asks_for_the_token_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_serve, "application", lambda settings, **_: settings.http.token)
    bundles = {"bundles": str(folder / "models")}
    assert build(bundles) is None and "No token is asked for" in capsys.readouterr().err
    monkeypatch.setenv("XBENCH_FAST_TOKEN", "secret\n")
    assert build(bundles) == "secret" and not capsys.readouterr().err
