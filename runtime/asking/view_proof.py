"""Proves by counting tokens that the server keeps the size of the sent image (docs/ask.md §3)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from ...engines.errors import RunError
from ..data.answers.coordinate_frames import Size
from ..data.answers.line_keys import VIEW_NOT_PROVED
from .chat_body import LIMITS, RequestRules
from .outcomes import ReplyOutcome
from .sent_images import as_sent

PROVED: Final = "view proved"
_SMALL: Final = {28: ((280, 280), (308, 308)), 32: ((256, 256), (288, 288)), 0: ((256, 256), (288, 288))}
"""Sizes to compare with; the second one where the first is as large as an image of the plan."""

_GREY: Final = 127
_WORDS: Final = "finding"


def sizes_to_prove(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """The size with most pixels, and the one with the longest side where it is another: servers limit either."""
    sizes = list(sizes)
    if not sizes:
        return ()
    largest = max(sizes, key=lambda size: (size[0] * size[1], max(size)))
    longest = max(sizes, key=lambda size: (max(size), size[0] * size[1]))
    return (largest,) if max(largest) == max(longest) else (largest, longest)


def prove_view(
    ask: Callable[[bytes], ReplyOutcome], rules: RequestRules, sizes: Sequence[Size], *, unproved: bool
) -> tuple[str, str]:
    """What the header says of the view, and why, from requests with grey images that show no patient.

    ask: sends a body. sizes: `sizes_to_prove` of the plan, at least one; each is compared with a small one. unproved: a
    server that resizes is accepted (--view-unproved). Raises RunError for a server that resizes.
    """
    factor = rules.asked.factor
    if factor is None:
        return VIEW_NOT_PROVED, "no rule of this dialect says how many tokens an image costs"
    areas = {width * height for width, height in sizes}
    small = next((each for each in _SMALL[factor] if each[0] * each[1] not in areas), _SMALL[factor][0])
    least, *counts = (_tokens(ask, rules, size) for size in (small, sizes[0]))
    for size in sizes:
        count = counts.pop() if counts else _tokens(ask, rules, size)
        if least is None or count is None:
            return VIEW_NOT_PROVED, "the server does not count the tokens of a prompt"
        if problem := _problem(count - least, factor, small, size):
            if unproved:
                return VIEW_NOT_PROVED, problem
            raise RunError(
                f"{problem[0].upper()}{problem[1:]}. Boxes would be in another frame than the file says; raise the "
                "server's limit of image tokens, choose a smaller --view, or accept it with --view-unproved."
            )
    return PROVED, ""


def _problem(difference: int, factor: int, small: Size, size: Size) -> str:
    """What a difference of tokens between a size and the small one means; empty if the server keeps the size."""
    if not factor:
        told = f"the server resizes: images of two sizes differ by {difference} tokens instead of 0"
        return told if difference else ""
    least, expected = (width * height // factor**2 for width, height in (small, size))
    counted = least + difference
    if counted == expected:
        return ""
    scale = math.sqrt(max(counted, 0) / expected)
    seen = [factor * round(side * scale / factor) for side in size]
    return f"the server resizes: {counted} image tokens instead of {expected}, as of {seen[0]} x {seen[1]}"


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
