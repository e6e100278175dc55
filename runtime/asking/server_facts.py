"""What a server says of itself before it is asked: its models, its kind, its version (docs/ask.md §4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...engines.errors import ConfigError, RunError
from ..host.http.http_client import Client, Reply
from .chat_body import SERVERS
from .outcomes import document_of

_SHOWN: Final = 20
_VERSIONS: Final = {
    "vllm": ("/version", "version"),
    "sglang": ("/server_info", "version"),
    "llamacpp": ("/props", "build_info"),
    "ollama": ("/api/version", "version"),
}


@dataclass(frozen=True)
class ServerFacts:
    """model: the id that is asked. kind: of `SERVERS`. version: empty where the server does not say it."""

    model: str
    kind: str
    version: str = ""


def read_facts(client: Client, model: str | None, kind: str) -> ServerFacts:
    """Asks a server for what the user left out; model: None for its only one; kind: "auto" or one of `SERVERS`.

    Raises RunError when the server does not answer and is needed, ConfigError where a model must be named.
    """
    reply = client.get("/models")
    listed = _models(client, reply)
    busy = reply.status == 429 or reply.status >= 500
    if reply.status == 0 or (model is None and busy):  # some servers fail here and answer questions
        reason = reply.fault or f"status {reply.status}"
        raise RunError(
            f"The server at {client.endpoint.shown} does not answer: {reason}; start it, or check --endpoint."
        )
    if reply.status in (401, 403):
        advice = "give the variable that holds the server's API key: --key-env NAME"
        raise RunError(f"The server at {client.endpoint.shown} refuses the request (status {reply.status}); {advice}.")
    ids = [str(entry["id"]) for entry in listed]
    if model is None:
        if len(ids) != 1:
            names = f"it lists {', '.join(ids[:_SHOWN])}" if ids else "it lists none"
            names += f" (status {reply.status}, so check --endpoint too)" * (reply.status != 200)
            raise ConfigError(f"No model is named, and the server has not exactly one: {names}; give --model ID.")
        model = ids[0]
    if kind == "auto":
        owners = [entry.get("owned_by") for entry in listed if entry["id"] == model] or [
            entry.get("owned_by") for entry in listed[:1]
        ]
        kind = {"library": "ollama"}.get(str(owners[0]), str(owners[0])) if owners else "plain"
        kind = kind if kind in SERVERS else "plain"
    return ServerFacts(model, kind, _version(client, kind))


def model_ids(client: Client) -> str:
    """The models that a server lists, for a message; empty if it lists none."""
    return ", ".join(str(entry["id"]) for entry in _models(client, client.get("/models"))[:_SHOWN])


def _models(client: Client, reply: Reply) -> list[dict[str, Any]]:
    data = _object(client, reply).get("data")
    entries = data if isinstance(data, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _version(client: Client, kind: str) -> str:
    if kind not in _VERSIONS:
        return ""
    path, key = _VERSIONS[kind]
    version = _object(client, client.get(path, above=True)).get(key)
    return version[:80] if isinstance(version, str) else ""


def _object(client: Client, reply: Reply) -> dict[str, Any]:
    document = document_of(reply, client.secrets) if reply.status == 200 else None
    return document if isinstance(document, dict) else {}
