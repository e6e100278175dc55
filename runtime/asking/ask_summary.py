"""What a run of `ask` came to: kinds, tokens, latency, cost, and the check of the frame (docs/ask.md §6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...metrics_gpu.detection.boxes import BoxLists
from ...metrics_gpu.detection.unions import pixel_rectangles, union_counts
from ..data.answers.answered import BoxFile, State
from ..data.answers.bad_line import printable
from ..data.answers.dialects.dialect_registry import DIALECTS
from ..data.answers.frame_check import frame_check
from ..data.answers.lines import HashedFile, json_object
from ..data.answers.questions import Questions
from ..data.answers.read_box_file import read_boxes
from ..data.answers.unread_answers import text_warnings, unread_answers
from ..evaluation.progress import Progress
from ..evaluation.reference.word_checking import check_words
from ..results.loaded_dataset import LoadedDataset
from .answer_log import KEPT, AnswerLog
from .ask_plan import AskPlan
from .ask_rules import AskRequest, prices
from .asked_file import TOKENS, answer_counts, attempt_file, cost, latency
from .runner import RunState

_TEXTS: Final = 10
_SHOWN: Final = 80
MANY_UNREADABLE: Final = 0.01
"""A share of unreadable images above which a run ends with status 1."""


@dataclass(frozen=True)
class AskedRun:
    """A run that ended. loaded: None where nothing was asked. reused: answers from before; answers: in each file;
    skipped: pairs without a line because their image is unreadable."""

    plan: AskPlan
    loaded: LoadedDataset | None
    log: AnswerLog
    state: RunState
    request: AskRequest
    seconds: float
    unreadable: int
    reused: int
    answers: tuple[int, ...]
    skipped: int = 0


def summary(asked: AskedRun, progress: Progress) -> dict[str, Any]:
    """The counts of a run, which are also said in lines."""
    plan, total = asked.plan, asked.plan.pairs * asked.plan.attempts
    counted = answer_counts(plan, asked.log, range(1, plan.attempts + 1))
    tokens = {name: sum(sum(each.tokens[name]) for each in counted.values()) for name in TOKENS}
    times, given = [time for each in counted.values() for time in each.times], prices(asked.request.options.prices)
    files = [attempt_file(asked.request.out, attempt) for attempt in range(1, plan.attempts + 1)]
    answers = sum(asked.answers)
    questions = _questions(asked.loaded) if asked.loaded and asked.state.requests else None
    read = [
        read_boxes(path, questions) if questions is not None and lines else None
        for path, lines in zip(files, asked.answers, strict=True)
    ]
    first = read[0]
    counts: dict[str, Any] = {
        "dataset": plan.dataset,
        "dialect": plan.rules.dialect,
        "model": plan.rules.model,
        "note": plan.header.get("note", ""),
        "files": [str(path) for path in files],
        "pairs": plan.pairs,
        "images": len(plan.images),
        "attempts": plan.attempts,
        "answers": answers,
        "answered_before": asked.reused,
        "failed": total - answers,
        "skipped": asked.skipped,
        "unreadable_images": asked.unreadable,
        "many_unreadable": asked.unreadable > MANY_UNREADABLE * len(plan.images),
        "requests": asked.state.requests,
        "seconds": round(asked.seconds, 3),
        "kinds": {truth: dict(each.kinds) for truth, each in counted.items()},
        "this_run": dict(asked.state.kinds),
        "reasons": dict(asked.state.reasons.most_common(_TEXTS)),
        "tokens": tokens,
        "latency_ms": {name: round(value, 1) for name, value in latency(times).items()},
        "cost": None if given is None else round(cost(given, tokens), 4),
        "damaged_lines": asked.log.damaged,
        "repeated_keys": asked.log.repeated,
        "torn_bytes": asked.log.torn,
        "texts_without_box": _texts_without_box(files[0], first) if first else [],
        "warnings": [*asked.state.notes, *(_warnings(first, questions, asked.loaded) if first else [])],
        "differences": [_difference(first, other) for other in read[1:]] if questions is not None else [],
        "stopped": asked.state.stopped,
    }
    for line in _lines(counts, asked):
        progress.say(line)
    return counts


def _questions(loaded: LoadedDataset) -> Questions:
    dataset = loaded.dataset
    names = (loaded.name, dataset.name, dataset.title)
    return Questions(dataset.cases(), dataset.classes, names, loaded.file_sizes)


def _warnings(file: BoxFile, questions: Questions | None, loaded: LoadedDataset | None) -> list[str]:
    assert questions is not None and loaded is not None
    unread = unread_answers(file)
    check = frame_check(file, questions) if file.thorax is None else check_words(file, questions, loaded.dataset)[1]
    lines = [check, *text_warnings(file), unread.sentence if unread.many else ""]
    return [line for line in lines if line]


def _texts_without_box(path: Any, file: BoxFile) -> list[tuple[str, int]]:
    """The most frequent texts without a box or a place, cut."""
    silent = {
        int(line)
        for answers in (file.positives, file.negatives)
        for line, state in zip(answers.lines, answers.state, strict=True)
        if line and state in (State.SILENT, State.NO_BOX_IN_TEXT, State.REFUSED, State.UNPARSABLE)
    }
    texts = Counter[str]()
    for number, content in HashedFile(path).lines():
        if number in silent:
            line = json_object(content)
            if "phrase" not in line:
                texts[printable(" ".join(line["text"].split()))[:_SHOWN]] += 1
    return texts.most_common(_TEXTS)


def _difference(first: BoxFile | None, other: BoxFile | None) -> dict[str, Any]:
    """How an attempt differs from the first: pairs of another state, and the mean IoU of the unions of boxes; None
    where one of them has no answer."""
    if first is None or other is None:
        return {"states": None, "mean_iou": None}
    one, two = first.positives, other.positives
    absent = other.negatives.positions(first.negatives.places)
    both = absent >= 0
    states = (one.state != two.state).sum() + (first.negatives.state[both] != other.negatives.state[absent[both]]).sum()
    sizes = np.maximum(one.sizes, two.sizes).astype(np.int64)
    counts = union_counts(*(pixel_rectangles(BoxLists(a.boxes, a.offsets, None), sizes) for a in (one, two)))
    union = counts.area + counts.region - counts.overlap
    either = union > 0
    return {
        "states": int(states),
        "mean_iou": float((counts.overlap[either] / union[either]).mean()) if either.any() else None,
    }


def _lines(counts: Mapping[str, Any], asked: AskedRun) -> list[str]:
    lines = [f"{counts['answers']} of {counts['pairs'] * counts['attempts']} answers in {counts['files'][0]}"]
    for truth, kinds in counts["kinds"].items():
        if kinds:
            lines.append(f"{truth}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    if counts["requests"]:
        lines.append(f"{counts['requests']} requests in {counts['seconds']:.1f} s")
    tokens, waited = counts["tokens"], counts["latency_ms"]
    if any(tokens.values()):
        price = "" if counts["cost"] is None else f", cost {counts['cost']:g}"
        lines.append(f"tokens: {tokens['prompt_tokens']} of prompts, {tokens['completion_tokens']} of answers{price}")
    if waited:
        lines.append(f"latency: median {waited['median']:g} ms, 95 % below {waited['p95']:g} ms")
    if counts["unreadable_images"]:
        lines.append(f"{counts['unreadable_images']} images could not be read; their pairs have no line")
    what = "place" if DIALECTS[counts["dialect"]].words else "box"
    if counts["damaged_lines"]:
        lines.append(f"{counts['damaged_lines']} damaged lines of the log were skipped")
    lines += [f"no {what} ({count}): '{text}'" for text, count in counts["texts_without_box"]]
    lines += [
        f"attempt {number}: {each['states']} pairs of another state than in attempt 1"
        + ("" if each["mean_iou"] is None else f", mean IoU {each['mean_iou']:.2f}")
        for number, each in enumerate(counts["differences"], 2)
        if each["states"] is not None
    ]
    lines += [f"warning: {text}" for text in counts["warnings"]]
    lines += [f"{kind}: {count}" for kind, count in counts["this_run"].items() if kind not in KEPT]
    name = asked.request.out.stem
    lines.append(
        f"next: xbench-fast eval --model boxes:{name}={asked.request.out} --dataset {asked.plan.dataset} "
        "(and --data as here)"
    )
    return lines
