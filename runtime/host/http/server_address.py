"""The address of a server: its parts, and whether it is of this machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from ....engines.errors import ConfigError

_PORTS: Final = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True)
class Endpoint:
    """A server's address. base: path before that of a request; local: whether every address is of this machine.

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


def parse_endpoint(url: str, option: str, example: str, advice: str) -> Endpoint:
    """The parts of an address that `option` gives; nothing is looked up. advice: what to do instead
    of writing credentials.

    Raises ConfigError, without repeating what may be secret.
    """
    if "://" not in url:
        raise ConfigError(f"{option} has no scheme; write http:// or https:// before it.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if port == 0:
            raise ValueError
    except ValueError:
        raise ConfigError(f"{option} is no valid address; write e.g. {example}.") from None
    if parts.scheme not in _PORTS:
        raise ConfigError(f"{option} has the scheme {parts.scheme}; write http or https.")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{option} has credentials before the host; leave them out and {advice}.")
    if parts.query or parts.fragment:
        raise ConfigError(f"{option} has a query or a fragment; leave it out.")
    if not host or any(ord(sign) <= 32 or ord(sign) > 126 for sign in host + parts.path):
        raise ConfigError(f"{option} has no host, or signs that no address has; write e.g. {example}.")
    return Endpoint(parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


def looked_up(endpoint: Endpoint, resolve: Resolve | None = None) -> tuple[Endpoint, str]:
    """The endpoint with its addresses, and why there are none, empty if there are some.

    Raises ConfigError for an address that only a server can have.
    """
    addresses: tuple[str, ...] = ()
    problem = "it has no address"
    try:
        addresses = tuple((resolve or _resolve)(endpoint.host, endpoint.port))
    except OSError as error:
        problem = error.strerror or str(error)
    if any(map(_is_any, (endpoint.host, *addresses))):
        raise ConfigError(f"{endpoint.host} is an address to listen on; say 127.0.0.1.")
    local = bool(addresses) and all(map(_is_loopback, addresses))
    return replace(endpoint, addresses=addresses, local=local), "" if addresses else problem


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
