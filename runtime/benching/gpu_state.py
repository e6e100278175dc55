"""Clocks, power and throttling of the GPU, as nvidia-smi reports them. No setting is changed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Final

Query = Callable[[str], str | None]

_NUMBERS: Final = ("clocks.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu", "utilization.gpu")
# The driver renamed the field; the old name is queried if the new one is unknown.
_REASONS: Final = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")

BAD_REASONS: Final = {0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
                      0x80: "hardware power brake"}  # fmt: skip
"""Bits of the active clock reasons that make a measurement depend on cooling more than on the code. A power cap (0x4)
is normal under load."""


def gpu_state(device: int = 0, ask: Query | None = None) -> dict[str, Any] | None:
    """Clocks (MHz), power (W), temperature (degrees Celsius), utilisation (%) and the bits of `reasons`, each None
    if the driver does not report it; None if there is no nvidia-smi or it finds no GPU."""
    if ask is None:
        ask = _smi(device)
        if ask is None:
            return None
    answer = ask(",".join(_NUMBERS))
    if answer is None:
        return None
    cells = [cell.strip() for cell in answer.split(",")]
    state: dict[str, Any] = {name.replace(".", "_"): _number(cell) for name, cell in zip(_NUMBERS, cells, strict=False)}
    state["reasons"] = None
    for name in _REASONS:
        bits = ask(name)
        if bits is not None and bits.strip().lower().startswith("0x"):
            state["reasons"] = int(bits.strip(), 16)
            break
    return state


def throttling(states: Sequence[dict[str, Any] | None]) -> str | None:
    """What limited the clocks in one of `states`, in words; None if nothing did."""
    active = 0
    for state in states:
        active |= (state or {}).get("reasons") or 0
    words = [word for bit, word in BAD_REASONS.items() if active & bit]
    return f"the GPU's clocks were held down ({', '.join(words)})" if words else None


def _smi(device: int) -> Query | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None

    def ask(fields: str) -> str | None:
        command = [program, f"--id={device}", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        lines = done.stdout.strip().splitlines()
        return lines[0] if done.returncode == 0 and lines else None

    return ask


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
