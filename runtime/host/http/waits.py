"""How long a client waits before another try."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime
from typing import Final

LONGEST_WAIT: Final = 300
"""Seconds of Retry-After above which nothing is waited for."""

_LONGEST_BACK_OFF: Final = 60.0


def back_off(tries: int, factor: float) -> float:
    """Seconds to wait after `tries` tries where the server says nothing; factor: random, from 0 to 1."""
    return min(_LONGEST_BACK_OFF, 2.0 ** (tries - 1)) * factor


def retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds of a Retry-After, which is a number or a date; None for another one."""
    text = (header or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        date = email.utils.parsedate_to_datetime(text)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp())
    except (ValueError, TypeError, OverflowError):
        return None
