"""Which archives may be talked to, and with which token (docs/pacs.md §2)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ....engines.errors import ConfigError
from ...host.http.server_address import Endpoint, Resolve, looked_up, parse_endpoint
from ..bearer import read_token

TOKEN_VARIABLE: Final = "XBENCH_FAST_ARCHIVE_TOKEN"
_EXAMPLE: Final = "http://127.0.0.1:8042/dicom-web"


def archive_endpoint(url: str, option: str, *, insecure: bool, resolve: Resolve | None = None) -> Endpoint:
    """The address of an archive, resolved. Raises ConfigError, also for http to another machine."""
    parsed = parse_endpoint(url, option, _EXAMPLE, "give the file of a token: --token-file")
    endpoint, problem = looked_up(parsed, resolve)
    if problem:
        raise ConfigError(f"The host {endpoint.host} cannot be found: {problem}; check {option}.")
    if endpoint.scheme == "http" and not endpoint.local and not insecure:
        raise ConfigError(
            f"{option} is http, and films with names would cross the network in the clear; write https, or "
            "--insecure-http where the network itself is protected."
        )
    return endpoint


def archive_token(file: Path | None, *, variable: bool) -> str | None:
    """The token of a file, else that of `TOKEN_VARIABLE` if `variable`; None for none. Raises ConfigError."""
    return read_token(file, TOKEN_VARIABLE) if file is not None or variable else None
