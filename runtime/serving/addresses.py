"""Clients by their addresses: which are proxies, and how much one address has at once."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from ...engines.errors import ConfigError
from .protocol.request_errors import Overloaded
from .settings import Network


class AddressShares:
    """At most `most` requests of one address at once, without `trusted` networks, and `total` of all; 0 for no
    limit."""

    def __init__(self, most: int, trusted: Sequence[Network], *, total: int = 0) -> None:
        self._most = most
        self._trusted = tuple(trusted)
        self._total = total
        self._count = 0
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, host: str) -> Iterator[None]:
        """Counts a request. Raises Overloaded."""
        if self._total and self._count >= self._total:
            raise Overloaded(
                f"The server has {self._total} requests of this type at once; try again later.", retry_after=1
            )
        limited = self._most and not is_in(host, self._trusted)
        key = client_key(host) if limited else ""
        if limited and self._open[key] >= self._most:
            raise Overloaded(f"Your address has {self._most} requests at once, the most it may have.", retry_after=1)
        self._count += 1
        if limited:
            self._open[key] += 1
        try:
            yield
        finally:
            self._count -= 1
            if limited:
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]


def read_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks from their text: an address, or a network as 10.0.0.0/8. Raises ConfigError."""
    try:
        return tuple(ipaddress.ip_network(text, strict=False) for text in texts)
    except ValueError as error:
        raise ConfigError(f"--trusted-proxy: {error}; give an address, or a network as 10.0.0.0/8.") from error


@lru_cache(1024)
def client_key(host: str) -> str:
    """The key by which a client is counted: its address, or for IPv6 its own network of 64 bits."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        network = ipaddress.IPv6Network((address, 64), strict=False)
        return str(address.ipv4_mapped or network.network_address)
    return str(address)


@lru_cache(1024)
def is_in(host: str, networks: tuple[Network, ...]) -> bool:
    """Whether an address is in one of these networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)
