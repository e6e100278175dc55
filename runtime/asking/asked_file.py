"""The file of answers, whose bytes plan and log alone decide, and the folder of both beside it (docs/ask.md §5)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from ...engines.errors import ConfigError, RunError
from ..data.answers.coordinate_frames import VIEWED
from ..data.answers.dialects.dialect_registry import DIALECTS
from ..data.answers.line_keys import FINISHES, HEADER
from ..data.answers.line_keys import VERSION as FORMAT
from ..results.folder_lock import lock_folder
from ..results.storage import write_atomic
from .answer_log import AnswerLog
from .ask_plan import AskPlan, read_plan
from .ask_rules import AskRequest


def attempt_file(out: Path, attempt: int) -> Path:
    """The file of an attempt: `OUT`, then `STEM.2.jsonl` and so on."""
    return out if attempt == 1 else out.with_name(f"{out.stem}.{attempt}{out.suffix or '.jsonl'}")


def write_answers(out: Path, plan: AskPlan, log: AnswerLog) -> int:
    """Writes a file for each attempt, in the dataset's order; the number of lines of all. Raises RunError.

    A pair without an answer has no line. The files are replaced as wholes.
    """
    lines = 0

    def write(draft: Path, attempt: int) -> None:
        nonlocal lines
        with draft.open("wb") as stream:
            stream.write(_line({HEADER: FORMAT, **plan.header}))
            lines += _write_lines(stream, plan, log, attempt)

    for attempt in range(1, plan.attempts + 1):
        write_atomic(attempt_file(out, attempt), lambda draft, attempt=attempt: write(draft, attempt))  # type: ignore[misc]
    return lines


def _write_lines(stream: BinaryIO, plan: AskPlan, log: AnswerLog, attempt: int) -> int:
    viewed = DIALECTS[plan.rules.dialect].frame in VIEWED and DIALECTS[plan.rules.dialect].view is None
    lines = 0
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
            stream.write(_line(line))
            lines += 1
    return lines


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


def check_out(request: AskRequest) -> None:
    """Raises ConfigError for a file of somebody else, and for answers of another dataset or dialect."""
    folder = asked_folder(request.out)
    if request.out.exists() and not folder.is_dir():
        raise ConfigError(f"{request.out} exists and was not written by ask; use another --out.")
    plan = read_plan(folder)
    if plan is not None and plan.rules.dialect != request.dialect:
        raise ConfigError(f"{folder} has answers in the dialect {plan.rules.dialect}; use another --out.")
    if plan is not None and plan.dataset != request.dataset:
        raise ConfigError(f"{folder} has answers about the dataset {plan.dataset}; use another --out.")


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
