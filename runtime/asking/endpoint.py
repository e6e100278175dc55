"""The address of a server: what is accepted, and which hosts may be sent images (docs/ask.md §6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...engines.errors import ConfigError
from ..host.http import server_address
from ..host.http.server_address import Endpoint, Resolve, looked_up

CREDENTIALED: Final = ("mscxr", "padchest_gr", "vindr", "vindr_kaggle", "chexlocalize")
"""Readers of datasets under a data use agreement."""

RULE: Final = (
    "it is under a data use agreement, and PhysioNet's rules and others forbid sending its data to third parties "
    "(physionet.org/news/post/gpt-responsible-use)"
)
_EXAMPLE: Final = "http://127.0.0.1:8000/v1"
_END: Final = "/chat/completions"


def parse_endpoint(url: str) -> Endpoint:
    """The parts of an address; nothing is looked up. Raises ConfigError, without repeating what may be secret."""
    endpoint = server_address.parse_endpoint(url, "--endpoint", _EXAMPLE, "name a variable: --key-env")
    if endpoint.base.endswith(_END):
        raise ConfigError(f"--endpoint ends in {_END}; leave that out, as in {_EXAMPLE}.")
    return endpoint


def allowed_endpoint(
    url: str, allow: Sequence[str], dataset: str, credentialed: bool, resolve: Resolve | None = None
) -> Endpoint:
    """The endpoint, resolved, if images of the dataset may be sent to it.

    allow: the values of --allow-host; `HOST[:PORT]`, with `=DATASET` for a credentialed dataset. Raises ConfigError for
    a host that is not of this machine and not named.
    """
    endpoint, problem = looked_up(parse_endpoint(url), resolve)
    if not endpoint.local and not _is_named(endpoint, allow, dataset, credentialed):
        raise ConfigError(_not_allowed(endpoint, allow, dataset, credentialed))
    if problem:
        raise ConfigError(f"The host {endpoint.host} cannot be found: {problem}; check --endpoint.")
    return endpoint


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
