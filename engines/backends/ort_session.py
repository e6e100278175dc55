"""Opens ONNX Runtime sessions, with its errors as EngineError, and compares a graph's interface with its bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..bundle import Bundle
from ..errors import EngineError, MissingExtraError
from ..extras import RUNNING, missing_package
from ..manifest import GraphSpec
from .rounding import with_rounding

CPU_PROVIDER: Final = "CPUExecutionProvider"

IDENTITY: Final = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801620f0a0179120a0a08080112040a02"
    "080142040a001011"
)
"""A graph of one Identity node: enough to see whether a provider really starts."""

_SPIN: Final = {"session.intra_op.spin_duration_us": "20"}
"""How long a thread waits for its next piece of work before it sleeps. By default it waits for milliseconds on a core
that other sessions, decoding and the sweep need; this is as long as the gaps between two operations of a graph. The
results do not depend on it; earlier versions of the library ignore it."""

_TYPES = {"uint8": "tensor(uint8)", "int64": "tensor(int64)", "float16": "tensor(float16)", "float32": "tensor(float)"}


def load_onnxruntime() -> Any:
    """The module onnxruntime. Raises MissingExtraError when it is not installed."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(missing_package("onnxruntime", *RUNNING)) from error
    return onnxruntime


def open_session(
    graph: Path | bytes,
    providers: Sequence[Any],
    threads: int | None,
    *,
    entries: Mapping[str, str] | None = None,
    optimise: bool = True,
    arena: bool = True,
) -> Any:
    """A session of the graph in a file, or of its bytes.

    providers: as onnxruntime takes them, best first. entries: session configuration. optimise: whether the library may
    rewrite the graph. arena: whether memory is kept between runs.
    A provider that fails is an error, at creation and while running: by default the library would print a banner and
    continue on the CPU. Raises MissingExtraError, and EngineError with the library's reason.
    """
    ort = load_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4  # failures arrive as exceptions; the library's own prints would only repeat them
    options.enable_cpu_mem_arena = arena
    if threads is not None:
        options.intra_op_num_threads = threads
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, value in {**_SPIN, **(entries or {})}.items():
        options.add_session_config_entry(name, value)
    source = graph if isinstance(graph, bytes) else str(graph)
    try:
        session = ort.InferenceSession(source, options, providers=list(providers), enable_fallback=0)
    except Exception as error:  # the library raises its own classes, which share no base but Exception
        raise EngineError(
            f"ONNX Runtime cannot load {graph if isinstance(graph, Path) else 'a graph'}: {error}"
        ) from error
    session.disable_fallback()  # version 1.22 does not know the keyword
    return session


def check_interface(session: Any, spec: GraphSpec, bundle: Bundle) -> None:
    """Raises EngineError unless the file has the tensors that bundle.json states; dynamic axes may have any name."""
    for side, stated, actual in (
        ("input", spec.inputs, session.get_inputs()),
        ("output", spec.outputs, session.get_outputs()),
    ):
        have = {t.name: (t.type, [n if isinstance(n, int) else None for n in t.shape]) for t in actual}
        want = {t.name: (_TYPES[t.dtype], [n if isinstance(n, int) else None for n in t.shape]) for t in stated}
        if have != want:
            raise EngineError(
                f"{bundle.path / spec.file} has the {side}s {have}, bundle.json promises {want}; export it again."
            )


def graph_for_cpu(graph: Path, precision: str) -> Path | bytes:
    """The graph for the CPU provider, which has no bfloat16: a bf16 graph gets float32 operations that round."""
    return with_rounding(graph) if precision == "bf16" else graph
