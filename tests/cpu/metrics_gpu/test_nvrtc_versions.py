"""The kernels compile with the NVRTC of other people's environments, found as a run finds it.

Slow job: XBENCH_NVRTC=1 installs CuPy and each NVRTC into a virtual environment of its own (300 MB, a minute each). The
compiler of CUDA 13.0 is the one of PyTorch 2.11; unlike all others it does not find its own part beside itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    "XBENCH_NVRTC" not in os.environ, reason="set XBENCH_NVRTC=1 to compile the kernels with other compilers"
)

PROGRAM = """
import json, re, sys
sys.path.insert(0, "benchmarks")
import gpu_check
gpu_check.use_checkout()
from xbench_fast.engines.backends import gpu
from xbench_fast.metrics_gpu.nvrtc import OPTIONS, compile_source
from xbench_fast.metrics_gpu.sweep.gpu import source
cupy = gpu.load_cupy()
sizes = {}
for capability in sys.argv[1:]:
    reason = gpu._compiler_reason(cupy.cuda.nvrtc, gpu._cuda(cupy), capability)
    assert reason is None, reason
    made = compile_source(cupy, source(), "sweep.cu", capability)
    assert ".ftz" not in made.ptx and all(f".entry {name}(" in made.ptx for name in ("sweep", "pack_rows", "mean_maps"))
    sizes[capability] = len(made.cubin)
    program = cupy.cuda.nvrtc.createProgram(source(), "sweep.cu", (), ())
    options = (*OPTIONS, f"--gpu-architecture=sm_{capability}", "--ptxas-options=-v")
    cupy.cuda.nvrtc.compileProgram(program, options)
    spills = set(re.findall(r"(\\d+) bytes spill", cupy.cuda.nvrtc.getProgramLog(program)))
    assert spills == {"0"}, (capability, spills)
print(json.dumps({"version": cupy.cuda.nvrtc.getVersion(), "sizes": sizes}))
"""
PACKAGES = {
    "13.0": ("cupy-cuda13x==14.2.0", "nvidia-cuda-nvrtc==13.0.88"),
    "12.8": ("cupy-cuda12x==14.2.0", "nvidia-cuda-nvrtc-cu12==12.8.93"),
}
CAPABILITIES = ("80", "86", "89", "90", "100", "120")


def python(folder: Path, *arguments: str, **more: str) -> str:
    # Nothing but the environment's own libraries: a toolkit of the machine must not help.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "CUDA", "PYTHON"))}
    done = subprocess.run(
        [str(folder / "bin/python"), *arguments],
        env={**variables, **more},
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", PACKAGES)
def test_the_kernels_compile(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python(
        folder, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES[version], "cuda-pathfinder", "numpy>=2,<2.6"
    )
    made = json.loads(python(folder, "-c", PROGRAM, *CAPABILITIES))
    assert ".".join(map(str, made["version"])) == version
    assert set(made["sizes"]) == set(CAPABILITIES) and min(made["sizes"].values()) > 5000
    # The same packages where CuPy's own search does not look, as `pip install --target` leaves them.
    packages = next((folder / "lib").glob("python3*/site-packages"))
    (packages / "nvidia").rename(tmp_path / "nvidia")
    assert json.loads(python(folder, "-c", PROGRAM, *CAPABILITIES, PYTHONPATH=str(tmp_path))) == made
