"""Draws the findings: each function draws one into a chest and returns its exact mask.

A mask holds the pixels whose centre lies inside the drawn border. A function returns None when the chest leaves no
room for a finding of sensible size; the phantom then goes without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from .anatomy import SIDES, Chest
from .drawing import SIZE, Chance, Field, Mask, distance, soft

__all__ = ["DRAW_ORDER", "FINDINGS"]

FINDINGS = (
    "Atelectasis",
    "Calcification",
    "Cardiomegaly",
    "Consolidation",
    "Effusion",
    "Mass",
    "Nodule",
    "Pneumothorax",
)


def _centre(draws: Chance, chest: Chest, allowed: Mask) -> tuple[float, float] | None:
    """(column, row) of a random allowed pixel that no other focal finding uses, at a random place inside the pixel."""
    free = np.flatnonzero(allowed & ~chest.taken)
    if free.size == 0:
        return None
    row, column = divmod(int(free[draws.below(int(free.size))]), SIZE)
    return column + draws.unit(), row + draws.unit()


def _radius(centre: tuple[float, float], squeeze: float = 1.0, axis: tuple[float, float] = (1.0, 0.0)) -> Field:
    """Distance in pixels to `centre`, lengths along `axis` divided by `squeeze`."""
    dx = ((np.arange(SIZE) + 0.5) - centre[0])[None, :]
    dy = ((np.arange(SIZE) + 0.5) - centre[1])[:, None]
    along, across = (dx * axis[0] + dy * axis[1]) / squeeze, dy * axis[0] - dx * axis[1]
    distances: Field = np.sqrt(along * along + across * across)
    return distances


def _claim(chest: Chest, mask: Mask, margin: int = 6) -> None:
    """Mark the mask and a margin around it as used."""
    grown = mask.copy()
    for _ in range(margin):
        grown[1:] |= grown[:-1].copy()
        grown[:-1] |= grown[1:].copy()
        grown[:, 1:] |= grown[:, :-1].copy()
        grown[:, :-1] |= grown[:, 1:].copy()
    chest.taken |= grown


def _cardiomegaly(draws: Chance, chest: Chest) -> Mask | None:
    """The heart itself: it was built wide. Its outline is the region."""
    return chest.heart >= 0


def _effusion(draws: Chance, chest: Chest) -> Mask | None:
    """Fluid at the base of one lung (sometimes of both), its surface rising towards the chest wall."""
    total = np.zeros((SIZE, SIZE), dtype=np.bool_)
    sides = list(SIDES) if draws.chance(0.25) else [draws.side()]
    for side in sides:
        outward = np.maximum((side * chest.u - 0.35) / 0.5, 0.0)
        foot = float(np.where(chest.lungs[side] >= 0, chest.v, -2.0).max())
        level = foot - draws.between(0.10, 0.55)
        surface = level - draws.between(0.10, 0.22) * outward * outward + draws.between(0.03, 0.08)
        depth = (chest.v - surface) * chest.scale
        fluid = np.minimum(depth, chest.lungs[side])
        chest.air *= 1.0 - soft(depth, draws.between(4.0, 9.0)) * soft(chest.outlines[side], 3.0)
        chest.dense += draws.between(0.0, 0.12) * soft(fluid, 6.0)
        total |= (fluid >= 0) & (chest.heart < 0)
    _claim(chest, total)
    return total if int(total.sum()) >= 150 else None


def _pneumothorax(draws: Chance, chest: Chest) -> Mask | None:
    """Air between chest wall and lung, from the apex along the side: no vessels, and a thin line at the lung's edge."""
    side = draws.side()
    high = np.minimum(np.maximum((draws.between(0.0, 0.5) - chest.v) / 0.9, 0.0), 1.0)
    lateral = np.minimum(np.maximum((side * chest.u - 0.22) / 0.25, 0.0), 1.0)
    width = draws.between(18.0, 38.0) * (draws.between(0.0, 0.35) + high) * lateral
    inside = chest.outlines[side]
    gap = np.minimum(np.minimum(width - inside, inside), chest.lungs[side])
    mask = (gap >= 0) & (width >= 5.0) & (chest.heart < 0) & ~chest.taken
    if int(mask.sum()) < 220:
        return None
    clear = soft(width - inside, 2.0) * soft(inside, 2.0) * (width >= 5.0)
    chest.vessels *= 1.0 - clear
    chest.dense -= draws.between(0.06, 0.13) * clear
    edge = np.maximum(1.2 - np.abs(width - inside), 0.0) * (chest.lungs[side] > 1.0) * (width >= 5.0)
    chest.dense += draws.between(0.14, 0.26) * np.minimum(edge, 1.0)
    collapse = soft(inside - width, 6.0) * soft(chest.lungs[side], 3.0)
    chest.air *= 1.0 - draws.between(0.03, 0.14) * collapse
    _claim(chest, mask, 2)
    return mask


