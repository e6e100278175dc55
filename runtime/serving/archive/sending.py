"""The objects of a study into an archive: each once, none over another one (docs/pacs.md §4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ...reporting.dicom.dicom_object import DicomObject
from .archive import Archive, check_answered, is_busy
from .dicom_json import StoreAnswer

_MOST_BYTES: Final = 64 << 20  # of one request; servers limit it, and a failure repeats all of it
_SEARCHES: Final = 3  # of an object that the archive says it stored

Differs = Callable[[bytes, bytes], bool]


def missing(archive: Archive, objects: Sequence[DicomObject], differs: Differs) -> tuple[list[DicomObject], int]:
    """The objects that the archive lacks, and how many of the others differ from those it has. Raises ArchiveError."""
    absent, changed = list[DicomObject](), 0
    for made in objects:
        place = archive.find(made.uid)
        if place is None:
            absent.append(made)
        else:
            changed += differs(archive.fetch(place), made.content)
    return absent, changed


def store(archive: Archive, objects: Sequence[DicomObject]) -> dict[str, str]:
    """Stores objects that the archive lacks: UID -> why it is not stored, of those that are not.

    Raises ArchiveError when the archive does not answer; objects may be stored then.
    """
    refused: dict[str, str] = {}
    for group in _groups(objects):
        left = _send(archive, group)
        if len(group) > 1:  # the answer need not name the one that was bad, and others fail with it
            left = {uid: why for made in group if made.uid in left for uid, why in _send(archive, [made]).items()}
        refused.update(left)
    return refused


def _send(archive: Archive, objects: Sequence[DicomObject]) -> Mapping[str, str]:
    """Sends objects in one request: UID -> why, of those that the archive does not have afterwards."""
    left = {made.uid: made for made in objects}
    tries = 0
    while left:
        tries += 1
        reply, answer = archive.post([made.content for made in left.values()])
        check_answered(reply)
        # Only a search says what is stored: after a lost answer something may be, after "stored" nothing. 429: none.
        if reply.status != 429:
            _drop_found(archive, left)
        for search in range(1, _SEARCHES):  # an archive may list an object a moment after it took it
            if not left.keys() & answer.stored:
                break
            archive.tries.wait(search, reply)
            _drop_found(archive, left)
        if left and not is_busy(reply):
            return {uid: _reason(reply.status, answer, uid) for uid in left}
        if left:
            archive.tries.wait(tries, reply)
    return {}


def _drop_found(archive: Archive, left: dict[str, DicomObject]) -> None:
    for uid in list(left):
        if archive.find(uid) is not None:
            del left[uid]


def _reason(status: int, answer: StoreAnswer, uid: str) -> str:
    if uid in answer.stored:
        return "the archive says that it stored it, and does not find it"
    failure = answer.failed.get(uid, 0)
    return f"the archive does not store it (status {status}{f', reason {failure:04X}' if failure else ''})"


def _groups(objects: Sequence[DicomObject]) -> Iterator[list[DicomObject]]:
    """The objects in requests of at most `_MOST_BYTES`; a larger one alone."""
    group, size = list[DicomObject](), 0
    for made in objects:
        if group and size + len(made.content) > _MOST_BYTES:
            yield group
            group, size = [], 0
        group.append(made)
        size += len(made.content)
    if group:
        yield group
