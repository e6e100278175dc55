"""The settings of a server and their defaults."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Final

from ...engines.errors import ConfigError

if TYPE_CHECKING:
    from .certificate import Certificate

Network = IPv4Network | IPv6Network

_ROOT: Final = re.compile(r"(?:/(?!\.)[A-Za-z0-9._-]+)+")  # nothing that is percent-encoded, and no ".."

HEALTH_PATHS: Final = ("/v2/health/live", "/v2/health/ready")
"""Health checks, which need no token and are answered on every connection that is kept."""


@dataclass(frozen=True)
class ServiceSettings:
    """max_batch: images of an engine call; max_delay: seconds the first image of a batch waits for others; queue:
    images of a model that are accepted and not answered yet, at most; timeout: seconds for a request; workers: threads
    that decode images and draw maps, and at most as many processes that decode, for all models together; feature_cache:
    bytes of prepared images and features that are kept for further questions, 0 for none."""

    max_batch: int = 16
    max_delay: float = 0.002
    queue: int = 64
    timeout: float = 30.0
    workers: int = 2
    feature_cache: int = 256 << 20

    def __post_init__(self) -> None:
        """Raises ConfigError for a value outside the allowed range."""
        for name, least, most in (
            ("max_batch", 1, math.inf),
            ("max_delay", 0, 3600),
            ("queue", 1, math.inf),
            ("timeout", 1e-3, 86_400),
            ("workers", 1, math.inf),
            ("feature_cache", 0, math.inf),
        ):
            value = getattr(self, name)
            if not least <= value <= most:  # true for NaN too
                raise ConfigError(f"The server's {name} is {value:g}; it must be from {least:g} to {most:g}.")


@dataclass(frozen=True)
class HttpSettings:
    """max_body: bytes of a request; budget: bytes of all bodies in memory at once; body_timeout: seconds until a body
    must be complete; token: the token of clients, None for no check; local_only: whether only host names of this
    machine are answered; page: whether the page is at /; open_paths: paths that need no token; client_connections:
    connections of one address, 0 for no limit; trusted_proxies: networks of proxies, which are not limited and whose
    X-Forwarded-For names the client; root_path: the prefix of all paths behind a proxy, empty for none. Paths with it
    and without it are the same, as some proxies take it away and others do not."""

    max_body: int = 64 << 20
    budget: int = 1 << 30
    body_timeout: float = 60.0
    token: str | None = None
    local_only: bool = True
    page: bool = False
    open_paths: tuple[str, ...] = ("/", "/docs", "/openapi.json", *HEALTH_PATHS)
    client_connections: int = 128
    trusted_proxies: tuple[Network, ...] = ()
    root_path: str = ""

    def __post_init__(self) -> None:
        """Raises ConfigError for a limit that would refuse every request, and for a prefix that is no path or hides one
        of the server's."""
        if self.max_body < 1:
            raise ConfigError(f"The largest request (--max-body) is {self.max_body} bytes; it must be at least 1.")
        first = self.root_path.partition("/")[2].partition("/")[0]
        if self.root_path and (not _ROOT.fullmatch(self.root_path) or first in ("v2", "metrics", "docs")):
            raise ConfigError(
                f"The prefix (--root-path) is '{self.root_path[:100]}'; it must be a path such as /xray or /x/ray "
                "of letters, digits, '-', '_' and '.', that does not begin with /v2, /docs or /metrics."
            )


@dataclass(frozen=True)
class ServerSettings:
    """service, http: see these classes; connections: maximum number, idle ones included; on further ones requests are
    refused with status 503; parser: "h11", "httptools" or "auto" (httptools where it is installed); certificate: for
    TLS, None for none."""

    service: ServiceSettings = field(default_factory=ServiceSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    connections: int = 512
    parser: str = "auto"
    certificate: Certificate | None = None


@dataclass(frozen=True)
class GrpcSettings:
    """host, port: where to listen, port 0 for a free one; max_body: bytes of a message; budget: bytes of all messages
    in memory at once; calls: maximum number at once; incoming: how many of these may still receive their
    message, as the bytes that the library holds are not counted; reading: seconds for a message, and for its reply, to
    be transferred; token: the token of clients, None for no check; grace: seconds for open calls at shutdown; shared:
    whether one address has at most half of the calls, unless it is one of trusted_proxies; certificate: as for HTTP."""

    host: str = "127.0.0.1"
    port: int = 8001
    max_body: int = HttpSettings.max_body
    budget: int = HttpSettings.budget
    calls: int = 256
    incoming: int = 64
    reading: float = HttpSettings.body_timeout
    token: str | None = None
    grace: float = ServiceSettings.timeout + 5
    shared: bool = False
    trusted_proxies: tuple[Network, ...] = ()
    certificate: Certificate | None = None
