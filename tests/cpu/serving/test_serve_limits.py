"""What one client may take of a server: connections and requests of an address, proxies in front."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from serving_process import ServerProcess, until_closed
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.serving.addresses import AddressShares, client_key, is_in, read_networks
from xbench_fast.runtime.serving.http import middleware
from xbench_fast.runtime.serving.http.middleware import OVER_LIMIT, ClientRequests, Connections
from xbench_fast.runtime.serving.protocol.request_errors import Overloaded
from xbench_fast.runtime.serving.settings import HttpSettings

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)


CLOSE = "Connection: close\r\n"


@pytest.fixture(scope="module", params=["httptools", "h11"])
def server(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    options = ("--client-connections", 3, "--http-parser", request.param)
    with ServerProcess(folder / "models", tmp_path_factory.mktemp("limits"), *options) as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()


def opened(server: ServerProcess, source: str = "127.0.0.1") -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))


def asked(server: ServerProcess, path: str, source: str = "127.0.0.1", headers: str = CLOSE) -> bytes:
    with opened(server, source) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        return until_closed(line)


def test_one_client_cannot_take_every_connection(server: ServerProcess) -> None:
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(opened(server))
        refused = asked(server, "/v2", headers="")
        assert refused.startswith(b"HTTP/1.1 429") and b"--client-connections" in refused
        assert b"\r\nretry-after: 1\r\n" in refused.lower() and b"\r\nconnection: close\r\n" in refused.lower()
        for path in ("live", "ready"):
            assert asked(server, f"/v2/health/{path}").startswith(b"HTTP/1.1 200")
        assert asked(server, "/metrics").startswith(b"HTTP/1.1 429")
        assert asked(server, "/v2", "127.0.0.2").startswith(b"HTTP/1.1 200")
        # Few are kept for health: the next ones of this client end at once.
        spare = [stack.enter_context(opened(server)) for _ in range(middleware._SPARE_OF_ONE)]
        assert asked(server, "/v2/health/ready") == b""
        assert asked(server, "/v2/health/ready", "127.0.0.2").startswith(b"HTTP/1.1 200")
        assert spare
    for _ in range(500):
        if asked(server, "/v2").startswith(b"HTTP/1.1 200"):
            break
    assert asked(server, "/v2").startswith(b"HTTP/1.1 200"), "closed connections count no more"


def test_a_proxy_is_not_limited_and_names_its_clients(folder: Path, tmp_path: Path) -> None:
    options = ("--client-connections", 2, "--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/8")
    with ServerProcess(folder / "models", tmp_path, *options) as process:
        lines = [opened(process) for _ in range(8)]
        assert asked(process, "/v2", headers=f"X-Forwarded-For: 192.0.2.7, 10.1.1.1\r\n{CLOSE}").startswith(
            b"HTTP/1.1 200"
        )
        strangers = [opened(process, "127.0.0.2") for _ in range(2)]
        assert asked(process, "/v2", "127.0.0.2", f"X-Forwarded-For: 192.0.2.8\r\n{CLOSE}").startswith(b"HTTP/1.1 429")
        assert [line["client"] for line in process.lines()] == ["192.0.2.7", "127.0.0.2"]
        # Two requests of one client, whose bodies are not complete yet.
        head = "POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.9\r\n"
        for line in lines[:2]:
            line.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
        for _ in range(500):
            refused = asked(process, "/v2", headers=f"X-Forwarded-For: 192.0.2.9\r\n{CLOSE}")
            if refused.startswith(b"HTTP/1.1 429"):
                break
        assert b"has 2 requests at once" in refused
        for line in lines + strangers:
            line.close()
        assert process.stop() == 0


class Transport:
    """A connection of an address, which can be aborted."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return (self.host, 4000)

    def abort(self) -> None:
        self.aborted = True


def test_connections_above_a_limit_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_SPARE_SECONDS", 0)

    async def body() -> None:
        limits = Connections(3, HttpSettings(client_connections=2))
        made = [(Transport(f"10.0.0.{host}"), dict[str, Any]()) for host in (1, 1, 1, 2, 3, 3)]
        for transport, state in made:
            limits.enter(transport, state)  # type: ignore[arg-type]
        errors = [state[OVER_LIMIT]().http_status if state else None for _, state in made]
        assert errors == [None, None, 429, None, 503, 503]
        assert not any(transport.aborted for transport, _ in made)
        await asyncio.sleep(0.05)
        assert [transport.aborted for transport, _ in made] == [bool(state) for _, state in made]
        for number in range(middleware._SPARE):
            last = Transport(f"10.0.1.{number}")
            limits.enter(last, {})  # type: ignore[arg-type]
        assert last.aborted, "few are kept in all"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_what_a_client_is_counted_by(host: str, key: str) -> None:
    assert client_key(host) == key


def test_networks_of_proxies() -> None:
    networks = read_networks(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "10.1.2.3/8"])
    assert networks[0] == networks[3] == ip_network("10.0.0.0/8")
    assert is_in("10.9.9.9", networks) and is_in("2001:db8::5", networks) and not is_in("192.0.2.8", networks)
    assert not is_in("", networks)
    with pytest.raises(ConfigError, match="--trusted-proxy: 'nginx'"):
        read_networks(["nginx"])


def test_requests_of_the_clients_of_a_proxy() -> None:
    entered: list[str] = []
    hold = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        entered.append(scope["client"][0])
        await hold.wait()

    async def body() -> None:
        limited = ClientRequests(app, HttpSettings(client_connections=2, trusted_proxies=(ip_network("10.0.0.0/8"),)))

        def ask(host: str, path: str = "/v2") -> asyncio.Task[None]:
            scope = {"type": "http", "path": path, "client": (host, 0)}
            return asyncio.ensure_future(limited(scope, None, None))  # type: ignore[arg-type]

        hosts = ["192.0.2.7", "192.0.2.7", "192.0.2.8", "10.0.0.1", "10.0.0.1", "10.0.0.1"]
        waiting = [ask(host) for host in hosts] + [ask("192.0.2.7", "/v2/health/ready")]
        await asyncio.sleep(0)
        assert len(entered) == 7
        with pytest.raises(Overloaded, match="has 2 requests at once"):
            await ask("192.0.2.7")
        hold.set()
        await asyncio.gather(*waiting)
        await ask("192.0.2.7")

    asyncio.run(body())


def test_without_a_limit_nobody_is_counted() -> None:
    shares = AddressShares(0, ())
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(shares.one_more("192.0.2.7"))


def test_addresses_that_have_gone_are_forgotten() -> None:
    shares, limits = AddressShares(2, ()), Connections(2, HttpSettings())

    class Protocol:
        """As much of a protocol of uvicorn as is limited."""

        def __init__(self, app_state: dict[str, Any]) -> None:
            self.app_state = app_state

        def connection_made(self, transport: Any) -> None: ...
        def connection_lost(self, error: Exception | None) -> None: ...

    made, shared = limits.protocol(Protocol), dict[str, Any]()
    for number in range(9):
        with shares.one_more(f"192.0.2.{number}"):
            pass
        protocol = made(app_state=shared)
        protocol.connection_made(Transport(f"192.0.2.{number}"))  # type: ignore[arg-type]
        protocol.connection_lost(None)
    assert not dict(shares._open) and not dict(limits._open) and not shared
