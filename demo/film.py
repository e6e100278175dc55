"""Renders a chest as a grey picture: attenuation, markers and devices, exposure and noise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .anatomy import Chest
from .drawing import SIZE, Chance, Field, blur, segment_distance, soft

__all__ = ["develop"]

GLYPHS = {
    "L": ("10000", "10000", "10000", "10000", "10000", "10000", "11111"),
    "R": ("11110", "10001", "10001", "11110", "10100", "10010", "10001"),
    "P": ("11110", "10001", "10001", "11110", "10000", "10000", "10000"),
    "A": ("01110", "10001", "10001", "11111", "10001", "10001", "10001"),
}


def develop(draws: Chance, chest: Chest) -> NDArray[np.uint8]:
    """uint8 [SIZE, SIZE], bright = dense."""
    attenuation = chest.dense + draws.between(0.62, 0.78) * (1.0 - chest.air) + chest.vessels * chest.air
    attenuation = attenuation + draws.between(0.02, 0.06) * draws.clouds(5)
    attenuation = attenuation + draws.between(0.01, 0.04) * draws.clouds(18)
    attenuation = np.maximum(attenuation, 0.0)
    if draws.chance(0.5):
        attenuation = attenuation + _devices(draws, chest)
    low, high, knee = draws.between(0.55, 0.92), draws.between(2.15, 2.6), draws.between(1.0, 3.0)
    image = (attenuation - low) / (high - low)
    image = image * (1.0 + knee) / (np.maximum(image, 0.0) + knee)
    image = blur(image, draws.pick((0, 1, 1, 2)))
    image = image + draws.between(0.008, 0.03) * draws.noise(SIZE, SIZE)
    image = image + draws.between(0.0, 0.025) * blur(draws.noise(SIZE, SIZE), 2)
    bend = draws.between(-0.35, 0.35)
    image = np.minimum(np.maximum(image, 0.0), 1.0)
    image = image + bend * image * (1.0 - image)
    image = draws.between(0.0, 0.08) + image * draws.between(0.86, 0.97)
    if draws.chance(0.7):
        _marker(draws, image)
    return np.floor(np.minimum(np.maximum(image, 0.0), 1.0) * 255.0 + 0.5).astype(np.uint8)


def _marker(draws: Chance, image: Field) -> None:
    """A side marker or other letters in an upper corner, sometimes lower."""
    text = draws.pick(("R", "L", "R", "AP", "PA"))
    zoom, level = draws.pick((1, 2, 2)), draws.between(0.8, 1.0)
    row = draws.pick((6, 8, 12, 196))
    left = draws.pick((6, 10, 14)) if text == "R" else SIZE - zoom * 6 * len(text) - draws.pick((4, 8, 12))
    for place, letter in enumerate(text):
        bits = np.array([[int(bit) for bit in line] for line in GLYPHS[letter]], dtype=np.bool_)
        bits = bits.repeat(zoom, axis=0).repeat(zoom, axis=1)
        column = left + place * 6 * zoom
        image[row : row + bits.shape[0], column : column + bits.shape[1]][bits] = level


def _line(canvas: Field, points: list[tuple[float, float]], width: float, strength: float) -> None:
    for start, end in pairwise(points):
        near = segment_distance(start, end, width + 2.0)
        if near is not None:
            window, gap = near
            canvas[window] = np.maximum(canvas[window], strength * soft(width - gap, 1.6))


def _devices(draws: Chance, chest: Chest) -> Field:
    """Electrodes with wires, a tube in the windpipe, or a central line: bright objects that are not findings."""
    canvas = np.zeros((SIZE, SIZE))
    kind = draws.pick(("electrodes", "tube", "line", "electrodes"))
    if kind == "electrodes":
        for _ in range(draws.pick((1, 2, 3))):
            column, row = draws.between(30.0, 194.0), draws.between(40.0, 190.0)
            near = segment_distance((column, row), (column, row), 9.0)
            if near is not None:
                window, gap = near
                ring = soft(1.3 - np.abs(gap - 5.0), 1.4) + soft(1.6 - gap, 1.4)
                canvas[window] = np.maximum(canvas[window], 0.9 * ring)
            bend = (column + draws.between(-30.0, 30.0), row + draws.between(15.0, 40.0))
            end = (bend[0] + draws.between(-40.0, 40.0), 224.0)
            _line(canvas, [(column, row + 5.0), bend, end], 0.7, 0.55)
    elif kind == "tube":
        top, tip = chest.to_pixels(0.0, -0.98), chest.to_pixels(draws.between(-0.01, 0.02), draws.between(-0.4, -0.2))
        _line(canvas, [(top[0], 0.0), tip], 1.3, 0.5)
    else:
        side = draws.side()
        points = [chest.to_pixels(side * at, height) for at, height in ((0.75, -0.7), (0.3, -0.66), (0.14, -0.5))]
        points.append(chest.to_pixels(-0.10, draws.between(-0.15, 0.1)))
        _line(canvas, points, 0.9, 0.55)
    return canvas
