"""The line to a server: answers with a length, in chunks, or until it closes, and what it says of itself."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.runtime.asking.server_facts import model_ids, read_facts
from xbench_fast.runtime.host.http.http_client import Client, Reply
from xbench_fast.runtime.host.http.server_address import Endpoint

BODY = b'{"a": "%s"}' % (b"0" * 100_000)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BODY), BODY)


@contextmanager
def server(reply: bytes, *, closes: bool, early: bool = False) -> Iterator[Client]:
    """A client of a server that answers every request with these bytes; early: it takes no body."""
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
                    if early:
                        connection.shutdown(socket.SHUT_RDWR)
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


KEY = "sk-CANARYKEY"


class Said(Client):
    """A client whose server says the same to each GET."""

    def __init__(self, value: object, status: int = 200, key: str = KEY) -> None:
        super().__init__(Endpoint("http", "127.0.0.1", 1, "/v1"), 1.0, key)
        self._said = Reply(status, json.dumps(value).encode())

    def get(self, path: str, *, above: bool = False) -> Reply:
        return self._said


def test_a_key_that_a_server_repeats_is_in_no_fact() -> None:
    models = [{"id": f"m {KEY}", "owned_by": "vllm"}]
    facts = read_facts(Said({"data": models, "version": f"1 {KEY}"}), None, "auto")
    assert (facts.model, facts.version) == ("m [removed]", "1 [removed]")
    assert model_ids(Said({"data": models})) == "m [removed]"
    with pytest.raises(ConfigError, match=r"it lists m \[removed\], m \[removed\]; give"):
        read_facts(Said({"data": models * 2}), None, "auto")


def test_a_key_that_is_a_word_changes_no_answer() -> None:
    assert Said({}, key="none").secrets == () and Said({}).secrets == (KEY,)


@pytest.mark.parametrize(
    ("status", "error"), [(429, RunError), (503, RunError), (404, ConfigError), (307, ConfigError)]
)
def test_a_list_of_models_that_does_not_come(status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"status {status}"):
        read_facts(Said({}, status), None, "auto")
    assert read_facts(Said({}, status), "m", "plain").model == "m"


def test_a_server_may_refuse_a_body_before_it_has_gone() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}"
    with server(refusal, closes=True, early=True) as client:
        for _ in range(2):
            reply = client.post("/chat/completions", [b"0" * 8_000_000])
            assert (reply.status, reply.body) == (413, b"{}")
    with server(b"", closes=True, early=True) as client:
        reply = client.post("/chat/completions", [b"0" * 8_000_000])
        assert reply.status == 0 and "the connection failed" in reply.fault
