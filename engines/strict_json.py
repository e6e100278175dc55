"""JSON files that are not trusted: hooks that refuse duplicate keys, NaN and Infinity, and a checksum of the values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

CHECKSUM: Final = "checksum"
"""The key of a document's checksum, which covers every other key."""

K = TypeVar("K")
_SHOWN = 80


def distinct_keys(pairs: list[tuple[K, Any]]) -> dict[K, Any]:
    """For `object_pairs_hook`: refuses a duplicate key, of which the parser would silently keep the last value.

    Raises ValueError, naming the key.
    """
    entries = dict(pairs)
    if len(entries) != len(pairs):
        seen: set[K] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key '{str(key)[:_SHOWN]}' appears twice")
            seen.add(key)
    return entries


def parse_json(text: str | bytes) -> Any:
    """The content of a JSON document of a user. Raises ValueError; also for a key that an object has twice."""
    return json.loads(text, object_pairs_hook=distinct_keys)


def no_constant(text: str) -> NoReturn:
    """For `parse_constant`: NaN and Infinity are not valid JSON. Raises ValueError."""
    raise ValueError(f"{text} is not a number")


def checksum_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document's values as canonical JSON, without its key `CHECKSUM`; layout does not count.

    Raises ValueError and RecursionError for values that JSON cannot hold.
    """
    values = {key: value for key, value in document.items() if key != CHECKSUM}
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
