"""Chooses the engine that runs a bundle on this machine, with the reasons against the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .backends.gpu import check_gpu, gpu_seen
from .base import CPU_BATCH, Engine, EngineOptions
from .bundle import Bundle
from .errors import ConfigError, EngineError
from .plans.family import GPU_BATCH
from .registry import Registry, did_you_mean

_PACKAGE = f"{__package__}.backends"
ENGINES = Registry(
    "engine",
    {
        "tensorrt": f"{_PACKAGE}.tensorrt:TensorRtEngine",
        "tensorrt-rtx": f"{_PACKAGE}.tensorrt:TensorRtRtxEngine",
        "torch": f"{_PACKAGE}.torch_engine:torch_engine",
        "onnxruntime-cuda": f"{_PACKAGE}.ort_cuda:cuda_engine",
        "onnxruntime-cpu": f"{_PACKAGE}.ort:CpuEngine",
    },
    group="xbench_fast.engines",
)
_REASONS = Registry(
    "engine",
    {
        "tensorrt": f"{_PACKAGE}.tensorrt:tensorrt_reason",
        "tensorrt-rtx": f"{_PACKAGE}.tensorrt:tensorrt_rtx_reason",
        "torch": f"{_PACKAGE}.torch_reasons:torch_reason",
        "onnxruntime-cuda": f"{_PACKAGE}.ort_cuda_session:cuda_reason",
        "onnxruntime-cpu": f"{_PACKAGE}.ort:cpu_reason",
    },
)
# Why `auto` skips an engine, also one that can be tried by name.
_DOUBTS = Registry(
    "engine",
    {
        "tensorrt-rtx": f"{_PACKAGE}.tensorrt:tensorrt_rtx_doubt",
        "torch": f"{_PACKAGE}.torch_reasons:torch_cuda_reason",
    },
)
PREFERENCE = ("tensorrt", "tensorrt-rtx", "torch", "onnxruntime-cuda", "onnxruntime-cpu")


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend can run here. `reason` says why not, or why `auto` does not choose it; else it is empty."""

    name: str
    usable: bool
    reason: str


def backend_status() -> list[BackendStatus]:
    """Every built-in backend, best first, each really started once."""
    states = []
    for name in PREFERENCE:
        reason = _asked(_REASONS, name)
        doubt = _asked(_DOUBTS, name) if reason is None and name in _DOUBTS.names() else None
        states.append(BackendStatus(name, reason is None, f"only by name: {doubt}" if doubt else reason or ""))
    return states


def check_engine(name: str) -> None:
    """Raises ConfigError for a name that is no engine, "module:Class" or auto; nothing is imported."""
    names = ["auto", *ENGINES.names()]
    if name not in names and ":" not in name:
        raise ConfigError(f"Unknown engine '{name}': {did_you_mean(name, names)}.")


def runs_on_gpu(name: str, device: int = 0) -> bool:
    """Whether a built-in engine computes on this GPU. Nothing is known of an engine that a package or a file adds."""
    if name == "torch":  # by name it runs on a CPU too
        return _asked(_DOUBTS, name, device) is None
    return name in PREFERENCE and name != PREFERENCE[-1]


def default_batch(name: str, device: int = 0) -> int:
    """Images per batch of an evaluation with this engine, where the user states none."""
    return GPU_BATCH if runs_on_gpu(name, device) else CPU_BATCH


def choose(name: str = "auto", gpu: int | None = None) -> tuple[str, str]:
    """The backend's name and one line about it. Raises EngineError when `auto` finds none.

    `auto` takes the first of `PREFERENCE` that can run here and is made for this GPU; a name is taken as it is. If
    there is a GPU, the line says why no better one is used; `backend_status` says it on every machine. gpu: the number
    of the GPU that the user asked for; None: the first one, or the CPU. Raises ConfigError where there is no GPU with
    this number, and where the engine computes on the CPU.
    """
    if gpu is not None:
        check_gpu(gpu)
    chosen, line = _choose(name, gpu or 0)
    if gpu is not None and chosen in PREFERENCE and not runs_on_gpu(chosen, gpu):
        raise ConfigError(f"--gpu is for engines on a GPU, and this one is {chosen}; leave it out, or name the engine.")
    return chosen, line


def _choose(name: str, device: int) -> tuple[str, str]:
    if name != "auto":
        return name, f"engine {name} (as asked)"
    refused: list[tuple[str, str]] = []
    reason: str | None = None
    for candidate in PREFERENCE:
        reason = _asked(_DOUBTS if candidate in _DOUBTS.names() else _REASONS, candidate, device)
        if reason is None:
            return candidate, f"engine {candidate}{_against(candidate, refused)}"
        refused.append((candidate, reason))
    raise EngineError(f"No engine can run here: {_end(reason)}; xbench-fast doctor lists every engine.")


def open_engine(
    bundle: Bundle,
    name: str = "auto",
    *,
    threads: int | None = None,
    options: EngineOptions | None = None,
    auto: bool = False,
) -> Engine:
    """An engine for `bundle`, to be used in a with statement. Raises ConfigError or EngineError.

    auto: whether `name` is what `auto` chose, so that the next engine is taken, with a message to `options.say`, where
    `name` cannot run this bundle. So it is for the name auto.
    """
    how = options or EngineOptions()
    chosen, _ = _choose(name, how.device)
    engine: Engine = ENGINES.load(chosen)(bundle, threads=threads, options=how)
    for candidate in _behind(chosen) if auto or name == "auto" else ():
        complaint = engine.complaint()
        if complaint is None:
            break
        if _asked(_DOUBTS if candidate in _DOUBTS.names() else _REASONS, candidate, how.device) is None:
            how.say(f"{bundle.name}: engine {candidate} instead of {engine.backend}, because {_end(complaint)}")
            engine = ENGINES.load(candidate)(bundle, threads=threads, options=how)
    return engine


def _behind(name: str) -> Sequence[str]:
    """The engines that `auto` prefers less."""
    return PREFERENCE[PREFERENCE.index(name) + 1 :] if name in PREFERENCE else ()


def _against(chosen: str, refused: Sequence[tuple[str, str]]) -> str:
    """The end of the line: why not the better engines. Without a GPU none of them is expected."""
    if chosen != PREFERENCE[-1]:
        return "".join(f"; not {name}: {_end(why)}" for name, why in refused)
    if not gpu_seen():
        return ""
    return f"; the GPU of this machine is not used: {_end(refused[-1][1])}; xbench-fast doctor says more"


def _end(reason: str | None) -> str:
    """A reason as a part of a sentence."""
    return (reason or "").rstrip(".")


def _asked(registry: Registry, name: str, device: int = 0) -> str | None:
    probe: Callable[[int], str | None] = registry.load(name)
    return probe(device)
