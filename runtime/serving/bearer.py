"""The token of a server, compared so that the time it takes tells nothing."""

from __future__ import annotations

import hashlib
import hmac

from .errors import Unauthenticated

__all__ = ["Bearer"]


class Bearer:
    """What `Authorization: Bearer` must carry; None for no check."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else _digest(token.encode())

    def check(self, header: bytes) -> None:
        """Raises Unauthenticated unless `header`, the value of Authorization, carries the token."""
        if self._token is None:
            return
        kind, _, given = header.partition(b" ")
        # Digests have one length, so that comparing takes one time.
        if not hmac.compare_digest(_digest(given.strip()), self._token) or kind.lower() != b"bearer":
            raise Unauthenticated("This server needs a token: send the header 'Authorization: Bearer <token>'.")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
