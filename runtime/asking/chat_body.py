"""The body of a request, and the content key of its answer (docs/ask.md §2, §5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from .dialect_prompts import ASKED_DIALECTS, IMAGE, WORDS, AskedDialect

SERVERS: Final = ("vllm", "sglang", "llamacpp", "ollama", "openai", "plain")
"""Kinds of servers, which take different fields in a request."""

KEEPS_TOKENS: Final = ("vllm", "sglang")
"""Servers that a request can tell to keep special tokens."""

_FLAGS: Final = {
    "llamacpp": "start llama-server with --special",
    "ollama": "Ollama has no such flag; serve the model with vLLM or llama-server --special",
}
FIXED: Final = ("model", "messages", "n", "stream", "user")
"""Keys of a body that --set and --unset do not change."""

LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""Keys of a body that limit the tokens of an answer."""

_KEY: Final = b"xbench-ask-1\n"
_ANY: Final = hashlib.sha256(b"the place of a hash").hexdigest()


@dataclass(frozen=True)
class RequestRules:
    """Everything that decides a body apart from image, words and attempt.

    server: of `SERVERS`. max_tokens: None for the dialect's own. official: the authors' sampling. changed, removed:
    keys of the body (--set, --unset). guided: a JSON schema. prompt: the user's, None for the official one.
    preparation, encoding: of the image, "png" or "jpeg:95".
    """

    dialect: str
    model: str
    server: str = "plain"
    temperature: float = 0
    seed: int = 0
    max_tokens: int | None = None
    official: bool = False
    changed: Mapping[str, Any] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    guided: Mapping[str, Any] | None = None
    prompt: str | None = None
    preparation: str = ""
    encoding: str = "png"

    @cached_property
    def asked(self) -> AskedDialect:
        """The dialect, with the user's prompt if there is one."""
        dialect = ASKED_DIALECTS[self.dialect]
        return dialect if self.prompt is None else dialect.with_prompt(self.prompt)

    @property
    def samples_officially(self) -> bool:
        """Whether the authors' sampling is asked for and the dialect has one."""
        return self.official and self.asked.official is not None

    @property
    def most_tokens(self) -> int | None:
        """The limit of tokens of an answer that a request states: the larger one of two, since servers take either;
        None if it states none."""
        settings = self.settings(1)
        limits = [settings.get(name) for name in LIMITS]
        return max((int(limit) for limit in limits if isinstance(limit, int | float) and limit >= 1), default=None)

    def words(self, words: str, *, phrase: bool) -> str:
        """The words as they are sent."""
        return words.lower() if phrase and self.asked.lower_phrase and not words.isupper() else words

    def body(self, words: str, image: Mapping[str, Any], *, phrase: bool = False, attempt: int = 1) -> dict[str, Any]:
        """The body about one image; image: the value of `image_url`."""
        sent = self.words(words, phrase=phrase)
        content = [
            {"type": "image_url", "image_url": image}
            if part == IMAGE
            else {"type": "text", "text": part.replace(WORDS, sent)}
            for part in self.asked.parts_of(phrase=phrase)
        ]
        system = [] if self.asked.system is None else [{"role": "system", "content": self.asked.system}]
        messages = [*system, {"role": "user", "content": content}]
        return {"model": self.model, "messages": messages, **self.settings(attempt)}

    def key(self, words: str, pixels: str, *, phrase: bool = False, attempt: int = 1) -> str:
        """The content key of an answer; pixels: the hash of the sent pixels."""
        if phrase:
            return content_key(self._hashed(words, pixels, phrase=True, attempt=attempt), attempt)
        # A few findings are asked about many images, whose keys differ in the hash alone.
        parts = self._findings.get((words, attempt))
        if parts is None:
            whole = canonical(self._hashed(words, _ANY, phrase=False, attempt=attempt), attempt)
            parts = self._findings[words, attempt] = whole.split(_ANY.encode())
        return hashlib.sha256(pixels.encode().join(parts)).hexdigest()

    @cached_property
    def _findings(self) -> dict[tuple[str, int], list[bytes]]:
        return {}

    def _hashed(self, words: str, pixels: str, *, phrase: bool, attempt: int) -> dict[str, Any]:
        """The body with the hash of the pixels in place of the image."""
        image = {"pixels": pixels} | ({} if self.encoding == "png" else {"encoding": self.encoding})
        body = self.body(words, image, phrase=phrase, attempt=attempt)
        body.pop("stream", None)
        return body

    def settings(self, attempt: int) -> dict[str, Any]:
        """The fields of a body apart from model and messages."""
        official = dict(self.asked.official or {}) if self.official else {}
        settings: dict[str, Any] = {"temperature": _number(self.temperature), **official}
        most = self.max_tokens or official.get("max_tokens", self.asked.max_tokens)
        settings |= {"max_tokens": most, "seed": self.seed + attempt - 1, "stream": False}
        if self.server == "openai":
            settings["max_completion_tokens"] = settings.pop("max_tokens")
            del settings["temperature"], settings["seed"]
        if self.asked.special and self.server in KEEPS_TOKENS:
            settings["skip_special_tokens"] = False
            between = {"spaces_between_special_tokens": False}
            settings |= between if self.server == "vllm" else {"chat_template_kwargs": between}
        if self.guided is not None:
            schema = {"name": "answer", "schema": self.guided}
            settings["response_format"] = {"type": "json_schema", "json_schema": schema}
        settings |= self.changed
        return {key: value for key, value in settings.items() if key not in self.removed}


def token_flag(server: str) -> str:
    """What makes a server keep special tokens that no field of a request asks for."""
    return _FLAGS.get(server, "start it with the flag that keeps special tokens, or name its kind: --server vllm")


def canonical(body: Mapping[str, Any], attempt: int) -> bytes:
    """What a content key is the hash of: the canonical JSON of an attempt and a body, below the name of the scheme."""
    values = {"attempt": attempt, "body": body}
    return _KEY + json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def content_key(body: Mapping[str, Any], attempt: int) -> str:
    """The SHA-256 of `canonical`; the images of the body are hashes of their pixels."""
    return hashlib.sha256(canonical(body, attempt)).hexdigest()


def _number(value: float) -> float:
    """A whole number as JSON writes it: 0 and not 0.0, which would be another key."""
    return int(value) if float(value).is_integer() else value
