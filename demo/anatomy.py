"""Draws a normal frontal chest as fields on the pixel grid; `lesions.py` adds the findings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from .drawing import SIZE, Chance, Field, Mask, blur, distance, pixel_grid, segment_distance, soft

__all__ = ["SIDES", "Chest", "build_chest"]

SIDES = (-1, 1)


@dataclass
class Chest:
    """One chest. Lengths: u, v are body coordinates (about -1 .. 1, u to the right and v down in the picture).

    lungs        signed distance in pixels to the border of each lung, keyed -1 (left in the picture) and +1
    outlines     the same without the diaphragm
    heart        signed distance to the outline of the heart
    air          amount of air along a ray, 0 .. 1 (findings reduce it)
    dense        attenuation added by bones, vessels and findings
    taken        pixels already used by a focal finding
    domes        height v of the diaphragm as a field, per side
    """

    u: Field
    v: Field
    scale: float
    lungs: dict[int, Field]
    outlines: dict[int, Field]
    heart: Field
    domes: dict[int, Field]
    air: Field
    dense: Field
    vessels: Field
    taken: Mask = field(default_factory=lambda: np.zeros((SIZE, SIZE), dtype=np.bool_))

    def lung_pixels(self, inset: float = 0.0) -> Mask:
        """Pixels at least `inset` pixels inside a lung and outside the heart."""
        lungs = np.maximum(self.lungs[-1], self.lungs[1]) >= inset
        return lungs & (self.heart <= -inset)

    def to_pixels(self, u: float, v: float) -> tuple[float, float]:
        """(column, row) of the pixel nearest to the body coordinates."""
        gap = (self.u - u) * (self.u - u) + (self.v - v) * (self.v - v)
        row, column = divmod(int(gap.argmin()), SIZE)
        return column + 0.5, row + 0.5


def build_chest(draws: Chance, heart_ratio: float, lifted: dict[int, float]) -> Chest:
    """Draw the shapes of one chest.

    heart_ratio: width of the heart over the inner width of the chest. lifted: how much (in v) each half of the
    diaphragm stands higher than normal.
    """
    x, y = pixel_grid()
    t = draws.between(-0.035, 0.035)
    c, s = (1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t)
    wide, high = draws.between(0.86, 1.04), draws.between(0.88, 1.04)
    dx, dy = draws.between(-0.06, 0.06), draws.between(-0.05, 0.06)
    u = ((x - dx) * c + (y - dy) * s) / wide
    v = ((y - dy) * c - (x - dx) * s) / high
    u = u + draws.between(-0.03, 0.03) * v * v  # a slightly bent or turned patient
    outer = draws.between(0.80, 0.87)
    inner = draws.between(0.11, 0.15)
    apex = draws.between(-0.86, -0.76)
    taper = draws.between(0.25, 0.40)
    floor = {-1: draws.between(0.46, 0.56), 1: draws.between(0.51, 0.61)}
    lungs: dict[int, Field] = {}
    outlines: dict[int, Field] = {}
    domes: dict[int, Field] = {}
    for side in SIDES:
        across = side * u
        middle, half = 0.5 * (outer + inner), 0.5 * (outer - inner)
        top = np.minimum(np.maximum((0.15 - v) / (0.15 - apex), 0.0), 1.3)
        p = (across - middle + 0.16 * top * top) / (half * (1.0 - taper * top * top))
        outline = 1.0 - 0.45 * p * p - 0.55 * p * p * p * p - top * top * top * top * (1.0 - 0.3 * p * p)
        bend = (across - middle) / half
        steep = np.where(bend > 0, 0.20, 0.07)
        dome = floor[side] - lifted.get(side, 0.0) + steep * bend * bend
        domes[side] = dome
        outlines[side] = distance(outline)
        lungs[side] = np.minimum(outlines[side], distance(dome - v))
    heart = _heart(draws, u, v, outer, heart_ratio, 0.5 * (floor[-1] + floor[1]))
    air = np.maximum(soft(lungs[-1], 3.0), soft(lungs[1], 3.0)) * (1.0 - soft(heart, 5.0))
    chest = Chest(u, v, 0.5 * SIZE * wide, lungs, outlines, heart, domes, air, np.zeros_like(u), np.zeros_like(u))
    _soft_tissue(draws, chest, outer)
    _bones(draws, chest, outer)
    _vessels(draws, chest)
    return chest


def _heart(draws: Chance, u: Field, v: Field, outer: float, ratio: float, floor: float) -> Field:
    """A tilted egg that rests on the diaphragm, its apex to the right of the picture."""
    width = ratio * outer
    height = width * draws.between(0.72, 0.86) + 0.05
    cu, cv = 0.04 + 0.34 * width * draws.between(0.75, 1.0), floor - height * draws.between(0.58, 0.72)
    tilt = draws.between(0.28, 0.42)
    a, b = u - cu, v - cv
    along, up = a + tilt * b, b - tilt * a
    across = along * (1.0 - 0.18 * up / height)
    return distance(1.0 - across * across / (width * width) - up * up / (height * height))


def _soft_tissue(draws: Chance, chest: Chest, outer: float) -> None:
    """Chest wall, shoulders, neck, mediastinum and the tissue below the diaphragm."""
    u, v = chest.u, chest.v
    shoulder = np.minimum(np.maximum((-0.55 - v) * 2.2, 0.0), 1.0)
    wall = outer + draws.between(0.12, 0.20) + 0.5 * shoulder
    body = np.minimum(distance(wall - np.abs(u)), distance(v + 1.02 - 0.42 * np.maximum(np.abs(u) - 0.28, 0.0)))
    depth = np.sqrt(np.maximum(1.0 - 0.55 * u * u, 0.1))
    chest.dense += soft(body, 6.0) * (0.80 + 0.35 * depth)
    chest.dense += draws.between(0.06, 0.14) * soft(distance(0.16 - np.abs(u - 0.02)), 12.0) * soft(body, 6.0)
    trachea = np.minimum(distance(0.040 - np.abs(u)), distance(-0.18 - v))
    chest.dense -= 0.13 * soft(trachea, 5.0)
    knob_u, knob_v, knob = draws.between(0.10, 0.15), draws.between(-0.36, -0.28), draws.between(0.075, 0.11)
    tall = np.where(v > knob_v, 0.05, 0.7)
    arch = distance(knob * knob - (u - knob_u) * (u - knob_u) - tall * (v - knob_v) * (v - knob_v))
    chest.air *= 1.0 - 0.9 * soft(arch, 4.0)
    sag = draws.between(0.10, 0.15)
    great = distance(sag * sag - (u - 0.06) * (u - 0.06) - 0.10 * (v - 0.05) * (v - 0.05))
    chest.air *= 1.0 - 0.9 * soft(great, 5.0)
    for side in SIDES:
        hu, hv = side * draws.between(0.20, 0.24), draws.between(-0.08, 0.03)
        spread = draws.between(0.012, 0.020)
        gap = (u - hu) * (u - hu) + 0.5 * (v - hv) * (v - hv)
        chest.dense += draws.between(0.10, 0.18) * spread / (spread + gap) * soft(0.2 * spread * 100 - gap * 60, 2.0)
    if draws.chance(0.45):  # air in the stomach
        gu, gv, gr = draws.between(0.35, 0.5), draws.between(0.80, 0.9), draws.between(0.07, 0.12)
        bubble = distance(gr * gr - (u - gu) * (u - gu) * 0.6 - (v - gv) * (v - gv))
        chest.dense -= 0.25 * soft(bubble, 4.0)
    if draws.chance(0.4):  # breast shadows
        level, strength = draws.between(0.30, 0.45), draws.between(0.05, 0.10)
        for side in SIDES:
            bu, bv = side * u - 0.5, v - level
            chest.dense += strength * soft(distance(0.11 - bu * bu - bv * bv), 10.0)


def _bones(draws: Chance, chest: Chest, outer: float) -> None:
    """Spine, ribs behind (bright) and in front (faint), collar bones."""
    u, v = chest.u, chest.v
    px = chest.scale
    spine = soft((0.075 - np.abs(u)) * px, 4.0)
    pitch = draws.between(0.115, 0.135)
    start = draws.between(0.0, pitch)
    steps = (v + 2.0 + start) / pitch
    disc = np.abs(steps - np.floor(steps) - 0.5)
    chest.dense += spine * (0.15 - 0.10 * soft((0.12 - disc) * 20.0, 2.0))
    cage = soft(distance(outer + 0.045 - np.abs(u) - 0.30 * np.maximum(-0.35 - v, 0.0)), 3.0)
    w = np.abs(u) / outer
    bright, faint = draws.between(0.09, 0.15), draws.between(0.03, 0.07)
    gap, first = draws.between(0.165, 0.190), draws.between(-0.80, -0.74)
    drop, rise = draws.between(0.30, 0.42), draws.between(0.08, 0.16)
    behind = v - (drop * w * w * w - rise * w * (1.0 - w) * 2.0)
    front = v + 0.40 * w - 0.10 * w * w
    for number in range(9):
        thick = draws.between(0.024, 0.031)
        off = np.abs(behind - (first + gap * number))
        band = soft((thick - off) * px, 2.5)
        chest.dense += cage * band * bright * (0.65 + 0.35 * soft((off - 0.6 * thick) * px, 2.5))
        if 1 <= number <= 6:
            off = np.abs(front - (first + 0.55 + gap * (number - 1)))
            chest.dense += cage * soft((0.026 - off) * px, 3.0) * faint * soft((w - 0.35) * 20.0, 3.0)
    level = draws.between(-0.76, -0.68)
    slope, bow = draws.between(0.10, 0.28), draws.between(0.0, 0.10)
    reach = np.minimum(np.abs(u) - 0.07, 0.95 - np.abs(u)) * px
    centre = level - slope * np.abs(u) + bow * np.abs(u) * (1.0 - np.abs(u))
    off = np.abs(v - centre)
    chest.dense += 0.17 * soft(reach, 3.0) * soft((0.034 - off) * px, 2.5) * (0.7 + 0.3 * soft((off - 0.02) * px, 2.5))


def _vessels(draws: Chance, chest: Chest) -> None:
    """Branching lines that leave the hilum and grow thinner."""
    strength = draws.between(0.12, 0.24)
    for side in SIDES:
        for _ in range(9):
            column, row = chest.to_pixels(side * draws.between(0.16, 0.22), draws.between(-0.06, 0.06))
            out, down = side * draws.between(0.15, 1.0), draws.between(-1.0, 1.0)
            width = draws.between(1.4, 2.4)
            branches = [(column, row, out, down, width, 0)]
            while branches:
                column, row, out, down, width, level = branches.pop()
                long = draws.between(12.0, 22.0) * (1.0 - 0.15 * level)
                norm = math.sqrt(out * out + down * down) + 1e-9
                end = (column + long * out / norm, row + long * down / norm)
                near = segment_distance((column, row), end, width + 2.0)
                if near is not None:
                    window, gap = near
                    chest.vessels[window] = np.maximum(chest.vessels[window], soft(width - gap, 2.0) * width * 0.45)
                for chance, turn, thinner in ((1.0, 0.4, 0.72), (0.35, 1.0, 0.6)):
                    if level < 3 and draws.chance(chance):
                        out2, down2 = out + draws.between(-turn, turn), down + draws.between(-turn, turn)
                        branches.append((*end, out2, down2, width * thinner, level + 1))
    chest.vessels = blur(chest.vessels) * strength
