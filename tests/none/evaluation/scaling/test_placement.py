"""Workers on the nodes of a cluster: the arithmetic against workers put on nodes one by one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.evaluation.scaling.placement import Node, Placement, placement_for


def fitting(nodes: list[Node], gpus: Fraction, threads: int) -> int:
    """How many workers find room: each takes CPUs of one node, and a share of one GPU or several whole ones."""
    count = 0
    for node in nodes:
        cpus, left = node.cpus, [Fraction(1)] * node.gpus
        while cpus >= threads:
            if gpus >= 1:
                free = [number for number, share in enumerate(left) if share == 1][: int(gpus)]
                if len(free) < gpus:
                    break
            else:
                free = [number for number, share in enumerate(left) if share >= gpus][:1]
                if gpus and not free:
                    break
            for number in free:
                left[number] -= min(gpus, Fraction(1))
            cpus -= threads
            count += 1
    return count


NODES = st.lists(st.builds(Node, st.integers(0, 12), st.integers(0, 4)), max_size=5)
SHARES = st.sampled_from(["0", "0.1", "0.25", "0.3", "0.5", "0.75", "1", "2", "3"])


@settings(max_examples=500)
@given(NODES, st.none() | st.integers(1, 12), st.none() | SHARES, st.none() | st.integers(1, 8))
def test_what_is_placed_fits_and_what_is_refused_does_not(
    nodes: list[Node], workers: int | None, share: str | None, threads: int | None
) -> None:
    gpus = Fraction(share) if share is not None else Fraction(int(any(node.gpus for node in nodes)))
    room = fitting(nodes, gpus, threads or 1)
    try:
        found = placement_for(nodes, workers, None if share is None else float(share), threads)
    except ConfigError as error:
        assert room < (workers or 1) and f"has room for {room} " in str(error)
        return
    assert found.gpus == float(gpus) and found.workers == (workers or found.workers) <= room
    if threads is None:
        assert fitting(nodes, gpus, found.threads) >= found.workers > fitting(nodes, gpus, found.threads + 1)
    else:
        assert found.threads == threads
    if workers is None and gpus:
        assert found.workers == room
    if workers is None and not gpus:
        assert found.workers == sum(node.cpus >= (threads or 1) for node in nodes)


@pytest.mark.parametrize(
    ("nodes", "given", "expected"),
    [
        ([Node(2)], {}, (1, 2, 0)),
        ([Node(2), Node(1)], {}, (2, 1, 0)),  # 3 CPUs // 2 workers is 1 too, but
        ([Node(2), Node(1, 1)], {}, (1, 1, 1)),  # 3 // 1 is a worker that no node can hold
        ([Node(4), Node(64)], {}, (2, 32, 0)),
        ([Node(0), Node(16, 4), Node(16, 4)], {}, (8, 4, 1)),
        ([Node(16, 4), Node(16, 2)], {}, (6, 4, 1)),
        ([Node(2, 4)], {}, (2, 1, 1)),  # not more than there are CPUs
        ([Node(16, 2)], {"gpus": 0.5}, (4, 4, 0.5)),
        ([Node(16, 2)], {"gpus": 0.3}, (6, 2, 0.3)),  # a share is of one GPU: 3 on each
        ([Node(16, 2)], {"gpus": 0.0}, (1, 16, 0)),
        ([Node(16, 3)], {"gpus": 2.0}, (1, 16, 2)),
        ([Node(4), Node(16)], {"threads": 8}, (1, 8, 0)),
        ([Node(8), Node(8)], {"workers": 3}, (3, 4, 0)),
        ([Node(8), Node(8)], {"workers": 3, "threads": 2}, (3, 2, 0)),
    ],
)
def test_what_is_not_given_is_settled(nodes: list[Node], given: dict[str, float], expected: tuple[float, ...]) -> None:
    assert placement_for(nodes, **given) == Placement(*expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "given", "sentence"),
    [
        (
            [Node(2), Node(1, 1)],
            {"workers": 1, "threads": 3},
            r"room for 0 workers of 3 CPUs and 1 GPU each, not for 1 \(1 node of 1 CPU and 1 GPU, 1 node of 2 CPUs\)",
        ),
        ([Node(2)] * 3, {"workers": 4, "threads": 2}, r"3 workers of 2 CPUs each, not for 4 \(3 nodes of 2 CPUs\)"),
        (
            [Node(8, 1), Node(8, 1)],
            {"gpus": 2.0},
            r"0 workers of 1 CPU and 2 GPU each, not for 1 \(2 nodes of 8 CPUs and 1 GPU\)",
        ),
        ([Node(0), Node(0, 2)], {}, "room for 0"),
        ([], {}, r"room for 0 workers .* \(no nodes\)"),
        ([Node(n) for n in range(20)], {"workers": 999}, r"1 node of 7 CPUs, \.\.\.\)"),
        ([Node(8, 2)], {"gpus": 1.5}, "--gpus-per-worker 1.5 is neither a share of one GPU"),
        ([Node(8, 2)], {"gpus": 1e-5}, "from 0.0001 up"),
        ([Node(8, 2)], {"gpus": float("nan")}, "neither"),
    ],
)
def test_too_small_a_cluster_is_told_with_its_nodes(nodes: list[Node], given: dict[str, float], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as told:
        placement_for(nodes, **given)  # type: ignore[arg-type]
    assert "\n" not in str(told.value) and str(told.value).endswith(".")