def _consolidation(draws: Chance, chest: Chest) -> Mask | None:
    """A cloudy patch with an irregular, unsharp border; the larger airways in it may stay dark."""
    centre = _centre(draws, chest, chest.lung_pixels(8.0))
    if centre is None:
        return None
    reach = _radius(centre, draws.between(1.0, 1.8), draws.direction()) / draws.between(15.0, 30.0)
    shape = 1.0 - reach * reach + draws.between(0.2, 0.45) * draws.clouds(9)
    border = distance(shape)
    mask = (shape >= 0) & (reach < 1.5) & chest.lung_pixels() & ~chest.taken
    if int(mask.sum()) < 300:
        return None
    weight = soft(border, draws.between(6.0, 12.0)) * (reach < 1.8)
    patchy = np.minimum(np.maximum(0.85 + 0.22 * draws.clouds(40), 0.3), 1.0)
    chest.air *= 1.0 - draws.between(0.45, 0.85) * weight * patchy
    _claim(chest, mask)
    return mask


def _atelectasis(draws: Chance, chest: Chest) -> Mask | None:
    """A band of collapsed lung in the lower half, lying flat or a little oblique."""
    low = chest.lung_pixels(7.0) & (chest.v > -0.15)
    centre = _centre(draws, chest, low)
    if centre is None:
        return None
    tilt = draws.between(-0.25, 0.25)
    axis = ((1.0 - tilt * tilt) / (1.0 + tilt * tilt), 2.0 * tilt / (1.0 + tilt * tilt))
    half, thick = draws.between(18.0, 32.0), draws.between(4.2, 7.0)
    dx = ((np.arange(SIZE) + 0.5) - centre[0])[None, :]
    dy = ((np.arange(SIZE) + 0.5) - centre[1])[:, None]
    along, across = dx * axis[0] + dy * axis[1], dy * axis[0] - dx * axis[1]
    across = across + draws.between(-0.006, 0.006) * along * along
    reach = along * along / (half * half)
    border = thick * (1.0 - reach * reach) - np.abs(across)
    mask: Mask = (border >= 0) & (reach < 1.0) & chest.lung_pixels() & ~chest.taken
    if int(mask.sum()) < 150:
        return None
    chest.air *= 1.0 - draws.between(0.45, 0.8) * soft(border, 2.5) * (reach < 1.2)
    _claim(chest, mask)
    return mask


def _solid(draws: Chance, chest: Chest, radius: float, lumps: float, dense: float) -> Mask | None:
    """A round or lobed solid lesion inside a lung."""
    centre = _centre(draws, chest, chest.lung_pixels(min(radius * 0.7, 12.0)))
    if centre is None:
        return None
    border = radius + lumps * radius * draws.clouds(14) - _radius(centre, draws.between(1.0, 1.25), draws.direction())
    near = _radius(centre) < 2.0 * radius
    mask = (border >= 0) & near & chest.lung_pixels()
    if int(mask.sum()) < 40:
        return None
    weight = soft(border, draws.between(2.0, 3.5)) * near
    chest.air *= 1.0 - dense * weight
    _claim(chest, mask)
    return mask


def _mass(draws: Chance, chest: Chest) -> Mask | None:
    """One solid lesion of more than 3 cm (radius 12 to 20 pixels)."""
    return _solid(draws, chest, draws.between(12.0, 20.0), draws.between(0.03, 0.09), draws.between(0.45, 0.95))


def _nodule(draws: Chance, chest: Chest) -> Mask | None:
    """One to three small round lesions (radius 5 to 9 pixels)."""
    total = np.zeros((SIZE, SIZE), dtype=np.bool_)
    for _ in range(draws.pick((1, 1, 2, 2, 3))):
        mask = _solid(draws, chest, draws.between(5.0, 9.0), 0.04, draws.between(0.55, 1.0))
        if mask is not None:
            total |= mask
    return total if total.any() else None


def _calcification(draws: Chance, chest: Chest) -> Mask | None:
    """One to three dense, sharp deposits: granulomas or plaques, brighter than rib."""
    total = np.zeros((SIZE, SIZE), dtype=np.bool_)
    for _ in range(draws.pick((1, 2, 2, 3))):
        centre = _centre(draws, chest, chest.lung_pixels(4.0))
        if centre is None:
            continue
        size = draws.between(4.0, 7.5)
        away = _radius(centre, draws.between(1.0, 2.2), draws.direction())
        border = size * (1.0 + 0.22 * draws.clouds(44)) - away
        mask = (border >= 0) & (away < 2.0 * size) & chest.lung_pixels()
        if int(mask.sum()) < 20:
            continue
        grain = np.maximum(1.0 + 0.25 * draws.clouds(70), 0.3)
        chest.dense += draws.between(0.7, 1.2) * soft(border, 1.6) * (away < 2.2 * size) * grain
        _claim(chest, mask)
        total |= mask
    return total if total.any() else None


DRAW_ORDER: Mapping[str, Callable[[Chance, Chest], Mask | None]] = {
    "Cardiomegaly": _cardiomegaly,
    "Effusion": _effusion,
    "Pneumothorax": _pneumothorax,
    "Consolidation": _consolidation,
    "Mass": _mass,
    "Atelectasis": _atelectasis,
    "Nodule": _nodule,
    "Calcification": _calcification,
}
