"""Proves by counting tokens that the server keeps the size of the sent image (docs/ask.md §3)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from ...engines.errors import RunError
from ..data.answers.coordinate_frames import Size
from ..data.answers.line_keys import VIEW_NOT_PROVED
from .chat_body import LIMITS, RequestRules
from .outcomes import ReplyOutcome
from .sent_images import as_sent

PROVED: Final = "view proved"
_SMALL: Final = {28: (280, 280), 32: (256, 256), 0: (256, 256)}
_GREY: Final = 127
_WORDS: Final = "finding"


def prove_view(
    ask: Callable[[bytes], ReplyOutcome], rules: RequestRules, largest: Size, *, unproved: bool
) -> tuple[str, str]:
    """What the header says of the view, and why, from two requests with grey images that show no patient.

    ask: sends a body. largest: the largest size of the plan. unproved: a server that resizes is accepted
    (--view-unproved). Raises RunError for a server that resizes.
    """
    factor = rules.asked.factor
    if factor is None:
        return VIEW_NOT_PROVED, "no rule of this dialect says how many tokens an image costs"
    small = _SMALL[factor]
    counts = [_tokens(ask, rules, size) for size in (small, largest)]
    if None in counts:
        return VIEW_NOT_PROVED, "the server does not count the tokens of a prompt"
    difference = int(counts[1] or 0) - int(counts[0] or 0)
    area = factor * factor
    tokens = [size[0] * size[1] // area if area else 0 for size in (small, largest)]
    if difference == tokens[1] - tokens[0]:
        return PROVED, ""
    if not area:
        problem = f"the server resizes: images of two sizes differ by {difference} tokens instead of 0"
    else:
        counted = tokens[0] + difference
        scale = math.sqrt(max(counted, 0) / tokens[1])
        seen = [factor * round(side * scale / factor) for side in largest]
        problem = f"the server resizes: {counted} image tokens instead of {tokens[1]}, as of {seen[0]} x {seen[1]}"
    if unproved:
        return VIEW_NOT_PROVED, problem
    raise RunError(
        f"{problem[0].upper()}{problem[1:]}. Boxes would be in another frame than the file says; raise the server's "
        "limit of image tokens, choose a smaller --view, or accept it with --view-unproved."
    )


def _tokens(ask: Callable[[bytes], ReplyOutcome], rules: RequestRules, size: Size) -> int | None:
    """The tokens of the prompt with a grey image; None where the server does not say. Raises RunError."""
    image = as_sent(np.full(size[::-1], _GREY, np.uint8), rules.encoding, size)
    body = rules.body(_WORDS, {"url": image.url.decode()})
    for key in LIMITS:
        if key in body:
            body[key] = 1
    outcome = ask(json.dumps(body).encode())
    if "text" not in outcome.record:
        raise RunError(f"The server did not answer a request without a patient: {outcome.reason}.")
    count = outcome.record["usage"].get("prompt_tokens")
    return count if isinstance(count, int) else None
