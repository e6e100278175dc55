"""Chooses the engine that runs a bundle on this machine, with the reasons against the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .backends.gpu import gpu_seen
from .base import Engine, EngineOptions
from .bundle import Bundle
from .errors import ConfigError, EngineError
from .registry import Registry, did_you_mean

_PACKAGE = f"{__package__}.backends"
ENGINES = Registry(
    "engine",
    {
        "tensorrt": f"{_PACKAGE}.tensorrt:TensorRtEngine",
        "tensorrt-rtx": f"{_PACKAGE}.tensorrt:TensorRtRtxEngine",
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
        "onnxruntime-cuda": f"{_PACKAGE}.ort_cuda:cuda_reason",
        "onnxruntime-cpu": f"{_PACKAGE}.ort:cpu_reason",
    },
)
# Why `auto` skips an engine that can be tried.
_DOUBTS = Registry("engine", {"tensorrt-rtx": f"{_PACKAGE}.tensorrt:tensorrt_rtx_doubt"})
PREFERENCE = ("tensorrt", "tensorrt-rtx", "onnxruntime-cuda", "onnxruntime-cpu")


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend can run here; `reason` says why not, or is empty."""

    name: str
    usable: bool
    reason: str


def backend_status() -> list[BackendStatus]:
    """Every built-in backend, best first, each really started once."""
    states = []
    for name in PREFERENCE:
        reason = _asked(_REASONS, name)
        states.append(BackendStatus(name, reason is None, reason or ""))
    return states


def check_engine(name: str) -> None:
    """Raises ConfigError for a name that is no engine, "module:Class" or auto; nothing is imported."""
    names = ["auto", *ENGINES.names()]
    if name not in names and ":" not in name:
        raise ConfigError(f"Unknown engine '{name}': {did_you_mean(name, names)}.")


def choose(name: str = "auto") -> tuple[str, str]:
    """The backend's name and one line about it. Raises EngineError when `auto` finds none.

    `auto` takes the first of `PREFERENCE` that can run here and is made for this GPU; a name is taken as it is. If
    there is a GPU, the line says why no better one is used; `backend_status` says it on every machine.
    """
    if name != "auto":
        return name, f"engine {name} (as asked)"
    refused: list[tuple[str, str]] = []
    reason: str | None = None
    for candidate in PREFERENCE:
        reason = _asked(_REASONS, candidate)
        if reason is None and candidate in _DOUBTS.names():
            reason = _asked(_DOUBTS, candidate)
        if reason is None:
            return candidate, f"engine {candidate}{_against(candidate, refused)}"
        refused.append((candidate, reason))
    raise EngineError(f"No engine can run here: {_end(reason)}; xbench-fast doctor lists every engine.")


def open_engine(
    bundle: Bundle, name: str = "auto", *, threads: int | None = None, options: EngineOptions | None = None
) -> Engine:
    """An engine for `bundle`, to be used in a with statement. Raises ConfigError or EngineError."""
    chosen, _ = choose(name)
    engine: Engine = ENGINES.load(chosen)(bundle, threads=threads, options=options)
    return engine


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


def _asked(registry: Registry, name: str) -> str | None:
    probe: Callable[[], str | None] = registry.load(name)
    return probe()
