"""Training batches: phantoms drawn once and kept in memory, shifted and re-exposed at each use."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from ..phantoms import FINDINGS, SIZE, make, seed_of

__all__ = ["CELL", "GRID", "Batch", "Material", "draw_material"]

CELL = 16
GRID = SIZE // CELL
REACH = 12
"""Largest shift in pixels."""


@dataclass(frozen=True)
class Batch:
    """pixels uint8 [B, SIZE, SIZE]; labels float32 [B, F]; targets float32 [B, F, GRID * GRID], sums 1 or 0."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.float32]
    targets: NDArray[np.float32]


@dataclass(frozen=True)
class Material:
    """images uint8 [N, SIZE, SIZE]; masks[i]: number of the finding -> packed bits of its mask."""

    images: NDArray[np.uint8]
    masks: list[dict[int, NDArray[np.uint8]]]

    def batch(self, rows: NDArray[np.int64], chance: np.random.Generator | None) -> Batch:
        """The phantoms of these rows; with `chance` each is shifted by up to REACH pixels and re-exposed a little."""
        pixels = np.empty((len(rows), SIZE, SIZE), np.uint8)
        labels = np.zeros((len(rows), len(FINDINGS)), np.float32)
        targets = np.zeros((len(rows), len(FINDINGS), GRID * GRID), np.float32)
        for place, row in enumerate(rows):
            image = self.images[row]
            dy, dx = (0, 0) if chance is None else chance.integers(-REACH, REACH + 1, 2)
            if chance is not None:
                image = np.pad(image, REACH, mode="edge")[_window(dy), _window(dx)].astype(np.float32)
                image = (image - 128.0) * chance.uniform(0.85, 1.15) + 128.0 + chance.uniform(-16.0, 16.0)
                image = np.clip(image, 0.0, 255.0)
            pixels[place] = image
            for number, packed in self.masks[row].items():
                mask = np.unpackbits(packed).reshape(SIZE, SIZE)
                if chance is not None:
                    mask = np.pad(mask, REACH)[_window(dy), _window(dx)]
                labels[place, number] = 1.0
                targets[place, number] = _target(mask)
        return Batch(pixels, labels, targets)


def _window(shift: int) -> slice:
    return slice(REACH + int(shift), REACH + int(shift) + SIZE)


def _target(mask: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The target of the attention: cells weighted by covered area, three times as much if their centre is covered."""
    blocks = mask.reshape(GRID, CELL, GRID, CELL)
    area = blocks.mean(axis=(1, 3), dtype=np.float32)
    middle = blocks[:, 7:9, :, 7:9].mean(axis=(1, 3), dtype=np.float32)
    weight: NDArray[np.float32] = (area * (1.0 + 2.0 * middle)).ravel()
    total = float(weight.sum())
    return weight / total if total > 0 else weight


def _draw(seed: int) -> tuple[NDArray[np.uint8], dict[int, NDArray[np.uint8]]]:
    item = make(seed)
    return item.image, {FINDINGS.index(name): np.packbits(mask) for name, mask in item.masks.items()}


def draw_material(split: str, count: int, processes: int) -> Material:
    """The first `count` phantoms of a split; the result does not depend on the number of processes."""
    with get_context("spawn").Pool(processes) as pool:
        drawn = pool.map(_draw, [seed_of(split, index) for index in range(count)], chunksize=25)
    return Material(np.stack([image for image, _ in drawn]), [masks for _, masks in drawn])
