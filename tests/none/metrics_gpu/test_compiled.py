"""The line before numba compiles: only with a cold cache, once in a process, and only for loops of this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from xbench_fast.metrics_gpu.compiled import COMPILING, KEPT, NOT_KEPT

LOOPS = """
from xbench_fast.metrics_gpu.compiled import compiled

@compiled
def double(x):
    return 2 * x

@compiled
def third(x):
    return x / 3

assert double(21) == 42 and third(3) == 1
"""
AS_OURS = "import xbench_fast.metrics_gpu.compiled as module; module._PACKAGE = 'loops.'; "
WORKER = """
import multiprocessing

def work():
    exec(AS_OURS + "import loops.two")

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    assert worker.exitcode == 0
"""


def lines(folder: Path, *arguments: str, **variables: str) -> list[str]:
    """What another Python logs."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), **variables}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "two.py").write_text(LOOPS)
    (tmp_path / "worker.py").write_text(f"AS_OURS = {AS_OURS!r}\n{WORKER}")
    return tmp_path


def test_a_cold_cache_is_announced_once_and_a_warm_one_never(folder: Path) -> None:
    assert lines(folder, "-c", AS_OURS + "import loops.two") == [COMPILING % KEPT]
    assert lines(folder, "-c", AS_OURS + "import loops.two") == []


@pytest.mark.parametrize("arguments", [("-c", "import loops.two"), ("worker.py",)])
def test_loops_of_others_and_of_workers_are_not_announced(folder: Path, arguments: tuple[str, ...]) -> None:
    assert lines(folder, *arguments) == [] and list(folder.rglob("*.nbc"))


def test_without_a_cache_the_line_says_what_to_do(folder: Path) -> None:
    """Where nothing can be written, numba finds no place for a cache and raises."""
    refused = "import numba; njit = numba.njit\ndef only_without(*given, cache=False, **rest):\n    if cache: "
    refused += "raise RuntimeError\n    return njit(*given, **rest)\nnumba.njit = only_without\n"
    assert lines(folder, "-c", f"{refused}{AS_OURS}\nimport loops.two") == [COMPILING % NOT_KEPT]
