"""Imports TensorRT 10, TensorRT 11 or TensorRT for RTX, and hides the differences of their Python APIs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import EngineError, MissingExtraError
from ..extras import install_advice

FAMILIES: Final = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
"""Backend name -> Python module."""

GPU_BATCH: Final = 256
"""Images per batch of an evaluation on a GPU, and of a plan that is built ahead for it. A part of the
host's work does not grow with it: by a model of the loop, not measured on a GPU, batches of 16 reach 6,000 images/s."""

SERVED_BATCH: Final = 16
"""Default for the largest batch of a plan that a server runs."""

_ADVICE: Final = {
    "tensorrt": install_advice("tensorrt", "tensorrt-cuda13"),
    "tensorrt-rtx": "install tensorrt-rtx",
}


@dataclass
class Family:
    """One of `FAMILIES`, imported. `logger` keeps the library's messages in `messages`, newest last."""

    name: str
    module: Any
    version: str
    logger: Any
    messages: list[str] = field(default_factory=list)

    @property
    def strongly_typed_flag(self) -> int:
        """Flags of `create_network`: before version 11 a network is strongly typed only with this flag."""
        flags = self.module.NetworkDefinitionCreationFlag
        if self.name == "tensorrt" and int(self.version.split(".")[0]) < 11:
            return int(1 << int(flags.STRONGLY_TYPED))
        return 0

    @property
    def keeps_timings(self) -> bool:
        """Whether it has timing caches; TensorRT for RTX only prints a deprecation warning for its own."""
        return self.name == "tensorrt"

    def explain(self) -> str:
        """Returns the library's last messages as one line, and deletes them."""
        reasons = " ".join(" ".join(self.messages[-3:]).split())
        self.messages.clear()
        return reasons[:600] or "it gave no reason"


def load_family(name: str) -> Family:
    """Imports a family. Raises MissingExtraError when it is not installed, EngineError when it does not load."""
    try:
        module = importlib.import_module(FAMILIES[name])
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{name} is not installed; {_ADVICE[name]}.") from error
    except (ImportError, OSError) as error:
        raise EngineError(f"{name} is installed but does not load ({error}); {_ADVICE[name]} again.") from error
    messages: list[str] = []
    return Family(name, module, str(module.__version__), _logger(module, messages), messages)


def _logger(module: Any, messages: list[str]) -> Any:
    severity = module.ILogger.Severity

    class Logger(module.ILogger):  # type: ignore[misc]  # the module has no type stubs
        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, level: Any, message: str) -> None:
            if level in (severity.INTERNAL_ERROR, severity.ERROR):
                messages.append(message)

    return Logger()
