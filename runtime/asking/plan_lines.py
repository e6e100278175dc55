"""The plan in words, with what it will send and cost, before anything is sent (docs/ask.md §1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...engines.errors import ImageError
from ..data.answers.coordinate_frames import Size
from ..host.http.server_address import Endpoint
from ..host.sizes import format_bytes
from .ask_plan import AskPlan
from .asked_pairs import AskedImage
from .chat_body import KEEPS_TOKENS, SERVERS, RequestRules, token_flag
from .dialect_prompts import IMAGE
from .endpoint import RULE
from .sent_images import fixed_size, read_sent

_SAMPLE: Final = 8
"""Images that are prepared for the estimate."""

_TOKENS: Final = {"medgemma15": 256, "paligemma": 1024, "paligemma1024": 1024}
_LETTERS: Final = 4  # of English in a token, about
_TEXT_BYTES: Final = 1000


@dataclass(frozen=True)
class Estimate:
    """bytes: of the requests that are left; each: of one; prompt_tokens: of those left, None where no rule is known;
    size: of a sent image, None where they differ; cost: of the prompts, None where it is not known, and most of the
    answers, None where requests state no limit; None without prices."""

    bytes: int
    each: int
    prompt_tokens: int | None
    size: Size | None
    cost: tuple[float | None, float | None] | None = None


def estimate(
    plan: AskPlan, sample: Sequence[AskedImage], answered: int, prices: tuple[float, float] | None = None
) -> Estimate:
    """From the first images of a sample that can be read; nothing is read and nothing estimated without one.

    answered: pairs that are not asked again. prices: of a million prompt tokens and a million answer tokens.
    """
    sent = []
    for image in sample[:_SAMPLE]:
        try:
            sent.append(read_sent(image.path, plan.rules.preparation, plan.rules.encoding))
        except ImageError:
            continue
    requests = max(0, plan.pairs * plan.attempts - answered)
    each = sum(len(image.url) for image in sent) // len(sent) + _TEXT_BYTES if sent else 0
    asked = plan.rules.asked
    letters = sum(len(part) for part in asked.parts if part != IMAGE) + len(asked.system or "")
    tokens: float | None = _TOKENS.get(plan.rules.dialect)
    if asked.factor and sent:
        tokens = sum(image.size[0] * image.size[1] for image in sent) / asked.factor**2 / len(sent)
    known = None if tokens is None else int(requests * (tokens + letters / _LETTERS))
    sizes = {image.size for image in sent}
    size = sizes.pop() if len(sizes) == 1 else None
    cost = None
    if prices is not None:
        prompts, answers = (price / 1e6 for price in prices)
        most = plan.rules.most_tokens
        cost = None if known is None else prompts * known, None if most is None else answers * requests * most
    return Estimate(requests * each, each, known, size, cost)


def plan_lines(
    plan: AskPlan, endpoint: Endpoint, counted: Estimate, answered: int, *, credentialed: bool, sent: bool
) -> list[str]:
    """The lines of a plan. credentialed: the dataset is under a use agreement. sent: whether requests follow."""
    rules, asked = plan.rules, plan.rules.asked
    questions = [question for image in plan.images for question in image.questions]
    absent = sum(not question.present for question in questions)
    findings = len({question.finding for question in questions if question.finding})
    named = f"{findings} findings" if findings else f"{len({q.phrase for q in questions})} phrases"
    requests = plan.pairs * plan.attempts
    size = f" {counted.size[0]} x {counted.size[1]}" if counted.size else ""
    if asked.factor is None:
        proof = "view not proved, since no rule of tokens is known"
    elif answered >= requests:
        proof = "view as before"
    else:
        several = "" if fixed_size(rules.preparation) else " (3 if the image with the longest side is not the largest)"
        proof = f"view proved by 2 requests without a patient{several}"
    tokens = "" if counted.prompt_tokens is None else f", about {_rounded(counted.prompt_tokens)} prompt tokens"
    volume = f", about {format_bytes(counted.bytes)} sent ({format_bytes(counted.each)} each)" if counted.each else ""
    limit = "no limit of tokens" if rules.most_tokens is None else f"at most {rules.most_tokens} tokens"
    lines = [
        f"{plan.dataset}: {plan.pairs} pairs, {len(plan.images)} images, {named}; negatives: {absent or 'none'}",
        f"{rules.dialect}, {'prompt of the dialect' if rules.prompt is None else 'own prompt'}, "
        f"{_sampling(rules)}, {limit}; image{size} ({rules.preparation}), {proof}",
        f"{requests} requests{volume}{tokens}; {answered} answered before",
    ]
    if counted.cost is not None:
        prompts, answers = counted.cost
        about = "" if prompts is None else f"about {prompts:.4g} for prompts, "
        most = "no limit" if answers is None else f"at most {answers:.4g}"
        lines.append(f"cost by --prices: {about}{most} for answers")
    if asked.special and rules.server not in KEEPS_TOKENS and (sent or rules.server != SERVERS[-1]):
        lines.append(
            f"The dialect {rules.dialect} has special tokens, which no field of a request keeps at a server of the "
            f"kind {rules.server}: {token_flag(rules.server)}."
        )
    if not absent:
        lines.append("Only present findings are asked: nothing will be known about invented boxes.")
    if not asked.served:
        lines.append(f"No known server has a model of the dialect {rules.dialect}; a server of your own may.")
    if plan.attempts > 1 and rules.settings(1).get("temperature") == 0:
        lines.append("Several attempts at temperature 0: only what the server does not repeat exactly will differ.")
    if endpoint.local:
        lines.append(f"{endpoint.shown}: this machine. No image leaves it.")
    else:
        lines.append(f"{len(plan.images)} images of {plan.dataset} leave this machine for {endpoint.host}.")
        if credentialed:
            lines.append(f"{plan.dataset}: {RULE}.")
        if endpoint.scheme == "http":
            lines.append(f"warning: http to {endpoint.host} is not encrypted; anyone on the way can read the images.")
    return lines if sent else [*lines, "Nothing was sent (--dry-run)."]


def _sampling(rules: RequestRules) -> str:
    """The temperature that requests state."""
    temperature = rules.settings(1).get("temperature")
    stated = "no temperature" if temperature is None else f"temperature {json.dumps(temperature)}"
    return f"official sampling ({stated})" if rules.samples_officially else stated


def _rounded(count: int) -> str:
    return (
        f"{count / 1e6:.1f} million"
        if count >= 1_000_000
        else f"{count / 1e3:.0f} thousand"
        if count >= 1000
        else str(count)
    )
