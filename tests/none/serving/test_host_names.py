"""Which Host headers a server that answers this machine alone takes: names of this machine, parsed whole."""

from __future__ import annotations

import pytest
from xbench_fast.runtime.serving.http.middleware import _is_local


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:8000", "[0:0::1]"],
)
def test_names_of_this_machine(host: str) -> None:
    assert _is_local(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("[::1].evil.example", "[::1]evil:80", "[::1]:80.evil.example", "[::1]@evil.example", "[::1", "[::2]"),
        *("::1", "[127.0.0.1]", "[localhost]", "[::1%25lo]", "[::1]]"),
        *("localhost@evil.example", "localhost:80@evil.example", "localhost:8o", "localhost..", "localhost:80:80"),
        *("localhost\n", "localhost evil.example", "localhost/evil", "user@localhost", "localhost,evil.example"),
    ],
)
def test_other_names_and_what_only_begins_like_one(host: str) -> None:
    assert not _is_local(host)
