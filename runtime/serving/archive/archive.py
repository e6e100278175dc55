"""An archive by DICOMweb: searches, whole films and the storing of objects, each with its tries (docs/pacs.md §3).

No message quotes what an archive says: any text of it can hold a patient's name.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from ....engines.errors import RunError
from ...host.http.http_client import Client, Reply
from ...host.http.waits import LONGEST_WAIT, back_off, retry_after
from ..protocol.multipart import PartError, body_of, only_object
from .dicom_json import (
    FRAMES,
    INSTANCE,
    INSTANCES,
    MODALITY,
    ROWS,
    SERIES,
    STUDY,
    Entry,
    StoreAnswer,
    entries_of,
    number_of,
    parse,
    store_answer,
    text_of,
    uid_of,
)

_PAGE: Final = 100
_JSON: Final = "application/dicom+json"
_WHOLE: Final = 'multipart/related; type="application/dicom"; transfer-syntax=*'
"""With another transfer syntax an archive may code the pixels again."""

_SHORT_WAIT: Final = 0.01


class ArchiveError(RunError):
    """A request that an archive did not answer as it should. final: no other request will fare better, as without a
    valid token. down: the archive failed in all tries."""

    def __init__(self, message: str, *, final: bool = False, down: bool = False) -> None:
        super().__init__(message)
        self.final, self.down = final, down


@dataclass(frozen=True)
class Instance:
    """An instance as a search names it. rows and frames: None where the archive does not say."""

    study: str
    series: str
    uid: str
    rows: int | None = None
    frames: int | None = None


@dataclass
class Tries:
    """Tries of a request, and what tests replace: the random factor of waits. stop ends every wait.

    left: tries after a failure that all requests together still have.
    """

    each: int = 8
    left: int = 1000
    factor: Callable[[], float] = random.random
    stop: threading.Event = field(default_factory=threading.Event)

    def wait(self, tries: int, reply: Reply) -> None:
        """Waits before another try. Raises ArchiveError where none is left."""
        self.left -= 1
        reason = reply.fault or f"status {reply.status}"
        if tries >= self.each:
            raise ArchiveError(f"the archive failed {tries} times, at last: {reason}", down=True)
        if self.left < 0:
            raise ArchiveError(f"no tries are left, the last failure: {reason}; run the same command later", final=True)
        told = retry_after(reply.retry_after, datetime.now(UTC))
        if told is not None and told > LONGEST_WAIT:
            raise ArchiveError(f"the archive asks to wait {told:.0f} s; run the same command again then", final=True)
        seconds = back_off(tries, self.factor()) if told is None else told
        if self.stop.wait(max(seconds, _SHORT_WAIT)):
            raise ArchiveError("the run was stopped", final=True)


def is_busy(reply: Reply) -> bool:
    """Whether the same request may be answered later."""
    return reply.status in (0, 408, 429) or reply.status >= 500


def check_answered(reply: Reply) -> None:
    """Raises a final ArchiveError for an answer that all requests would get."""
    if reply.untrusted:
        raise ArchiveError(f"the archive is not trusted: {reply.fault}", final=True)
    if reply.status in (401, 403):
        raise ArchiveError(f"the archive refuses the token (status {reply.status}); check --token-file", final=True)
    if 300 <= reply.status < 400:
        raise ArchiveError(
            f"the archive redirects (status {reply.status}), and no redirect is followed; give the address itself",
            final=True,
        )


class Archive:
    """What an archive at an address answers. most: bytes of a film. Methods raise ArchiveError, a clause.

    unusable: hashes of the listed entries without a valid UID, which are left out.
    """

    def __init__(self, client: Client, tries: Tries, most: int) -> None:
        self._client, self.tries, self._most = client, tries, most
        self.unusable: set[int] = set()

    def series(self, modality: str, filters: Sequence[tuple[str, str]] = ()) -> Iterator[tuple[str, str]]:
        """(study, series) of all series of a modality; filters: attributes and values of the search."""
        for entry in self._search("/series", [("Modality", modality), *filters], SERIES, STUDY):
            if text_of(entry, MODALITY) in ("", modality):  # an archive may ignore what it is searched by
                yield uid_of(entry, STUDY), uid_of(entry, SERIES)

    def series_of(self, study: str) -> Iterator[tuple[str, str, int | None]]:
        """(series, modality, instances) of all series of a study; instances: None where the archive does not say."""
        for entry in self._search(f"/studies/{study}/series", [("includefield", INSTANCES)], SERIES):
            yield uid_of(entry, SERIES), text_of(entry, MODALITY), number_of(entry, INSTANCES)

    def instances(self, study: str, series: str) -> Iterator[Instance]:
        """The instances of a series."""
        fields = [("includefield", tag) for tag in (ROWS, FRAMES)]
        for entry in self._search(f"/studies/{study}/series/{series}/instances", fields, INSTANCE):
            uid = uid_of(entry, INSTANCE)
            yield Instance(study, series, uid, number_of(entry, ROWS), number_of(entry, FRAMES))

    def find(self, uid: str) -> Instance | None:
        """The instance with this UID; None if the archive has none."""
        for entry in self._page("/instances", [("SOPInstanceUID", uid)]):
            # An archive that ignores the filter answers with others.
            if uid_of(entry, INSTANCE) == uid and (study := uid_of(entry, STUDY)) and (series := uid_of(entry, SERIES)):
                return Instance(study, series, uid)
        return None

    def fetch(self, instance: Instance) -> bytes:
        """The whole file of an instance, byte for byte."""
        path = f"/studies/{instance.study}/series/{instance.series}/instances/{instance.uid}"
        tries = 0
        while True:
            tries += 1
            reply = self._get(path, _WHOLE, self._most)
            if reply.status != 200:
                raise ArchiveError(f"the archive does not give it (status {reply.status})")
            if not reply.whole:
                raise ArchiveError(f"it has more than {self._most} bytes; see --max-instance")
            try:
                return only_object(reply.body, reply.content_type)
            except PartError as error:
                if not error.cut:
                    raise ArchiveError(f"the archive's answer cannot be used: {error}") from None
                self.tries.wait(tries, Reply(0, fault=f"the answer is incomplete: {error}"))

    def post(self, objects: Sequence[bytes]) -> tuple[Reply, StoreAnswer]:
        """One request that stores objects of a study, without another try; the reply, and what it says of them."""
        kind, pieces = body_of(objects)
        reply = self._client.post("/studies", pieces, kind, _JSON)
        try:
            return reply, store_answer(parse(reply.body, reply.content_type) if reply.whole else None)
        except ValueError:
            return reply, StoreAnswer()

    def _search(self, path: str, parameters: Sequence[tuple[str, str]], key: str, *others: str) -> Iterator[Entry]:
        """The entries of all pages with the UIDs `key` and `others`, each once. A page without new ones is the last."""
        seen: set[str] = set()
        offset = 0
        while True:
            entries = self._page(path, [*parameters, ("limit", str(_PAGE)), ("offset", str(offset))])
            # An archive may give fewer than were asked for, and one that ignores the offset gives the same for ever.
            known = len(seen)
            for entry in entries:
                uid = uid_of(entry, key)
                if not all(uid_of(entry, tag) for tag in (key, *others)):
                    self.unusable.add(hash(repr(entry)))
                elif uid not in seen:
                    seen.add(uid)
                    yield entry
            if len(seen) == known:
                return
            offset += len(entries)

    def _page(self, path: str, parameters: Sequence[tuple[str, str]]) -> list[Entry]:
        reply = self._get(f"{path}?{urlencode(parameters, quote_via=quote)}", _JSON)
        if reply.status == 204:
            return []
        if reply.status not in (200, 206) or not reply.whole:  # 206: the rest is on the next page
            what = f"status {reply.status}" if reply.whole else "its answer is too large"
            raise ArchiveError(f"the archive's search failed ({what})")
        try:
            return entries_of(parse(reply.body, reply.content_type))
        except ValueError:
            raise ArchiveError("the archive's answer to a search is no DICOM JSON; check the address") from None

    def _get(self, path: str, accept: str, most: int = 16 << 20) -> Reply:
        tries = 0
        while True:
            tries += 1
            reply = self._client.get(path, accept=accept, most=most)
            check_answered(reply)
            if not is_busy(reply):
                return reply
            self.tries.wait(tries, reply)
