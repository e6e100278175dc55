"""Amounts of data as text: "20 GB" -> bytes, and bytes -> text."""

from __future__ import annotations

import math
import re

from ...engines.errors import ConfigError

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    _UNITS |= {_letter: 1000**_power, f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power}


def parse_bytes(text: str | int, where: str) -> int:
    """Bytes from "20 GB" (10^9), "20 GiB" (2^30), "500M" or a plain number; `where` names the flag or key.

    Raises ConfigError.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(text).lower())
    if match is None or match[2] not in _UNITS or isinstance(text, bool):
        raise ConfigError(f"{where} must be an amount of data such as 20GB, 500MB or 1.5GiB, not '{text}'.")
    amount = float(match[1]) * _UNITS[match[2]]
    if not math.isfinite(amount):
        raise ConfigError(f"{where} is larger than any disk; write an amount of data such as 20GB.")
    return int(amount)


def format_bytes(count: int) -> str:
    """A count of bytes in decimal units, three significant digits."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.{max(0, 3 - len(str(int(size))))}f} {unit}"
