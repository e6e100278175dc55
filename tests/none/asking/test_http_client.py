"""Answers on the line as servers send them: with a length, in chunks, or until the connection closes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from xbench_fast.runtime.asking.endpoint import Endpoint
from xbench_fast.runtime.asking.http_client import Client

BODY = b'{"a": "%s"}' % (b"0" * 100_000)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BODY), BODY)


@contextmanager
def server(reply: bytes, *, closes: bool) -> Iterator[Client]:
    """A client of a server that answers every request with these bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                while lines.readline().startswith((b"GET", b"POST")):
                    while lines.readline().strip():
                        pass
                    connection.sendall(reply)
                    if closes:
                        break

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield Client(Endpoint("http", "127.0.0.1", listener.getsockname()[1], "", ("127.0.0.1",)), 5.0)
    finally:
        listener.close()


@pytest.mark.parametrize(
    ("reply", "closes"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY), False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY), True),
        (b"HTTP/1.0 200 OK\r\n\r\n" + BODY, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + b"0\r\n\r\n", False),
    ],
    ids=["length", "length and close", "until it closes", "chunks"],
)
def test_whole_answers(reply: bytes, closes: bool) -> None:
    with server(reply, closes=closes) as client:
        for _ in range(2):
            answer = client.get("/models")
            assert (answer.status, answer.body, answer.fault) == (200, BODY, "")


@pytest.mark.parametrize(
    "reply",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n" + BODY, CHUNKED, CHUNKED[:-9], b"", b"?\r\n\r\n"],
)  # fmt: skip
def test_answers_that_end_too_early_are_none(reply: bytes) -> None:
    with server(reply, closes=True) as client:
        answer = client.get("/models")
    assert answer.status == 0 and not answer.body and answer.fault
