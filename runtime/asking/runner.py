"""Sends the requests: threads, tries and waits, and the reasons to stop (docs/ask.md §5)."""

from __future__ import annotations

import json
import queue
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from ...engines.errors import RunError, XBenchError
from ..data.answers.dialects.dialect_registry import DIALECTS, JSON, parse
from ..host.http.http_client import Client
from ..host.http.waits import back_off
from .answer_log import KEPT, AnswerLog
from .asked_pairs import AskedQuestion
from .chat_body import KEEPS_TOKENS, RequestRules, token_flag
from .gate import Gate
from .outcomes import GARBAGE_TRIES, Expected, ReplyOutcome, outcome_of, shown_error
from .sent_images import SentImage
from .server_facts import model_ids

_ENDING: Final = ("stop", "other_model")
_FAILED_IN_A_ROW: Final = 20
_FIRST_ANSWERS: Final = 8
_WITHOUT_BOX: Final = 6
_GRACE: Final = 30.0
_TICK: Final = 0.2
_WORD: Final = re.compile(r"\w{4,}")
_MARK: Final = "\0image"
_MARKED: Final = json.dumps({"url": _MARK}).encode()


@dataclass(frozen=True)
class AskJob:
    """One request: its key, and what it asks about which image."""

    key: str
    question: AskedQuestion
    attempt: int
    image: SentImage


@dataclass(frozen=True)
class Waiting:
    """How a run waits: concurrency, tries of a request, and what tests replace: the clock and the factor of waits."""

    concurrency: int = 8
    retries: int = 8
    go_on: bool = False
    factor: Callable[[], float] = random.random
    pause: Callable[[float], None] | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass
class RunState:
    """What happened so far. stopped: why the run ended before its end, empty if it did not. reasons: of failures."""

    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    stopped: str = ""
    requests: int = 0
    most_at_once: int = 0


