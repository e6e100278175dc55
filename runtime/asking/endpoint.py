"""The address of a server: what is accepted, and which hosts may be sent images (docs/ask.md §6)."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from ...engines.errors import ConfigError

CREDENTIALED: Final = ("mscxr", "padchest_gr", "vindr", "vindr_kaggle", "chexlocalize")
"""Readers of datasets under a data use agreement."""

RULE: Final = (
    "it is under a data use agreement, and PhysioNet's rules and others forbid sending its data to third parties "
    "(physionet.org/news/post/gpt-responsible-use)"
)
_PORTS: Final = {"http": 80, "https": 443}
_END: Final = "/chat/completions"

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True)
class Endpoint:
    """A server's address. base: path before `/chat/completions`; local: whether every address is of this machine.

    addresses: what the host resolves to, looked up once; connections go to the first that answers.
    """

    scheme: str
    host: str
    port: int
    base: str
    addresses: tuple[str, ...] = ()
    local: bool = True

    @property
    def shown(self) -> str:
        """The address in messages."""
        return f"{self.scheme}://{self.authority}{self.base}"

    @property
    def authority(self) -> str:
        """Host and port, as in the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_endpoint(url: str) -> Endpoint:
    """The parts of an address; nothing is looked up. Raises ConfigError, without repeating what may be secret."""
    if "://" not in url:
        raise ConfigError("--endpoint has no scheme; write http:// or https:// before it.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("--endpoint is no valid address; write e.g. http://127.0.0.1:8000/v1.") from None
    if parts.scheme not in _PORTS:
        raise ConfigError(f"--endpoint has the scheme {parts.scheme}; write http or https.")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("--endpoint has credentials before the host; leave them out and name a variable: --key-env.")
    if parts.query or parts.fragment:
        raise ConfigError("--endpoint has a query or a fragment; leave it out.")
    if not host or any(ord(sign) <= 32 or ord(sign) > 126 for sign in host + parts.path):
        raise ConfigError("--endpoint has no host, or signs that no address has; write e.g. http://127.0.0.1:8000/v1.")
    base = parts.path.rstrip("/")
    if base.endswith(_END):
        raise ConfigError(f"--endpoint ends in {_END}; leave that out, as in http://127.0.0.1:8000/v1.")
    return Endpoint(parts.scheme, host, port or _PORTS[parts.scheme], base)


def allowed_endpoint(
    url: str, allow: Sequence[str], dataset: str, credentialed: bool, resolve: Resolve | None = None
) -> Endpoint:
    """The endpoint, resolved, if images of the dataset may be sent to it.

    allow: the values of --allow-host; `HOST[:PORT]`, with `=DATASET` for a credentialed dataset. Raises ConfigError for
    a host that is not of this machine and not named.
    """
    endpoint = parse_endpoint(url)
    try:
        addresses = tuple((resolve or _resolve)(endpoint.host, endpoint.port))
    except OSError as error:
        addresses, problem = (), error.strerror or str(error)
    else:
        problem = "it has no address"
    local = bool(addresses) and all(map(_is_loopback, addresses))
    if any(map(_is_any, (endpoint.host, *addresses))):
        raise ConfigError(f"{endpoint.host} is an address to listen on; say 127.0.0.1.")
    if not local and not _is_named(endpoint, allow, dataset, credentialed):
        raise ConfigError(_not_allowed(endpoint, allow, dataset, credentialed))
    if not addresses:
        raise ConfigError(f"The host {endpoint.host} cannot be found: {problem}; check --endpoint.")
    return Endpoint(endpoint.scheme, endpoint.host, endpoint.port, endpoint.base, addresses, local)


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_named(endpoint: Endpoint, allow: Sequence[str], dataset: str, credentialed: bool) -> bool:
    for entry in allow:
        place, equals, name = entry.partition("=")
        if (equals and name != dataset) or (credentialed and not equals):
            continue
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        if place.lower() in (endpoint.host, host, f"{host}:{endpoint.port}"):
            return True
    return False


def _not_allowed(endpoint: Endpoint, allow: Sequence[str], dataset: str, credentialed: bool) -> str:
    place = endpoint.authority
    write = f"--allow-host {place}" + (f"={dataset}" if credentialed else "")
    why = f"images of {dataset} would leave this machine for {endpoint.host}"
    because = f"; {RULE}" if credentialed else ""
    return f"{why}{because}. If you may send them there, write {write}."
