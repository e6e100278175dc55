"""The file of answers and its counts, which plan and log alone decide, and the folder of both (docs/ask.md §5, §6)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from ...engines.errors import ConfigError, RunError
from ...engines.strict_json import parse_json
from ..data.answers.coordinate_frames import VIEWED
from ..data.answers.dialects.dialect_registry import DIALECTS
from ..data.answers.line_keys import FINISHES, HEADER
from ..data.answers.line_keys import VERSION as FORMAT
from ..host.paths import has_folder
from ..results.folder_lock import lock_folder
from ..results.storage import write_atomic
from .answer_log import KEPT, AnswerLog, KeptAnswers
from .ask_plan import AskPlan, read_plan
from .ask_rules import AskRequest

TOKENS: Final = ("prompt_tokens", "completion_tokens")
WITHOUT: Final = "without answer"
"""The kind of a pair that has no answer."""


def attempt_file(out: Path, attempt: int) -> Path:
    """The file of an attempt: `OUT`, then `STEM.2.jsonl` and so on."""
    return out if attempt == 1 else out.with_name(f"{out.stem}.{attempt}{out.suffix or '.jsonl'}")


def write_answers(out: Path, plan: AskPlan, log: AnswerLog) -> tuple[int, ...]:
    """Writes a file for each attempt, in the dataset's order; the number of answers in each. Raises RunError.

    A pair without an answer has no line. The files are replaced as wholes.
    """
    answers = [0] * plan.attempts

    def write(draft: Path, attempt: int) -> None:
        with draft.open("wb") as stream:
            for number, line in enumerate(answer_lines(plan, log, attempt)):
                stream.write(line)
                answers[attempt - 1] = number

    for attempt in range(1, plan.attempts + 1):
        write_atomic(attempt_file(out, attempt), lambda draft, attempt=attempt: write(draft, attempt))  # type: ignore[misc]
    return tuple(answers)


def answer_lines(plan: AskPlan, log: KeptAnswers, attempt: int) -> Iterator[bytes]:
    """The lines of the file of an attempt, of which the first is the header."""
    yield _line({HEADER: FORMAT, **plan.header})
    viewed = DIALECTS[plan.rules.dialect].frame in VIEWED and DIALECTS[plan.rules.dialect].view is None
    for image in plan.images:
        known = plan.known(log, image)
        if known is None:
            continue
        for question, key in plan.keys(image, known.pixels, attempt):
            record = log.answer(key)
            if record is None:
                continue
            about = {"phrase": question.phrase} if question.phrase else {"finding": question.finding}
            line = {"case": image.case, **about, "text": record["text"], "finish": finish_of_record(record)}
            if viewed:
                line["view"] = list(known.size)
            yield _line(line)


@dataclass(frozen=True)
class AnswerCounts:
    """Pairs that are present or absent. kinds: pairs of each of `KEPT`, and of `WITHOUT`. tokens: name of `TOKENS` ->
    those of each answer whose tokens the server counted; times: milliseconds of each answer. An answer that several
    pairs share has its tokens and time once, with the first."""

    kinds: Counter[str] = field(default_factory=Counter)
    tokens: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in TOKENS})
    times: list[float] = field(default_factory=list)


def answer_counts(plan: AskPlan, log: KeptAnswers, attempts: Iterable[int]) -> dict[str, AnswerCounts]:
    """The counts of these attempts, of the "present" and the "absent" findings."""
    about = dict(_facts(log))
    found = {truth: AnswerCounts() for truth in ("present", "absent")}
    counted = set[int | None]()
    for attempt in attempts:
        for image in plan.images:
            known = plan.known(log, image)
            keys = [] if known is None else [key for _, key in plan.keys(image, known.pixels, attempt)]
            for question, key in zip_longest(image.questions, keys):
                counts = found["present" if question.present else "absent"]
                offset = None if key is None else log.keys.get(bytes.fromhex(key))
                kind, tokens, time = about.get(offset, (WITHOUT, (), None))
                counts.kinds[kind] += 1
                if offset not in counted:
                    counted.add(offset)
                    for name, count in zip(TOKENS, tokens, strict=False):
                        counts.tokens[name] += [] if count is None else [count]
                    counts.times.extend([] if time is None else [time])
    return found


def _facts(log: KeptAnswers) -> Iterator[tuple[int | None, tuple[str, tuple[int | None, ...], float | None]]]:
    """The offset of each answer with its kind, tokens and milliseconds."""
    for offset, record in log.records():
        if record.get("kind") in KEPT:
            usage = record["usage"] if isinstance(record.get("usage"), dict) else {}
            tokens = (usage.get(name) for name in TOKENS)
            time = record.get("latency_ms")
            counts = tuple(count if type(count) is int else None for count in tokens)
            yield offset, (record["kind"], counts, time if isinstance(time, int | float) else None)


def latency(times: Sequence[float]) -> dict[str, float]:
    """The median, the 95th percentile and the maximum of some times; empty without any."""
    if not times:
        return {}
    return dict(zip(("median", "p95", "max"), np.percentile(times, (50, 95, 100)).tolist(), strict=True))


def cost(prices: tuple[float, float], tokens: Mapping[str, int]) -> float:
    """What tokens cost by the prices of a million of each of `TOKENS`."""
    return sum(price * tokens[name] for price, name in zip(prices, TOKENS, strict=True)) / 1e6


def finish_of_record(record: Mapping[str, Any]) -> str:
    """Why an answer ended, in the words of the format."""
    finish = record.get("finish")
    if record.get("refusal") and finish != "content_filter":
        return "refusal"
    return finish if finish in FINISHES else "other"


def _line(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False) + "\n").encode()


def asked_folder(out: Path) -> Path:
    """The folder of plan and log beside a file of answers."""
    return out.with_name(f"{out.name}.asked")


def store_of(file: Path) -> tuple[Path, int] | None:
    """The folder of plan and log of a file of answers, and the attempt of the file; None if `ask` did not write it."""
    stem, _, number = file.stem.rpartition(".")
    attempt = int(number) if number.isdecimal() else 1
    for out in (file, file.with_name(stem + file.suffix), file.with_name(stem)) if stem else (file,):
        which = 1 if out == file else attempt
        if attempt_file(out, which) == file and has_folder(asked_folder(out)):
            return asked_folder(out), which
    return None


def check_out(request: AskRequest) -> None:
    """Raises ConfigError for a file of somebody else, and for answers of another dataset or dialect."""
    folder = asked_folder(request.out)
    plan = read_plan(folder)
    check_files(request.out, request.options.attempts, plan)
    if plan is not None and plan.rules.dialect != request.dialect:
        raise ConfigError(f"{folder} has answers in the dialect {plan.rules.dialect}; use another --out.")
    if plan is not None and plan.dataset != request.dataset:
        raise ConfigError(f"{folder} has answers about the dataset {plan.dataset}; use another --out.")


def check_files(out: Path, attempts: int, plan: AskPlan | None) -> None:
    """Raises ConfigError for a file of somebody else where an attempt would be written; plan: of the files there."""
    for file in (attempt_file(out, attempt) for attempt in range(1, attempts + 1)):
        if file.exists() and (plan is None or not _is_asked(file, plan)):
            raise ConfigError(f"{file} exists and was not written by ask; use another --out.")


def _is_asked(file: Path, plan: AskPlan) -> bool:
    """Whether a file has a header such as those that are written about the dataset of a plan in its dialect."""
    try:
        with file.open("rb") as stream:
            header = parse_json(stream.readline())
    except (OSError, ValueError, RecursionError):
        return False
    about = {"dataset": plan.dataset, "dialect": plan.rules.dialect}
    return isinstance(header, dict) and "attempts" in header and about.items() <= header.items()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder. Raises RunError if another process has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock: IO[str] | None = lock_folder(folder)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror or error}; use another --out.") from error
    if lock is None:
        raise RunError(f"Another ask is writing into {folder} now; wait for it, or use another --out.")
    with lock:
        yield
