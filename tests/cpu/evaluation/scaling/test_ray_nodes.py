"""A Ray cluster of two nodes that are not alike: workers go where they fit, and nobody waits for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from scaling_world import ClusterWorld, plan_for
from synthetic import make_bundle, make_dataset, save_graph
from xbench_fast.engines.errors import ConfigError, EngineError
from xbench_fast.runtime.evaluation.scaling import ray_pool
from xbench_fast.runtime.evaluation.scaling.ray_pool import RayWorkers
from xbench_fast.runtime.host.config import DatasetConfig

for package in ("ray", "onnx", "onnxruntime"):
    pytest.importorskip(package)

# Ray warns about its own settings and those of its dependencies.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ENGINE = "onnxruntime-cpu"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A head with 2 CPUs, and a node with 1 CPU and what Ray takes for a GPU."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, **small})
    try:
        cluster.add_node(num_cpus=1, num_gpus=1, **small)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_worker_gets_no_more_threads_than_its_node_has(address: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    make_dataset(tmp_path / "data", 4)
    with RayWorkers(address) as workers:
        # 3 CPUs // 1 worker would be 3, and wait for ever.
        assert (workers.workers, workers.threads, workers.gpus) == (1, 1, 1.0)
        world = ClusterWorld(tmp_path)
        data = [DatasetConfig("data", tmp_path / "data", "coco", prompts="coco")]
        assert world.on_workers(workers, [bundle.path], data, baselines=(), engine=ENGINE, chunk=2).failed == []
        assert world.entry("blocks-32--data")["state"] == "done"


def test_no_node_is_large_enough(address: str) -> None:
    with (
        pytest.raises(ConfigError, match=r"\(1 node of 1 CPU and 1 GPU, 1 node of 2 CPUs\); a worker must fit on one"),
        RayWorkers(address, threads=2),
    ):
        pass


def test_a_cluster_that_others_use_is_not_waited_for_without_end(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.util import placement_group, remove_placement_group

    bundle = make_bundle(tmp_path / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    plan = plan_for([bundle.path], [], engine=ENGINE)
    with RayWorkers(address) as workers:
        held = placement_group([{"GPU": 1}])
        assert held.wait(60)
        with (
            monkeypatch.context() as patch,
            pytest.raises(EngineError, match="no room for a worker of 1 CPU and 1 GPU"),
        ):
            patch.setattr(ray_pool, "_PATIENCE", 2.0)
            workers.describe(plan)
        remove_placement_group(held)
        assert workers.describe(plan).engine == ENGINE
