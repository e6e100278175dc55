"""The name of this machine's processor."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_model() -> str:
    """The processor's marketing name, or the architecture if the system does not give the name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
