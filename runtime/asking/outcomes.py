"""What a reply means: an answer of a kind, another try, or the end of the run (docs/ask.md §5)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from ...engines.strict_json import distinct_keys, no_constant
from ..host.http.http_client import Reply
from ..host.http.waits import LONGEST_WAIT, retry_after

GARBAGE_TRIES: Final = 3

_DATA_URI: Final = re.compile(r"data:[\w./+-]*;base64,[\w+/=-]*", re.ASCII)
_MOST_TEXT: Final = 500
_MOST_TOKENS: Final = 1 << 53  # more is no count, and no float
_STOPPING: Final = {
    401: "the server wants another API key; give the variable that holds it: --key-env NAME",
    403: "the server forbids this; check the key of --key-env",
    404: "the server does not know the model or the path; check --model and --endpoint",
    413: "the request is too large for the server; choose a smaller --view",
    422: "the server does not accept the fields of the request; see --server, --set and --unset",
}


@dataclass(frozen=True)
class ReplyOutcome:
    """kind: of docs/ask.md §5; "again" for another try; "stop" ends the run. record: fields of the log's record.

    wait: seconds that the server asked to wait, None if it did not. congested: the server has too much to do.
    """

    kind: str
    record: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    wait: float | None = None
    congested: bool = False
    garbage: bool = False


@dataclass(frozen=True)
class Expected:
    """Which model may answer: its id, other names for it (--model-alias). secrets: texts that no record may hold."""

    model: str
    aliases: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()

    def is_model(self, name: str) -> bool:
        date = name.removeprefix(f"{self.model}-").replace("-", "")
        dated = name.startswith(f"{self.model}-") and date.isascii() and date.isdecimal()
        return name == self.model or dated or name in self.aliases


def outcome_of(reply: Reply, expected: Expected, now: datetime | None = None) -> ReplyOutcome:
    """The meaning of one reply; now: for a Retry-After that is a date."""
    if reply.status == 0:
        return ReplyOutcome("again", reason=reply.fault)
    document = document_of(reply, expected.secrets)
    if reply.status == 200:
        return _answered(document, reply, expected)
    message = _message(document)
    told = f": {message}" if message else ""
    if _quota(document):
        return ReplyOutcome("stop", reason=f"the quota of the server is used up{told}")
    if reply.status in (408, 429) or reply.status >= 500:
        wait = retry_after(reply.retry_after, now or datetime.now(UTC))
        if wait is not None and wait > LONGEST_WAIT:
            return ReplyOutcome("stop", reason=f"the server asks to wait {wait:.0f} s; run the same command again then")
        busy = reply.status in (429, 503)
        return ReplyOutcome("again", reason=f"status {reply.status}{told}", wait=wait, congested=busy)
    if reply.status == 400:
        return ReplyOutcome("rejected", {"error": message}, reason=f"the server rejects the request{told}")
    if 300 <= reply.status < 400:
        return ReplyOutcome("stop", reason=f"the server redirects (status {reply.status}), and no redirect is followed")
    advice = _STOPPING.get(reply.status, "see what the server logs")
    return ReplyOutcome("stop", {"status": reply.status}, reason=f"status {reply.status}{told}; {advice}")


def shown_error(text: str) -> str:
    """A message of a server on one line, without images, cut."""
    return " ".join(_DATA_URI.sub("[image]", text).split())[:_MOST_TEXT]


def document_of(reply: Reply, secrets: tuple[str, ...]) -> Any:
    """The JSON of a reply without secrets; None where it is none."""
    if not reply.whole:
        return None
    try:
        text = reply.body.decode()
        document = json.loads(text, object_pairs_hook=distinct_keys, parse_constant=no_constant)
        return _cleaned(document, secrets)
    except (ValueError, RecursionError):
        return None


def _cleaned(value: Any, secrets: tuple[str, ...]) -> Any:
    """The value without secrets and lone surrogates, which no file can hold."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "[removed]")
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_cleaned(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_cleaned(key, secrets): _cleaned(item, secrets) for key, item in value.items()}
    return value


def _answered(document: Any, reply: Reply, expected: Expected) -> ReplyOutcome:
    """The answer in a document; what it is not said to be is never guessed from its words."""
    choices = document.get("choices") if isinstance(document, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    text = _text(message.get("content")) if isinstance(message, dict) else None
    if not isinstance(first, dict) or not isinstance(message, dict) or text is None:
        failure = document.get("error") if isinstance(document, dict) else None  # some report a failure with status 200
        told = f": {_message(document)}" if failure else ""
        reason = f"the answer has no choice with a text{told}" if reply.whole else "the answer is larger than 4 MiB"
        # A large one would be as large again.
        return ReplyOutcome("again" if reply.whole else "garbage", reason=reason, garbage=True)
    name = document.get("model")
    if isinstance(name, str) and not expected.is_model(name):
        reason = (
            f"the model '{name[:80]}' answered, not '{expected.model}'; if it is the same: --model-alias {name[:80]}"
        )
        return ReplyOutcome("other_model", reason=reason)
    refusal, finish = message.get("refusal"), first.get("finish_reason")
    refusal = refusal if isinstance(refusal, str) and refusal else None
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    usage = document.get("usage")
    record = {
        "text": text or refusal or "",
        "finish": finish if isinstance(finish, str) else None,
        "refusal": refusal,
        "reasoning": reasoning if isinstance(reasoning, str) else None,
        "usage": _counts(usage),
        "model": name if isinstance(name, str) else None,
        "fingerprint": _short(document.get("system_fingerprint")),
        "choices": len(choices or ()),
    }
    if refusal is not None or finish == "content_filter":
        return ReplyOutcome("refused", record)
    if finish == "length":
        return ReplyOutcome("truncated", record)
    return ReplyOutcome("answer" if text else "empty", record)


def _text(content: Any) -> str | None:
    """The text of a message: null is an empty one, and a list has parts, of which thoughts are none of the answer;
    None for anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if texts else None


def _counts(usage: Any) -> dict[str, int]:
    whole = usage.items() if isinstance(usage, dict) else ()
    return {key[:40]: value for key, value in whole if type(value) is int and 0 <= value < _MOST_TOKENS}


def _short(value: Any) -> str | None:
    return value[:80] if isinstance(value, str) else None


def _error(document: Any) -> Any:
    return document.get("error", document) if isinstance(document, dict) else None


def _message(document: Any) -> str:
    error = _error(document)
    text = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    if text is None:
        return ""
    return shown_error(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False))


def _quota(document: Any) -> bool:
    error = _error(document)
    return isinstance(error, dict) and "insufficient_quota" in (error.get("code"), error.get("type"))