class AskRunner:
    """Answers jobs and keeps them in the log. done: called with the kind of each finished job."""

    def __init__(
        self, client: Client, rules: RequestRules, log: AnswerLog, expected: Expected, waiting: Waiting
    ) -> None:
        self._client, self._rules, self._log = client, rules, log
        self._expected, self._waiting = expected, waiting
        self.state = RunState()
        self.gate = Gate(waiting.concurrency)
        self._lock = threading.Lock()
        self._failed_in_a_row = self._running = self._tokens = self._boxless = self._first = 0
        self._finished, self._rejected = 0, False

    def run(self, jobs: Iterable[AskJob], done: Callable[[str], None]) -> None:
        """Sends the jobs in their order. Raises KeyboardInterrupt after Ctrl-C, once what is under way has ended."""
        self.gate = Gate(self._waiting.concurrency)  # the first request about a patient goes alone
        self._finished, self._rejected = 0, False
        waiting: queue.Queue[AskJob | None] = queue.Queue(maxsize=1)
        threads = [
            threading.Thread(target=self._work, args=(waiting, done), daemon=True)
            for _ in range(self._waiting.concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            for job in jobs:
                if not self._hand_over(waiting, job):
                    break
            self._hand_over(waiting, None)
            while any(thread.is_alive() for thread in threads):
                self._join(threads)
        except BaseException:
            self.gate.stop()
            end = time.monotonic() + _GRACE
            while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
                self._join(threads)
            raise

    def complete(self, body: bytes) -> ReplyOutcome:
        """One request with its tries, outside the log: to prove the view."""
        outcome, _ = self._tries([body])
        if outcome.kind in _ENDING:
            raise RunError(f"{self._sentence(outcome)}.")
        return outcome

    def stop(self, reason: str) -> None:
        """Nothing new is sent; the first reason is kept."""
        with self._lock:
            self.state.stopped = self.state.stopped or reason
        self.gate.stop()

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            if thread.is_alive():
                thread.join(_TICK)
                break
        if not self.gate.stopped:
            self._log.sync()

    def _hand_over(self, waiting: queue.Queue[AskJob | None], job: AskJob | None) -> bool:
        """Waits until a thread can take the job; False if the run stopped."""
        while not self.gate.stopped:
            try:
                waiting.put(job, timeout=_TICK)
                return True
            except queue.Full:
                self._log.sync()
        return False

    def _work(self, waiting: queue.Queue[AskJob | None], done: Callable[[str], None]) -> None:
        while not self.gate.stopped:
            try:
                job = waiting.get(timeout=_TICK)
            except queue.Empty:
                continue
            if job is None:
                waiting.put(None)  # for the next thread
                return
            try:
                done(self._answer(job))
            except XBenchError as error:
                self.stop(str(error).rstrip("."))
            except Exception as error:  # a fault of this code must end the run, not one thread of it
                self.stop(f"{type(error).__name__} in the code of ask; report it")
                raise

    def _answer(self, job: AskJob) -> str:
        question = job.question
        body = self._rules.body(question.words, {"url": _MARK}, phrase=bool(question.phrase), attempt=job.attempt)
        head, _, tail = json.dumps(body, ensure_ascii=False).encode().partition(_MARKED[:-1])
        sent = (b'%s{"url": "' % head, job.image.url, b'"%s' % tail)
        started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        outcome, facts = self._tries(sent)
        kind = outcome.kind
        if kind in KEPT and (fault := self._other_model(outcome.record)):
            kind, outcome = "other_model", ReplyOutcome("other_model", reason=fault)
        if kind == "left":
            return kind
        record: dict[str, Any] = {"key": job.key, "kind": kind, **outcome.record, **facts, "started": started}
        record |= {"sent_sha256": job.image.sha256, "sent_bytes": job.image.bytes, "sent_size": list(job.image.size)}
        if kind in KEPT or kind in ("failed", "garbage", "rejected"):
            self._log.append(record if kind in KEPT else record | {"error": self._hidden(outcome.reason, job)})
        self._judge(job, kind, outcome)
        return kind

    def _other_model(self, record: Mapping[str, Any]) -> str:
        """Why an answer is not of the model whose answers the log has by the id that is asked; empty if it is."""
        name = record.get("model")
        first = next((known for known in self._log.models if self._expected.is_model(known)), None)
        if first is None or name is None or name == first:
            return ""
        return f"the model '{name[:80]}' answered, and '{first[:80]}' before; use another --out for another model"

    def _tries(self, body: Sequence[bytes]) -> tuple[ReplyOutcome, dict[str, Any]]:
        """The last outcome: never "again", and "left" if the run stopped before an answer. Facts of the record."""
        waited, garbage, tries = 0.0, 0, 0
        while True:
            entered = self.gate.enter()
            if entered is None:
                return ReplyOutcome("left"), {}
            tries += 1
            begun = time.monotonic()
            with self._lock:
                self._running += 1
                self.state.requests += 1
                self.state.most_at_once = max(self.state.most_at_once, self._running)
            reply = self._client.post("/chat/completions", body)
            outcome = outcome_of(reply, self._expected, self._waiting.now())
            with self._lock:
                self._running -= 1
                self._finished += outcome.kind != "again"
                self._rejected |= outcome.kind == "rejected" and self._finished == 1
                ends = outcome.kind in _ENDING or self._rejected
            if ends:
                self.gate.stop()  # before the place is free, so that no other request takes it
            self.gate.leave(entered, congested=outcome.congested, answered=outcome.kind in KEPT)
            garbage += outcome.garbage
            facts = {
                "status": reply.status,
                "tries": tries,
                "waited_s": round(waited, 3),
                "latency_ms": round(1000 * (time.monotonic() - begun), 1),
            }
            if outcome.kind != "again":
                return outcome, facts
            if garbage >= GARBAGE_TRIES or tries >= self._waiting.retries:
                with self._lock:
                    self._finished += 1
                return ReplyOutcome("garbage" if outcome.garbage else "failed", reason=outcome.reason), facts
            seconds = back_off(tries, self._waiting.factor()) if outcome.wait is None else outcome.wait
            waited += seconds
            (self._waiting.pause or self.gate.pause)(seconds)

    def _judge(self, job: AskJob, kind: str, outcome: ReplyOutcome) -> None:
        """Counts a finished job, and stops the run where going on would waste requests."""
        with self._lock:
            self.state.kinds[kind] += 1
            failed = kind in ("failed", "garbage")
            self._failed_in_a_row = self._failed_in_a_row + 1 if failed else 0
            in_a_row = self._failed_in_a_row
            if kind not in KEPT:
                self.state.reasons[self._hidden(outcome.reason, job)] += 1
        if kind in _ENDING:
            self.stop(self._hidden(self._sentence(outcome, len(job.image.url)), job))
        elif kind == "rejected" and self._rejected:
            self.stop(
                f"{self._hidden(outcome.reason, job)}; it is the first answer, so all others would be rejected too"
            )
        elif in_a_row >= _FAILED_IN_A_ROW:
            reason = self._hidden(outcome.reason, job)
            self.stop(f"{in_a_row} requests in a row failed; the last: {reason}. Run the same command again later")
        elif kind in KEPT:
            self._watch_tokens(str(outcome.record["text"]))

    def _watch_tokens(self, text: str) -> None:
        """Looks at the first answers of a dialect of tokens: a server that drops tokens loses every box."""
        tokens = self._rules.asked.tokens
        with self._lock:
            if not tokens or self._first >= _FIRST_ANSWERS:
                return
            self._first += 1
            self._tokens += any(token in text for token in tokens)
            self._boxless += self._rules.dialect != JSON and not parse(self._rules.dialect, text).boxes
            if self._first < _FIRST_ANSWERS or self._tokens or self._boxless < _WITHOUT_BOX:
                return
        title = DIALECTS[self._rules.dialect].title
        problem = f"none of the first {_FIRST_ANSWERS} answers has a token of {title} ({', '.join(tokens)})"
        server = self._rules.server
        if server in KEEPS_TOKENS or self._waiting.go_on:
            self.state.notes.append(f"tokens_missing: {problem}; the server may drop special tokens")
            return
        lost = f"{problem}, and this server takes no field that keeps them"
        self.stop(f"{lost}: {token_flag(server)}, or go on with --go-on")

    def _hidden(self, reason: str, job: AskJob) -> str:
        """A reason without the words of a phrase, which is a text of a report; a server may repeat a part of it."""
        phrase = job.question.words.split() if job.question.phrase else []
        words = _WORD.findall(" ".join(phrase).casefold())

        def shown(word: re.Match[str]) -> str:
            return "[removed]" if any(each.startswith(word[0].casefold()) for each in words) else word[0]

        text = shown_error(reason)
        if phrase:  # a whole one may have short words alone
            spelled = r"\s+".join(map(re.escape, phrase))
            text = re.sub(rf"(?<!\w){spelled}(?!\w)", "[removed]", text, flags=re.IGNORECASE)
        return _WORD.sub(shown, text)

    def _sentence(self, outcome: ReplyOutcome, sent: int = 0) -> str:
        """The reason of a stop, with what helps: the models that there are, or the bytes of the image."""
        status = outcome.record.get("status")
        listed = model_ids(self._client) if status == 404 else ""
        more = f"; the server lists {listed}" if listed else ""
        return f"{outcome.reason}{more}" + f"; the image has {sent} bytes" * (status == 413 and sent > 0)
