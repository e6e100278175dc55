"""The token of a server: read from a file or the environment, and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

from ...engines.errors import ConfigError
from .protocol.request_errors import Unauthenticated

TOKEN_VARIABLE: Final = "XBENCH_FAST_TOKEN"


def read_token(file: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """The token in `file`, else in the environment's `variable`, without the line end of a file; None if there is none.

    It is never a command-line flag, since other users can read the flags of a process. Raises ConfigError for a file
    that cannot be read and for an invalid token, so that the server does not start without protection.
    """
    where = f"the variable {variable}" if file is None else str(file)
    try:
        text = os.environ.get(variable, "") if file is None else file.read_text(encoding="utf-8")
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
        scheme, _, given = header.partition(b" ")
        # Digests have equal lengths, so that the time of the comparison is constant.
        if not hmac.compare_digest(_digest(given.strip()), self._token) or scheme.lower() != b"bearer":
            raise Unauthenticated("This server needs a token: send the header 'Authorization: Bearer <token>'.")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
