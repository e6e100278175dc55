"""The plan: what is asked by which rules. The answers' file follows from it and the log alone (docs/ask.md §5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...engines.errors import DataError, RunError
from ...engines.strict_json import parse_json
from ..results.storage import write_bytes
from .answer_log import ImageRecord, KeptAnswers
from .asked_pairs import AskedImage, AskedQuestion
from .chat_body import RequestRules

PLAN_FILE: Final = "plan.json"
VERSION: Final = 1


@dataclass(frozen=True)
class AskPlan:
    """A plan. header: of the file of answers. attempts: files. images: in the dataset's order."""

    dataset: str
    rules: RequestRules
    header: Mapping[str, Any]
    attempts: int
    images: tuple[AskedImage, ...]

    @property
    def pairs(self) -> int:
        return sum(len(image.questions) for image in self.images)

    def keys(self, image: AskedImage, pixels: str, attempt: int) -> Iterator[tuple[AskedQuestion, str]]:
        """Each question of an image with the content key of its answer."""
        for question in image.questions:
            phrase = bool(question.phrase)
            yield question, self.rules.key(question.words, pixels, phrase=phrase, attempt=attempt)

    def known(self, log: KeptAnswers, image: AskedImage) -> ImageRecord | None:
        """What the log knows of the image in this preparation."""
        return log.images.get((image_name(image), self.preparation))

    @property
    def preparation(self) -> str:
        """Everything that decides the sent pixels."""
        return self.rules.preparation


def image_name(image: AskedImage) -> str:
    """The name of an image in the log, which holds neither cases nor paths."""
    return hashlib.sha256(f"{image.case}\n{image.path.name}".encode()).hexdigest()[:32]


def write_plan(folder: Path, plan: AskPlan) -> None:
    """Writes the plan atomically. Raises RunError."""
    data = {
        "xbench_ask_plan": VERSION,
        "dataset": plan.dataset,
        "rules": asdict(plan.rules),
        "header": dict(plan.header),
        "attempts": plan.attempts,
        "images": [
            [image.case, image.path.name, [[q.words, q.present, q.finding, q.phrase] for q in image.questions]]
            for image in plan.images
        ],
    }
    write_bytes(folder / PLAN_FILE, (json.dumps(data, ensure_ascii=False) + "\n").encode())


def read_plan(folder: Path) -> AskPlan | None:
    """The plan in a folder; None if there is none. Its images have names of files, not paths. Raises RunError."""
    path = folder / PLAN_FILE
    try:
        data = parse_json(path.read_bytes())
        if data["xbench_ask_plan"] != VERSION:
            raise ValueError
        rules = data["rules"]
        plan = AskPlan(
            dataset=data["dataset"],
            rules=RequestRules(**{**rules, "removed": tuple(rules["removed"])}),
            header=data["header"],
            attempts=data["attempts"],
            images=tuple(
                AskedImage(case, Path(name), tuple(AskedQuestion(*question) for question in questions))
                for case, name, questions in data["images"]
            ),
        )
        check_plan(plan)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, DataError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise RunError(
            f"{path} cannot be read as a plan ({reason}); delete it and the file of answers, and run the same command "
            "again: the log keeps the answers."
        ) from error
    return plan


def check_plan(plan: AskPlan) -> None:
    """Raises UnicodeEncodeError for a text that has half a surrogate pair, and what else keys and lines of a plan that
    was not made here fail with."""
    for image in plan.images:
        image_name(image)
        for question in image.questions:
            for text in (question.words, question.finding, question.phrase):
                text.encode()
    if not (isinstance(plan.header, dict) and type(plan.attempts) is int and plan.attempts >= 1):
        raise ValueError
    json.dumps([plan.dataset.strip(), plan.header], ensure_ascii=False).encode()
    for phrase in (False, True):
        plan.rules.key("", "", phrase=phrase)


def same_questions(plan: AskPlan, earlier: AskPlan) -> bool:
    """Whether two plans ask the same in the same way; when they were made does not count."""
    without = [replace(each, header={}, images=()) for each in (plan, earlier)]
    images = [[(image.case, image.path.name, image.questions) for image in each.images] for each in (plan, earlier)]
    return without[0] == without[1] and images[0] == images[1]
