"""Test inputs for an exported graph: probe pictures, their positions in batches, and texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources

import numpy as np
from numpy.typing import NDArray

BATCHES = (1, 2, 3, 8, 17)
"""Batch sizes tried: one, the example's, its neighbour, the paper's, and a large odd one."""

PICTURES = 10
"""Different probe pictures."""

PROBE_TEXTS: tuple[str, ...] = tuple(
    json.loads(resources.files(__package__).joinpath("probe_texts.json").read_text(encoding="utf-8"))
)
"""Twenty-two texts of different length, not taken from any model's prompts."""

LONG_TEXT = ", ".join(PROBE_TEXTS * 6)
"""More tokens than any model's context: the text is cut there, so every position is used once."""


def probe_images(size: int) -> NDArray[np.uint8]:
    """Ten different pictures uint8 [10, 1, size, size]; the first is the probe.

    Smooth pictures with the grey range of a radiograph alternate with noise of all grey values. Zeros are not used:
    they would not show a missing normalisation or a swapped axis.
    """
    rows, columns = np.mgrid[0:size, 0:size] / size
    pictures = []
    for number in range(PICTURES):
        random = np.random.Generator(np.random.PCG64(number))
        if number % 3 == 1:
            pictures.append(random.integers(0, 256, (1, size, size), dtype=np.uint8))
            continue
        field = np.zeros((size, size))
        for _ in range(12):
            y, x, height = random.random(), random.random(), random.normal()
            width_y, width_x = random.uniform(0.05, 0.35, 2)
            field += height * np.exp(-(((rows - y) / width_y) ** 2) - ((columns - x) / width_x) ** 2)
        field += random.normal(0, 0.02, field.shape)
        field = (field - field.min()) / (field.max() - field.min())
        pictures.append((30 + 215 * field).astype(np.uint8)[None])
    return np.stack(pictures)


def arrangements(batch: int, pictures: int) -> Iterator[list[int]]:
    """Orders of pictures, as lists of their numbers, that put picture 0 into every slot of a batch.

    Two orders are enough: the probe in all even slots, then in all odd ones; the pictures between them change from slot
    to slot and from order to order. A slot that repeats, mixes or shifts its neighbours then differs from the reference
    of its own picture.
    """
    for parity in range(min(batch, 2)):
        neighbours = 1 + (np.arange(batch) // 2 + 4 * parity) % (pictures - 1)
        yield [0 if slot % 2 == parity else int(neighbours[slot]) for slot in range(batch)]
