"""Hooks for `json.loads` that refuse duplicate keys, NaN and Infinity."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

__all__ = ["distinct_keys", "no_constant"]

K = TypeVar("K")
_SHOWN = 80


def distinct_keys(pairs: list[tuple[K, Any]]) -> dict[K, Any]:
    """For `object_pairs_hook`: refuses a duplicate key, of which the parser would silently keep the last value.

    Raises ValueError, naming the key.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[K] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key '{str(key)[:_SHOWN]}' appears twice")
            seen.add(key)
    return found


def no_constant(text: str) -> NoReturn:
    """For `parse_constant`: NaN and Infinity are not valid JSON. Raises ValueError."""
    raise ValueError(f"{text} is not a number")
