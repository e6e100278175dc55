"""The requests of a plan: what is answered already, and the images of the rest, prepared once each (docs/ask.md §5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...engines.errors import ImageError
from ..data.images.decode import decode_ahead
from ..evaluation.progress import Advance, Progress
from ..host.http.server_address import Endpoint
from ..host.machine_record import usable_cores
from ..results.loaded_dataset import LoadedDataset
from .answer_log import AnswerLog, ImageRecord, KeptAnswers
from .ask_plan import AskPlan, image_name
from .ask_rules import AskRequest
from .asked_pairs import AskedImage
from .chat_body import RequestRules
from .runner import AskJob
from .sent_images import SentImage, read_sent

_THREADS: Final = 4
"""Images that are prepared at once, at most: a server answers more slowly than that."""


@dataclass
class AskSession:
    """One call: what was loaded and found before the first request."""

    request: AskRequest
    loaded: LoadedDataset
    endpoint: Endpoint
    plan: AskPlan
    unreadable: set[str] = field(default_factory=set)
    reused: int = 0


def to_ask(session: AskSession, log: KeptAnswers) -> list[AskedImage]:
    """The images with a pair to ask, or whose pixels are not known; counts the pairs that are answered."""
    plan, todo = session.plan, []
    for image in plan.images:
        known = None if session.request.options.recheck else _unchanged(plan, image, log)
        if known is None:
            todo.append(image)
            continue
        answered = sum(
            log.has(key)
            for attempt in range(1, plan.attempts + 1)
            for _, key in plan.keys(image, known.pixels, attempt)
        )
        session.reused += answered
        if answered < len(image.questions) * plan.attempts:
            todo.append(image)
    return todo


def skipped(session: AskSession, log: KeptAnswers) -> int:
    """The pairs of unreadable images that have no answer, of all attempts."""
    plan, pairs = session.plan, 0
    for image in plan.images:
        if image.case in session.unreadable:
            known = plan.known(log, image)
            keys = (plan.keys(image, known.pixels, attempt + 1) for attempt in range(plan.attempts)) if known else ()
            pairs += len(image.questions) * plan.attempts - sum(log.has(key) for each in keys for _, key in each)
    return pairs


def _unchanged(plan: AskPlan, image: AskedImage, log: KeptAnswers) -> ImageRecord | None:
    """What the log knows of an image whose file has not changed since."""
    known = plan.known(log, image)
    if known is None:
        return None
    try:
        state = image.path.stat()
    except (OSError, ValueError):
        return None
    return known if (state.st_size, state.st_mtime_ns) == (known.bytes, known.mtime_ns) else None


def jobs(
    session: AskSession, todo: list[AskedImage], log: AnswerLog, count: Advance, progress: Progress
) -> Iterator[AskJob]:
    """The requests in the dataset's order, each key once; an image is prepared once for all its findings.

    count: counts the pairs that need no request.
    """
    plan, asked = session.plan, set[str]()
    read = partial(_read, rules=plan.rules)
    workers = min(_THREADS, usable_cores())
    with closing(decode_ahead(read, todo, workers, 2 * workers)) as images:
        for image, state, sent in images:
            if isinstance(sent, ImageError):
                session.unreadable.add(image.case)
                progress.say(f"skipped: {sent}")
                count(len(image.questions) * plan.attempts)
                continue
            known = ImageRecord(state[0], state[1], sent.pixels, sent.size, sent.original)
            same = plan.known(log, image) == known
            counted = same and not session.request.options.recheck
            if not same:
                log.append({"image": image_name(image), "preparation": plan.preparation, **known._asdict()})
            for attempt in range(1, plan.attempts + 1):
                for question, key in plan.keys(image, sent.pixels, attempt):
                    if key in asked:
                        count(1)
                    elif not log.has(key):
                        asked.add(key)
                        yield AskJob(key, question, attempt, sent)
                    elif not counted:  # its file was read again, and its pixels are the same
                        session.reused += 1
                        count(1)


def _read(image: AskedImage, rules: RequestRules) -> tuple[AskedImage, tuple[int, int], SentImage | ImageError]:
    """An image as it is sent, with the size and time of its file before it was read."""
    try:
        state = image.path.stat()
        return image, (state.st_size, state.st_mtime_ns), read_sent(image.path, rules.preparation, rules.encoding)
    except ImageError as error:
        return image, (0, 0), error
    except (OSError, ValueError) as error:
        return image, (0, 0), ImageError(f"{image.path} cannot be read: {getattr(error, 'strerror', None) or error}.")
