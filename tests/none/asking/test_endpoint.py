"""Which servers may be sent images (docs/ask.md §6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.asking.ask_dataset import _literal, is_credentialed
from xbench_fast.runtime.asking.endpoint import CREDENTIALED, allowed_endpoint, parse_endpoint
from xbench_fast.runtime.host.config import DatasetConfig

HOSTS = json.loads((Path(__file__).parents[2] / "ask" / "hosts.json").read_text())["cases"]
NAMES = {"localhost": ["127.0.0.1", "::1"], "0.0.0.0": ["0.0.0.0"]}


def resolve(host: str, port: int) -> list[str]:
    """Loopback for localhost, the address itself, and an address of the internet for any other name."""
    digits = host.replace(".", "").replace(":", "")
    return NAMES.get(host) or ([host] if digits.isdecimal() or ":" in host else ["203.0.113.9"])


@pytest.mark.parametrize("case", HOSTS, ids=lambda case: f"{case['url']} {case['allow']} {case['dataset']}")
def test_hosts(case: dict[str, Any]) -> None:
    credentialed = case["dataset"] in CREDENTIALED
    if case["verdict"] == "ok":
        endpoint = allowed_endpoint(case["url"], case["allow"], case["dataset"], credentialed, resolve)
        assert not endpoint.base.endswith("/") and endpoint.local == (not case["allow"])
        return
    with pytest.raises(ConfigError) as caught:
        allowed_endpoint(case["url"], case["allow"], case["dataset"], credentialed, resolve)
    message = str(caught.value)
    assert "secret" not in message and "abc" not in message
    if "--allow-host" in case["why"]:
        assert case["why"].partition("--allow-host ")[2] in message


def test_a_name_with_one_address_elsewhere_is_another_host() -> None:
    def two(host: str, port: int) -> list[str]:
        return ["127.0.0.1", "203.0.113.9"]

    with pytest.raises(ConfigError, match="would leave this machine"):
        allowed_endpoint("http://both.example/v1", [], "d", False, two)


def test_a_dataset_under_an_agreement_is_known_by_reader_and_by_name() -> None:
    for name, reader, closed in (("mscxr", "coco", True), ("mine", "mscxr", True), ("mine", "coco", False)):
        assert is_credentialed(DatasetConfig(name, Path("x"), reader)) is closed


def test_another_spelling_of_an_address_is_that_address() -> None:
    with pytest.raises(ConfigError, match="0 is an address to listen on; say 127"):
        allowed_endpoint("http://0:8000/v1", [], "d", False)
    for resolver in (_literal, None):
        assert allowed_endpoint("http://2130706433:8000/v1", [], "d", False, resolver).local
        with pytest.raises(ConfigError, match="would leave this machine"):
            allowed_endpoint("http://[::127.0.0.1]:8000/v1", [], "d", False, resolver)


def test_a_credentialed_dataset_quotes_its_rule() -> None:
    with pytest.raises(ConfigError, match=r"PhysioNet.*write --allow-host a.example=mscxr"):
        allowed_endpoint("https://a.example/v1", ["a.example"], "mscxr", True, resolve)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:8000/v1/chat/completions", "leave that out"),
        ("http://127.0.0.1:8000/v1#x", "a query or a fragment"),
        ("http://127.0.0.1:99999/v1", "no valid address"),
        ("http://127.0.0.1:0/v1", "no valid address"),
        ("http:///v1", "no host"),
        ("http://a b/v1", "no host, or signs"),
    ],
)
def test_addresses_that_are_none(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_endpoint(url)


def test_the_host_header_names_other_ports() -> None:
    assert parse_endpoint("https://a.example/v1/").authority == "a.example"
    assert parse_endpoint("http://[::1]:8080/v1").authority == "[::1]:8080"
