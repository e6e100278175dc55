"""HTTP requests to one endpoint: no proxy, no redirect, one deadline for a try, a bounded answer (docs/ask.md §6)."""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ....engines.errors import ConfigError
from ..machine_record import installed_version
from .server_address import Endpoint

MOST_BYTES: Final = 4 << 20
"""Bytes of an answer that are read."""

_LEAST_SECRET: Final = 6  # a shorter key, such as "none" or "EMPTY", would be found in answers by chance

_PIECE: Final = 1 << 16
_OTHER_HOST: Final = (62, 64)  # of OpenSSL: the certificate is of another name or address


@dataclass(frozen=True)
class Reply:
    """What came back. status 0: the line failed, and `body` is empty; `fault` says how. whole: the body was not cut at
    the most bytes that are read. content_type: as the server states it. untrusted: the server's certificate is none
    that this client trusts, which another try does not change."""

    status: int
    body: bytes = b""
    retry_after: str | None = None
    fault: str = ""
    whole: bool = True
    content_type: str = ""
    untrusted: bool = False


class Client:
    """Requests to an endpoint; each thread has its own connection, which stays open.

    key: the API key, sent as a bearer token. ca: a file with one more root certificate. timeout: seconds of one try,
    from the connection to the last byte. secrets: texts that nothing a server says may bring back. Raises ConfigError
    for a file that is no certificate.
    """

    def __init__(self, endpoint: Endpoint, timeout: float, key: str | None = None, ca: Path | None = None) -> None:
        self.endpoint, self._timeout = endpoint, timeout
        self.headers = {"User-Agent": f"xbench-fast/{installed_version('xbench-fast')}"}
        self.secrets = (key,) if key is not None and len(key) >= _LEAST_SECRET else ()
        if key is not None:
            self.headers["Authorization"] = f"Bearer {key}"
        self._local = threading.local()
        self._context: ssl.SSLContext | None = None
        if endpoint.scheme == "https":
            try:
                self._context = ssl.create_default_context()
                if ca is not None:
                    self._context.load_verify_locations(ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"--ca {ca} cannot be read as certificates: {error}.") from error

    def get(self, path: str, *, above: bool = False, accept: str | None = None, most: int = MOST_BYTES) -> Reply:
        """Answers GET `path` below the base of the endpoint; above: below its host. most: bytes that are read."""
        headers = {} if accept is None else {"Accept": accept}
        return self._request("GET", ("" if above else self.endpoint.base) + path, None, headers, most)

    def post(
        self, path: str, body: Sequence[bytes], kind: str = "application/json", accept: str | None = None
    ) -> Reply:
        """Answers POST `path` with a body of a content type, in pieces, so that a large image is not copied."""
        headers = {"Content-Type": kind, "Content-Length": str(sum(map(len, body)))}
        if accept is not None:
            headers["Accept"] = accept
        return self._request("POST", self.endpoint.base + path, body, headers, MOST_BYTES)

    def _request(
        self, method: str, path: str, body: Sequence[bytes] | None, headers: Mapping[str, str], most: int
    ) -> Reply:
        deadline = time.monotonic() + self._timeout
        connection = self._connection(deadline)
        try:
            response, taken = _exchange(connection, method, path, body, {**self.headers, **headers})
            retry_after, content, whole = response.headers.get("Retry-After"), bytearray(), True
            while piece := response.read1(_PIECE):
                content += piece
                if len(content) > most:
                    whole = False
                    break
            # read1 says nothing about an answer that ends before its length.
            if whole and (response.length or 0) > 0:
                raise http.client.IncompleteRead(bytes(content), response.length)
            response.close()  # read1 does not notice the end of an answer, and the connection would stay busy
            if not whole or not taken or response.will_close:
                self._drop()
            kind = response.headers.get("Content-Type") or ""
            return Reply(response.status, bytes(content), retry_after, whole=whole, content_type=kind)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            return Reply(0, fault=_fault(error), untrusted=isinstance(error, ssl.SSLCertVerificationError))

    def _connection(self, deadline: float) -> _Connection:
        connection: _Connection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.is_closed_by_peer():
            self._drop()
            connection = None
        if connection is None:
            connection = self._local.connection = _Connection(self.endpoint, self._context)
        connection.deadline.at = deadline
        return connection

    def _drop(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None


class _Deadline:
    """When a try ends, by the monotonic clock."""

    at = 0.0

    @property
    def left(self) -> float:
        """Raises TimeoutError."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was looked up before, whose every read and write ends at the deadline."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        super().__init__(endpoint.host, endpoint.port)
        self._endpoint, self._tls, self.deadline = endpoint, context, _Deadline()
        self.default_port = 443 if context else 80  # the header Host names any other port

    def connect(self) -> None:
        failed: OSError | None = None
        for address in self._endpoint.addresses:
            try:
                plain = socket.create_connection((address, self._endpoint.port), self.deadline.left)
                break
            except OSError as error:
                failed = error
        else:
            raise failed or OSError("no address")
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wrapped = self._tls.wrap_socket(plain, server_hostname=self._endpoint.host) if self._tls else plain
        self.sock: Any = _TimedSocket(wrapped, self.deadline)

    def is_closed_by_peer(self) -> bool:
        """Whether the server closed the idle connection: then it is readable, or it is broken."""
        if self.sock is None:
            return False
        with suppress(OSError, ValueError):
            return bool(select.select([self.sock.fileno()], [], [], 0)[0])
        return True


class _TimedSocket:
    """What `http.client` needs of a socket, with the time that is left as the limit of each operation."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline
        self.fileno, self.close = sock.fileno, sock.close

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left)
        self._sock.sendall(data)

    def makefile(self, mode: str, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock, self._deadline), _PIECE)


class _TimedReader(io.RawIOBase):
    """Keeps the socket open until it is closed: `http.client` closes a connection that ends with its answer before it
    reads the answer."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _exchange(
    connection: _Connection, method: str, path: str, body: Sequence[bytes] | None, headers: Mapping[str, str]
) -> tuple[http.client.HTTPResponse, bool]:
    """The response, and whether the server took the whole request: one that refuses a large body, or a key, may answer
    and close before the body has gone."""
    try:
        connection.request(method, path, body, headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        with suppress(OSError, http.client.HTTPException):
            return connection.getresponse(), False
        raise error
    return connection.getresponse(), True


def _fault(error: Exception) -> str:
    """What happened on the line, in words without an address."""
    if isinstance(error, TimeoutError):
        return "no whole answer within --timeout"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.rstrip(".")
        advice = "write the host that it names" if error.verify_code in _OTHER_HOST else "--ca FILE adds a root"
        return f"its certificate cannot be verified ({reason}); {advice}"
    if isinstance(error, ConnectionRefusedError):
        return "nothing answers at this address"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer ended before its length"
    if isinstance(error, OSError):
        return f"the connection failed ({error.strerror or type(error).__name__})"
    return f"the answer is no HTTP ({type(error).__name__})"
