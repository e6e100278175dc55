"""The processor of this machine."""

from __future__ import annotations

import platform
from pathlib import Path


def cpuinfo() -> str:
    """The text of /proc/cpuinfo, empty where there is none."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_model() -> str:
    """The processor's marketing name, or the architecture if the system does not give the name."""
    for line in cpuinfo().splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
