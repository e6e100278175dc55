"""The token of a server: where it comes from, and a comparison whose time tells nothing."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

from ...engines.errors import ConfigError
from .protocol.request_errors import Unauthenticated

__all__ = ["TOKEN_VARIABLE", "Bearer", "read_token"]

TOKEN_VARIABLE: Final = "XBENCH_FAST_TOKEN"


def read_token(file: Path | None) -> str | None:
    """The token in `file`, else in the environment, without the line end that a file has; None: there is none.

    It is never a flag, since others can read a process's flags. Raises ConfigError for a file that cannot be read, and
    for what is no token: better no server than an open one.
    """
    where = f"the variable {TOKEN_VARIABLE}" if file is None else str(file)
    try:
        text = os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The token file {file} cannot be read: {error}.") from error
    if file is None and not text:
        return None
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"The token in {where} must be printable characters without spaces, at least one.")
    return token


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
