"""What an archive says in DICOM JSON: entries of a search, and what became of stored objects (docs/pacs.md §3).

Nothing here is trusted: a value of another form counts as absent, and addresses that an archive states are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ....engines.strict_json import no_constant
from ...data.images.dicom.elements import valid_uid

STUDY, SERIES, INSTANCE, ROWS, FRAMES = "0020000D", "0020000E", "00080018", "00280010", "00280008"
MODALITY, INSTANCES = "00080060", "00201209"
_STORED, _FAILED, _OBJECT, _REASON = "00081199", "00081198", "00081155", "00081197"
_JSON: Final = ("application/dicom+json", "application/json")

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class StoreAnswer:
    """stored: UIDs of objects that the archive has taken. failed: UID -> the archive's number of the reason, or 0."""

    stored: frozenset[str] = frozenset()
    failed: Mapping[str, int] = field(default_factory=dict)


def parse(body: bytes, content_type: str) -> Any:
    """The document of an answer. Raises ValueError for anything but JSON."""
    if content_type.partition(";")[0].strip().lower() not in _JSON:
        raise ValueError("no JSON")
    try:
        return json.loads(body, parse_constant=no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def entries_of(document: Any) -> list[Entry]:
    """The entries of a search; an empty one for what is none. Raises ValueError for another document."""
    if not isinstance(document, list):
        raise ValueError("no list")
    return [entry if isinstance(entry, dict) else {} for entry in document]


def uid_of(entry: Entry, tag: str) -> str:
    """A UID of an entry; empty where there is none or it is not valid."""
    value = _first(entry, tag)
    return valid_uid(value) if isinstance(value, str) else ""


def number_of(entry: Entry, tag: str) -> int | None:
    """A number of an entry; None where there is none."""
    value = _first(entry, tag)
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value[:12])  # an integer string, which some archives leave a string
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(entry: Entry, tag: str) -> str:
    """A text of an entry; empty where there is none."""
    value = _first(entry, tag)
    return value.strip() if isinstance(value, str) else ""


def store_answer(document: Any) -> StoreAnswer:
    """What became of the objects of a request; nothing of another document."""
    if not isinstance(document, dict):
        return StoreAnswer()
    stored = frozenset(uid for item in _items(document, _STORED) if (uid := uid_of(item, _OBJECT)))
    failed = {uid_of(item, _OBJECT): number_of(item, _REASON) or 0 for item in _items(document, _FAILED)}
    failed.pop("", None)
    return StoreAnswer(stored - failed.keys(), failed)


def _items(document: Entry, tag: str) -> list[Entry]:
    element = document.get(tag)
    values = element.get("Value") if isinstance(element, dict) else None
    return [item for item in values if isinstance(item, dict)] if isinstance(values, list) else []


def _first(entry: Entry, tag: str) -> Any:
    element = entry.get(tag)
    values = element.get("Value") if isinstance(element, dict) else None
    return values[0] if isinstance(values, list) and values else None
