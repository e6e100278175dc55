"""Bodies of several parts, multipart/related (RFC 2387), of DICOM objects (docs/pacs.md §3)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

DICOM: Final = "application/dicom"
RELATED: Final = "multipart/related"
_BOUNDARY: Final = re.compile(r';\s*boundary\s*=\s*(?:"([^"]{1,70})"|([^\s;",]{1,70}))', re.IGNORECASE)
_PART: Final = re.compile(rb"\r\nContent-Type:[ \t]*application/dicom[ \t]*(;|\r\n|$)", re.IGNORECASE)
_MOST_HEADERS: Final = 8192


class PartError(Exception):
    """An answer is not one DICOM object; the text says why, as a clause. cut: it ends too early, so that another try
    may give more."""

    def __init__(self, problem: str, *, cut: bool = False) -> None:
        super().__init__(problem)
        self.cut = cut


def only_object(body: bytes, content_type: str) -> bytes:
    """The one DICOM object in an answer, byte for byte. Raises PartError."""
    media = content_type.partition(";")[0].strip().lower()
    if media == DICOM:
        return body
    if media != RELATED:
        raise PartError("it is no multipart/related")
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise PartError("its header names no boundary")
    line = b"--" + (found[1] or found[2]).encode("latin-1", "replace")
    begin = 0 if body.startswith(line) else body.find(b"\r\n" + line) + 2
    if begin == 1 or body[begin + len(line) :].startswith(b"--"):
        raise PartError("it has no part at its boundary")
    end_of_line = body.find(b"\r\n", begin + len(line))
    # An empty header ends with the line of the boundary itself.
    end_of_headers = body.find(b"\r\n\r\n", end_of_line) if end_of_line >= 0 else -1
    if end_of_headers < 0:
        raise PartError("it ends within the headers of its part", cut=True)
    headers = body[end_of_line:end_of_headers]
    if len(headers) > _MOST_HEADERS or _PART.search(headers) is None:
        raise PartError("its part is no application/dicom")
    first = end_of_headers + 4
    last = body.find(b"\r\n" + line, first)
    if last < 0:
        raise PartError("it ends before its boundary", cut=True)
    if not body.startswith(b"--", last + 2 + len(line)):
        raise PartError("it has several parts")
    return body[first:last]


def body_of(objects: Sequence[bytes]) -> tuple[str, list[bytes]]:
    """The content type and the pieces of a body with these objects.

    The boundary follows from the objects, so that equal objects are equal bytes; none of them holds it.
    """
    digest = hashlib.sha256()
    for content in objects:
        digest.update(content)
    boundary = digest.hexdigest()
    while any(boundary.encode() in content for content in objects):
        boundary = hashlib.sha256(boundary.encode()).hexdigest()
    line = boundary.encode()
    head = b"--%s\r\nContent-Type: application/dicom\r\n\r\n" % line
    pieces = [piece for content in objects for piece in (head, content, b"\r\n")]
    return f'{RELATED}; type="{DICOM}"; boundary={boundary}', [*pieces, b"--%s--\r\n" % line]
