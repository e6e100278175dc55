"""The proof by token counts that a server keeps the size of the sent images (docs/ask.md §3)."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable

import pytest
from PIL import Image
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.asking.chat_body import RequestRules
from xbench_fast.runtime.asking.outcomes import ReplyOutcome
from xbench_fast.runtime.asking.view_proof import prove_view, sizes_to_prove

Size = tuple[int, int]
Resize = Callable[[Size], Size]


class Counting:
    """A server that resizes by a rule and counts tokens of 28 x 28 pixels; keeps the sizes that it got."""

    def __init__(self, resize: Resize) -> None:
        self.resize, self.got = resize, list[Size]()

    def __call__(self, body: bytes) -> ReplyOutcome:
        request = json.loads(body)
        assert request["max_tokens"] == 1
        (part,) = [part for part in request["messages"][0]["content"] if part["type"] == "image_url"]
        data = base64.b64decode(part["image_url"]["url"].partition("base64,")[2])
        with Image.open(io.BytesIO(data)) as image:
            assert image.getextrema() == (127, 127), "one grey without a patient"
            self.got.append(image.size)
        width, height = self.resize(self.got[-1])
        return ReplyOutcome("truncated", {"text": "", "usage": {"prompt_tokens": 30 + width * height // 784}})


def longer_side(most: int) -> Resize:
    def resize(size: Size) -> Size:
        scale = min(1.0, most / max(size))
        return round(size[0] * scale / 28) * 28, round(size[1] * scale / 28) * 28

    return resize


def prove(server: Counting, sizes: list[Size]) -> str:
    return prove_view(server, RequestRules("qwen25vl", "m"), sizes_to_prove(sizes), unproved=False)[0]


@pytest.mark.parametrize(
    ("sizes", "proved"),
    [
        ([(560, 560), (980, 980), (980, 560)], ((980, 980),)),
        ([(980, 980), (560, 1400), (1400, 504)], ((980, 980), (560, 1400))),
        ([(1400, 504), (504, 1400), (700, 700)], ((1400, 504),)),
        ([(980, 980), (1008, 952), (952, 1008)], ((980, 980), (1008, 952))),
        ([(1200, 600), (900, 800)], ((1200, 600),)),
        ([], ()),
    ],
)
def test_the_largest_and_the_longest_size_are_proved(sizes: list[Size], proved: tuple[Size, ...]) -> None:
    assert sizes_to_prove(sizes) == proved


def test_a_limit_of_the_longer_side_is_found_in_a_long_image() -> None:
    server = Counting(longer_side(1008))
    with pytest.raises(RunError, match="resizes: 504 image tokens instead of 1000, as of"):
        prove(server, [(980, 980), (1400, 560), (700, 700)])
    assert server.got == [(280, 280), (980, 980), (1400, 560)]
    server = Counting(longer_side(1400))
    assert prove(server, [(980, 980), (1400, 560)]) == "view proved"
    server = Counting(longer_side(1008))
    assert prove(server, [(980, 980), (700, 700)]) == "view proved" and len(server.got) == 2


@pytest.mark.parametrize("size", [(280, 280), (560, 140)])
def test_a_view_as_large_as_the_small_image_is_compared_with_another(size: Size) -> None:
    """Two images of one area cost the same tokens, whatever the server makes of them."""
    with pytest.raises(RunError, match="The server resizes"):
        prove(Counting(lambda _: (224, 224)), [size])
    assert prove(Counting(lambda size: size), [size]) == "view proved"


def test_a_server_that_does_not_count_is_asked_twice() -> None:
    asked = list[bytes]()

    def reply(body: bytes) -> ReplyOutcome:
        asked.append(body)
        return ReplyOutcome("empty", {"text": "", "usage": {}})

    result, why = prove_view(reply, RequestRules("qwen25vl", "m"), ((980, 980), (1400, 560)), unproved=False)
    assert (result, len(asked)) == ("view not proved", 2) and "does not count the tokens" in why
