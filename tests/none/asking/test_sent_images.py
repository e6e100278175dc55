"""The image that `ask` sends (docs/ask.md §3)."""

from __future__ import annotations

import hashlib
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.asking.dialect_prompts import ASKED_DIALECTS
from xbench_fast.runtime.asking.sent_images import as_sent, encoded, pixels_hash, prepared, sent_size
from xbench_fast.runtime.data.answers.coordinate_frames import Budget, smart_resize

PREPARE = json.loads((Path(__file__).parents[2] / "ask" / "prepare.json").read_text())["cases"]
GREY = np.random.default_rng(1).integers(0, 256, (60, 90), np.uint8)


@pytest.mark.parametrize("case", PREPARE, ids=lambda case: "x".join(map(str, case["size"])))
def test_sizes_by_dialect(case: dict[str, dict[str, list[int]]]) -> None:
    found = {name: list(sent_size(ASKED_DIALECTS[name].preparation, tuple(case["size"]))) for name in case["sent"]}
    assert found == case["sent"]


@pytest.mark.parametrize(
    ("rule", "factor", "budgets"),
    [
        ("smart28", 28, [(3136, 1_003_520), (3136, 12_845_056), (4 * 784, 16_384 * 784), (3136, 2_097_152)]),
        ("smart32", 32, [(65_536, 16_777_216), (65_536, 1_048_576)]),
    ],
)
def test_servers_do_not_resize_what_is_sent(rule: str, factor: int, budgets: list[tuple[int, int]]) -> None:
    draw = random.Random(3)
    for _ in range(500):
        width, height = sent_size(rule, (draw.randint(20, 4000), draw.randint(20, 4000)))
        for least, most in budgets:
            assert smart_resize(height, width, Budget(least, most, factor)) == (height, width)


def test_an_image_that_the_models_code_refuses() -> None:
    with pytest.raises(ImageError, match="ratio of sides above 200"):
        sent_size("smart28", (20_000, 20))


def test_a_png_has_three_kinds_of_chunks_and_the_pixels() -> None:
    sent = as_sent(GREY, "png", (90, 60))
    data = encoded(GREY, "png")
    kinds, at = [], 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kinds.append(data[at + 4 : at + 8])
        at += 12 + length
    assert set(kinds) == {b"IHDR", b"IDAT", b"IEND"} and sent.bytes == len(data)
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == "L" and np.array_equal(np.asarray(image), GREY)
    assert sent.sha256 == hashlib.sha256(data).hexdigest() and sent.size == (90, 60)
    assert encoded(GREY, "jpeg:95")[:2] == b"\xff\xd8"


def test_the_hash_is_of_pixels_and_shape() -> None:
    head = b"xbench-pixels-1\n" + b"".join(n.to_bytes(4, "big") for n in (90, 60, 1))
    assert pixels_hash(GREY) == hashlib.sha256(head + GREY.tobytes()).hexdigest()
    assert pixels_hash(GREY) != pixels_hash(GREY.reshape(90, 60))


def test_padding_and_squashing() -> None:
    square = np.zeros((90, 90), np.uint8)
    square[15:75] = GREY
    resized = np.asarray(Image.fromarray(square).resize((896, 896), Image.Resampling.BICUBIC))
    assert np.array_equal(prepared(GREY, "pad896"), resized)
    assert prepared(GREY, "squash448").shape == (448, 448)
    assert prepared(GREY, "120x50").shape == (50, 120)
    assert prepared(GREY, "as it is") is GREY and prepared(GREY, "long1024") is GREY


def test_the_grid_is_drawn_at_eighths_and_the_rest_is_kept() -> None:
    grey = np.full((512, 1024), 100, np.uint8)
    drawn = prepared(grey, "long1024+grid")
    assert np.array_equal(grey, np.full((512, 1024), 100)), "the image itself is not changed"
    for part in range(1, 8):
        assert (drawn[40:60, part * 128 - 1 : part * 128 + 1] == 255).all(), "columns"
        assert drawn[50, part * 128 - 3] == 0 and drawn[50, part * 128 + 2] == 0, "edges"
        assert (drawn[part * 64 - 1 : part * 64 + 1, 150:240] == 255).all(), "rows"
    cell = drawn[70:120, 140:250]
    assert (cell == 100).all(), "cells keep their pixels"
    labels = [drawn[6:40, column * 128 + 64 : column * 128 + 90] for column in range(8)]
    assert all((label == 255).any() for label in labels)
    assert len({label.tobytes() for label in labels}) == 8, "each column has another letter"
