"""A library that opens a part of itself by its bare name, as NVRTC 13.0 does without a run path, finds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = """
#include <dlfcn.h>
extern "C" int compile() { return dlopen("libnvrtc-builtins.so.98.0", RTLD_NOW) ? 1 : 0; }
"""
PROGRAM = """
import ctypes, sys
folder, first = sys.argv[1:]
sys.path.insert(0, folder)
if first:
    ctypes.CDLL(first)
from xbench_fast.engines.backends.cuda_libraries import load_library
assert load_library("libnvrtc.so.98")
assert ctypes.CDLL("libnvrtc.so.98", 4).compile() == 1, "the part was not found"  # 4: RTLD_NOLOAD
loaded = open("/proc/self/maps").read()
assert "libnvrtc-builtins.so.98.0" in loaded and "libnvrtc-builtins.so.97.0" not in loaded
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages as pip leaves it, with the builtins of another CUDA beside."""
    builder = shutil.which("g++")
    if builder is None:
        pytest.skip("no g++ here to build the libraries")
    packages = tmp_path_factory.mktemp("packages")
    folder = packages / "nvidia/cu98/lib"
    folder.mkdir(parents=True)
    for name, code in (
        ("libnvrtc.so.98", COMPILER),
        ("libnvrtc-builtins.so.98.0", ""),
        ("libnvrtc-builtins.so.97.0", ""),
    ):
        command = [builder, "-shared", "-fPIC", "-x", "c++", "-", f"-Wl,-soname,{name}", "-o", str(folder / name)]
        subprocess.run(command, input=code, text=True, check=True, timeout=60)
    return packages


def run(packages: Path, first: str = "", **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(packages), first],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_opened_in_a_folder_of_packages(installed: Path) -> None:
    run(installed)


def test_loaded_before_by_somebody_else(installed: Path) -> None:
    run(installed.parent, first=str(installed / "nvidia/cu98/lib/libnvrtc.so.98"))


def test_behind_a_link_in_another_folder(installed: Path, tmp_path: Path) -> None:
    """As a toolkit of a distribution installs it."""
    folder = tmp_path / "nvidia/cu98/lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.98").symlink_to(installed / "nvidia/cu98/lib/libnvrtc.so.98")
    run(tmp_path)
