"""Computes how many workers fit on a cluster, and with how many threads; each must fit on one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ....engines.errors import ConfigError

_NAMED = 8  # kinds of nodes named in a message
_UNITS = 10_000  # Ray counts resources in ten-thousandths


@dataclass(frozen=True)
class Node:
    """The resources of a live node of the cluster."""

    cpus: int
    gpus: int = 0

    def __str__(self) -> str:
        gpus = f" and {_count(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{_count(self.cpus, 'CPU')}{gpus}"

    def room(self, threads: int, gpus: float) -> int:
        """Workers of `threads` CPUs and `gpus` GPUs that fit at once; a share below 1 is a share of one GPU."""
        by_cpus = self.cpus // threads
        if not gpus:
            return by_cpus
        by_gpus = self.gpus * (_UNITS // round(gpus * _UNITS)) if gpus < 1 else self.gpus // int(gpus)
        return min(by_cpus, by_gpus)


@dataclass(frozen=True)
class Placement:
    """Workers, and the CPUs and GPUs of each."""

    workers: int
    threads: int
    gpus: float


def placement_for(
    nodes: Sequence[Node], workers: int | None = None, gpus: float | None = None, threads: int | None = None
) -> Placement:
    """Computes the values that are not given.

    gpus: 1, or 0 if no node has one. workers: as many as GPUs and their CPUs allow, or without GPUs one for each node
    that has room for one. threads: the largest number with which all workers fit at the same time. Raises ConfigError
    when they do not fit, naming the resources of the nodes.
    """
    if gpus is None:
        gpus = float(any(node.gpus for node in nodes))
    if not (1 / _UNITS <= gpus < 1 or float(gpus).is_integer()):
        raise ConfigError(
            f"--gpus-per-worker {gpus:g} is neither a share of one GPU, from {1 / _UNITS:g} up, nor a whole number of "
            "them; name one of these."
        )
    rooms = [node.room(threads or 1, gpus) for node in nodes]
    if workers is None:
        # At least one worker is requested, so that a cluster without room raises the error.
        workers = max(1, sum(rooms) if gpus else sum(room > 0 for room in rooms))
    if workers > sum(rooms):
        raise ConfigError(_too_many(nodes, workers, Placement(sum(rooms), threads or 1, gpus)))
    if threads is None:
        threads = _most_threads(nodes, workers, gpus)
    return Placement(workers, threads, gpus)


def _most_threads(nodes: Sequence[Node], workers: int, gpus: float) -> int:
    """The largest number of threads per worker with which `workers` workers fit."""
    low, high = 1, max(node.cpus for node in nodes)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(node.room(middle, gpus) for node in nodes) >= workers:
            low = middle
        else:
            high = middle - 1
    return low


def _too_many(nodes: Sequence[Node], workers: int, room: Placement) -> str:
    gpus = f" and {room.gpus:g} GPU" if room.gpus else ""
    kinds = sorted(Counter(nodes).items(), key=lambda entry: (-entry[1], entry[0].cpus, entry[0].gpus))
    have = [f"{_count(many, 'node')} of {entry}" for entry, many in kinds[:_NAMED]] + ["..."] * (len(kinds) > _NAMED)
    has = ", ".join(have) or "no nodes"
    largest = f"{_count(room.workers, 'worker')} of {_count(room.threads, 'CPU')}{gpus} each"
    return (
        f"The cluster has room for {largest}, not for {workers} ({has}); a worker must fit on one node, "
        "so ask for less with --workers, --threads or --gpus-per-worker."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
