"""The sweep's CUDA source compiles for its device, and its barriers are all needed and enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import get_args

import cupy_on_cpu
import pytest
from nvrtc_binding import compiling_cupy
from xbench_fast.metrics_gpu import nvrtc
from xbench_fast.metrics_gpu.sweep import gpu as sweep_cupy
from xbench_fast.metrics_gpu.sweep.gpu_tables import BAND, EQUAL, RUN
from xbench_fast.metrics_gpu.sweep.sweep_options import LEVELS, Normalise

KERNELS = ("sweep", "pack_rows", "mean_maps")
ROUNDED = {"sub.rn.f32", "mul.rn.f32", "div.rn.f32", "add.rn.f64", "div.rn.f64", "cvt.rn.f32.f64"}


def test_it_compiles_for_the_target_device(tmp_path, record_property):
    """nvcc for sm_90: registers, shared memory and no spills, nothing fused."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on this machine")
    cubin = tmp_path / "sweep.cubin"
    options = [*nvrtc.OPTIONS, "-arch=sm_90", "-cubin", "-Xptxas", "-v", "-Werror", "all-warnings"]
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
        [nvcc, *nvrtc.OPTIONS, "-arch=sm_90", "-ptx", "-o", "-", source],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    assert all(f".entry {name}(" in ptx for name in KERNELS)
    assert set(re.findall(r"\b(?:add|sub|mul|div|cvt)\.rn\.\S*f(?:32|64)\S*", ptx)) >= ROUNDED
    assert ".ftz" not in ptx and "approx" not in ptx


@pytest.mark.parametrize(
    ("architecture", "shared", "blocks"),
    # kB of shared memory of a multiprocessor, of which every block loses one: CUDA Programming Guide, compute
    # capabilities. The blocks are those that `__launch_bounds__` asks for.
    [("75", 64, 2), ("80", 164, 4), ("86", 100, 3), ("89", 100, 3), ("90", 228, 6), ("100", 228, 5), ("120", 100, 3)],
)
def test_no_architecture_spills_and_its_blocks_fit(tmp_path, architecture, shared, blocks):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on this machine")
    known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True, timeout=60).stdout
    if f"sm_{architecture}" not in known.split():
        pytest.skip(f"this nvcc does not know sm_{architecture}")
    source = tmp_path / "sweep.cu"
    source.write_text(sweep_cupy.source())
    command = [
        nvcc,
        *nvrtc.OPTIONS,
        f"-arch=sm_{architecture}",
        "-cubin",
        "-Xptxas",
        "-v",
        "-o",
        tmp_path / "cubin",
        source,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert set(re.findall(r"(\d+) bytes spill", done.stderr)) == {"0"}
    used = re.search(r"'sweep' for.*?Used (\d+) registers.*?(\d+) bytes smem", done.stderr, re.S)
    registers, memory = -(-int(used[1]) // 8) * 8, int(used[2])
    fit = min(65536 // (256 * registers), shared * 1024 // (memory + 1024))
    assert fit == blocks, f"{registers} registers, {memory} bytes"


def test_the_sources_constants_are_pythons():
    code = sweep_cupy.source()
    for name, value in (
        ("LEVELS", LEVELS),
        ("THREADS", sweep_cupy.THREADS),
        ("RUN", RUN),
        ("EQUAL", EQUAL),
        ("BAND", BAND),
    ):
        assert re.findall(rf"#define {name} +(\d+)", code) == [str(value)]
    kinds = re.findall(r"#define (MINMAX|MAX_ONLY) +(\d+)", code)
    assert kinds == [("MINMAX", "0"), ("MAX_ONLY", "1")] and get_args(Normalise)[:2] == ("minmax", "max")


@pytest.fixture(scope="module")
def compiling():
    return compiling_cupy()


def test_what_is_loaded_on_a_device_is_compiled_with_the_options_stated_and_no_other(compiling, monkeypatch):
    """As in a run: the code that `load_kernels` gives to the device, its assembler text, and the compiler's options."""
    compiled, loaded, passed = [], [], []
    real, binding = nvrtc.compile_source, compiling.cuda.nvrtc

    def compile_program(program, options):
        passed.append(list(options))
        binding.compileProgram(program, options)

    names = ("createProgram", "getCUBIN", "getPTX", "getProgramLog", "destroyProgram")
    monkeypatch.setattr(nvrtc, "compile_source", lambda *a: compiled.append(real(*a)) or compiled[-1])
    fake = cupy_on_cpu.fake_cupy(None)
    fake.cuda.function.Module = lambda: SimpleNamespace(load=loaded.append, get_function=None)
    fake.cuda.nvrtc = SimpleNamespace(compileProgram=compile_program, **{n: getattr(binding, n) for n in names})
    monkeypatch.setitem(sys.modules, "cupy", fake)
    sweep_cupy._kernels.cache_clear()
    try:
        sweep_cupy._kernels(0)
    finally:
        sweep_cupy._kernels.cache_clear()
    assert passed == [[*nvrtc.OPTIONS, "--gpu-architecture=sm_90"]]
    assert loaded == [compiled[0].cubin] and loaded[0].startswith(b"\x7fELF") and len(loaded[0]) > 5000
    ptx = compiled[0].ptx
    assert ".target sm_90" in ptx and all(f".entry {name}(" in ptx for name in KERNELS)
    assert set(re.findall(r"\b(?:add|sub|mul|div|cvt)\.rn\.\S*f(?:32|64)\S*", ptx)) >= ROUNDED
    assert ".ftz" not in ptx and "approx" not in ptx
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "-ftz=true"))  # what CuPy's own compilation appends
    assert real(compiling, sweep_cupy.source(), "sweep.cu", "90").ptx.count(".ftz") > 50


@pytest.mark.parametrize(
    ("source", "capability", "words"),
    [("__global__ void f( {", "90", "sweep.cu(1): error"), ("", "91", "compute capability 91: nvrtc: error")],
)
def test_what_does_not_compile_is_said(compiling, source, capability, words):
    with pytest.raises(nvrtc.KernelError, match=re.escape(words)) as raised:
        nvrtc.compile_source(compiling, source, "sweep.cu", capability)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (12090, "libnvrtc.so.12, is not found; install nvidia-cuda-nvrtc-cu12, which xbench-fast[gpu] includes."),
        (13020, "libnvrtc.so.13, is not found; install nvidia-cuda-nvrtc, which xbench-fast[gpu-cuda13] includes."),
        (14000, "libnvrtc.so.14, is not found; install nvidia-cuda-nvrtc."),
    ],
)
def test_a_missing_compiler_is_named_with_what_to_install(version, words):
    def absent(*_):
        raise RuntimeError('Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file\n')  # as cuda-pathfinder

    binding, runtime = SimpleNamespace(createProgram=absent), SimpleNamespace(runtimeGetVersion=lambda: version)
    cupy = SimpleNamespace(cuda=SimpleNamespace(nvrtc=binding, runtime=runtime))
    with pytest.raises(nvrtc.KernelError) as raised:
        nvrtc.compile_source(cupy, "", "sweep.cu", "90")
    assert str(raised.value) == f"The compiler for GPU kernels, {words}"


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
