"""The sweep's CUDA source compiles for its device, and its barriers are all needed and enough."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import cupy_on_cpu
import pytest
from xbench_fast.metrics_gpu.sweep import gpu as sweep_cupy
from xbench_fast.metrics_gpu.sweep.sweep_options import Normalise
from xbench_fast.metrics_gpu.sweep.thresholds import LEVELS


def test_it_compiles_for_the_target_device(tmp_path, record_property):
    """nvcc for sm_90: registers, shared memory and no spills, nothing fused."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on this machine")
    cubin = tmp_path / "sweep.cubin"
    options = [*sweep_cupy.OPTIONS, "-arch=sm_90", "-cubin", "-Xptxas", "-v", "-Werror", "all-warnings"]
    source = tmp_path / "sweep.cu"
    source.write_text(sweep_cupy.source())
    done = subprocess.run(
        [nvcc, *options, "-o", cubin, source], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    report = done.stdout + done.stderr
    print(report)
    used = {"sweep": re.search(r"'sweep' for.*?Used (\d+) registers.*?(\d+) bytes smem", report, re.S)}
    record_property("sweep", used["sweep"].groups())
    assert set(re.findall(r"(\d+) bytes spill", report)) == {"0"}
    assert int(used["sweep"][1]) <= 64 and int(used["sweep"][2]) <= 48 * 1024
    ptx = subprocess.run(
        [nvcc, *sweep_cupy.OPTIONS, "-arch=sm_90", "-ptx", "-o", "-", source],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    ptx = ptx.split(".entry sweep")[1]
    assert "mul.rn.f32" in ptx and "div.rn.f32" in ptx and ".ftz" not in ptx and "approx" not in ptx


def test_the_sources_constants_are_pythons():
    code = sweep_cupy.source()
    for name, value in (("LEVELS", LEVELS), ("THREADS", sweep_cupy.THREADS)):
        assert re.findall(rf"#define {name} +(\d+)", code) == [str(value)]
    kinds = re.findall(r"#define (MINMAX|MAX_ONLY) +(\d+)", code)
    assert kinds == [("MINMAX", "0"), ("MAX_ONLY", "1")] and get_args(Normalise)[:2] == ("minmax", "max")


def test_it_compiles_at_run_time_with_the_options_cupy_passes():
    """NVRTC for sm_90, without headers, as CuPy does it."""
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or []) if package else []
    found = [path for folder in folders for path in Path(folder).rglob("libnvrtc.so.*") if "alt" not in path.name]
    if not found:
        pytest.skip("NVRTC is not installed here")
    nvrtc = ctypes.CDLL(str(found[0]))
    program = ctypes.c_void_p()
    code = sweep_cupy.source().encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, b"sweep.cu", 0, None, None) == 0
    options = [option.encode() for option in (*sweep_cupy.OPTIONS, "--gpu-architecture=sm_90")]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == 0 and not log.value.strip(), log.value.decode()
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0 and size.value > 5000


def test_no_fused_multiply_add_in_the_machine_code():
    """Nor in the code of this machine's CPU."""
    import numba
    from xbench_fast.metrics_gpu.compiled import OPTIONS
    from xbench_fast.metrics_gpu.sweep import cpu as sweep_numba

    fresh = numba.njit(sweep_numba.sweep_batch.signatures[0], **OPTIONS)(sweep_numba._sweep)
    code = "\n".join(fresh.inspect_asm().values()).lower()
    assert "mul" in code
    assert not re.search(r"\bv?fn?m(add|sub|la|ls)\w*", code)


@pytest.mark.skipif("XBENCH_RACES" not in os.environ, reason="set XBENCH_RACES=1 to look for races (a minute)")
def test_no_race_and_every_barrier_is_needed(root, tmp_path):
    """Real threads under a race detector: quiet on the kernel, and loud when any one barrier is taken away."""
    flags = ["-O1", "-g", "-fsanitize=thread", "-DSHIM_THREADS", "-DSHIM_MAIN", "-pthread"]
    source = sweep_cupy.source()

    def races(text, runs):
        """Whether a race was seen in one of so many runs: the detector remembers only the last few accesses."""
        (tmp_path / "sweep.cu").write_text(text)
        program = cupy_on_cpu.build(tmp_path / "races", tmp_path / "sweep.cu", *flags)
        # A kernel without one of its barriers may also never end.
        known = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
        for _ in range(runs):
            done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=False, env=known)
            if "data race" in done.stderr:
                return True
            assert done.returncode == 0 or text != source, done.stderr
        return False

    assert not races(source, 2)
    barriers = [match.start() for match in re.finditer(r"__syncthreads\(\);", source)]
    assert len(barriers) >= 10
    for place in barriers:
        assert races(source[:place] + ";" + source[place + len("__syncthreads();") :], 10), source[place - 200 : place]
