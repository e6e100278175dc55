"""Generated chest phantoms with exact finding masks.

A phantom is a 224 x 224 grey picture of a frontal chest with none to four of eight findings, every one drawn with its
binary mask. It depends only on its seed; the pixels are the same on every machine. Splits have no common seeds.
The folder written holds `images/*.png` and `annotations.json` in COCO's instance layout with uncompressed run lengths
(column-major, first run counts zeros).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .anatomy import build_chest
from .drawing import SIZE, Chance, Mask
from .film import develop
from .lesions import DRAW_ORDER, FINDINGS

__all__ = ["FINDINGS", "SIZE", "SPAN", "SPLITS", "Phantom", "is_drawn", "make", "phantoms", "seed_of", "write"]

SPLITS = {"test": 1_000_000, "train": 2_000_000}
SPAN = 1_000_000
"""Seeds of a split: SPLITS[split] .. SPLITS[split] + SPAN - 1."""
_ANNOTATIONS = "annotations.json"


@dataclass(frozen=True)
class Phantom:
    """image uint8 [SIZE, SIZE] (bright = dense); masks: finding -> bool [SIZE, SIZE], only of present findings."""

    seed: int
    image: NDArray[np.uint8]
    masks: dict[str, Mask]


def seed_of(split: str, index: int) -> int:
    """The seed of one phantom. Raises ValueError for an unknown split or an index outside 0 .. SPAN - 1."""
    if split not in SPLITS or not 0 <= index < SPAN:
        known = f"splits are {', '.join(SPLITS)}, indices 0..{SPAN - 1}"
        raise ValueError(f"no phantom {index} in split {split!r}; {known}")
    return SPLITS[split] + index


def make(seed: int) -> Phantom:
    """Draw the phantom of one seed."""
    draws = Chance(seed)
    at = draws.unit()
    count = 0 if at < 0.17 else 1 if at < 0.45 else 2 if at < 0.75 else 3 if at < 0.92 else 4
    chosen = draws.sample(FINDINGS, count)
    ratio = draws.between(0.58, 0.72) if "Cardiomegaly" in chosen else draws.between(0.40, 0.50)
    lifted = {draws.side(): draws.between(0.0, 0.16)} if draws.chance(0.35) else {}
    chest = build_chest(draws, ratio, lifted)
    masks: dict[str, Mask] = {}
    for name, draw in DRAW_ORDER.items():
        mask = draw(draws, chest) if name in chosen else None
        if mask is not None:
            masks[name] = mask
    return Phantom(seed, develop(draws, chest), masks)


def phantoms(split: str, count: int) -> Iterator[Phantom]:
    """The first `count` phantoms of a split, one after the other."""
    for index in range(count):
        yield make(seed_of(split, index))


def run_lengths(mask: Mask) -> list[int]:
    """COCO's uncompressed run lengths: column-major, runs of 0 and 1 in turn, starting with 0."""
    flat = np.concatenate([[False], mask.ravel(order="F"), [not mask[-1, -1]]])
    ends = np.flatnonzero(flat[1:] != flat[:-1])
    lengths: list[int] = np.diff(np.concatenate([[0], ends])).tolist()
    return lengths


def write(out: Path, items: Iterable[Phantom]) -> dict[str, int]:
    """Write pictures and annotations.json below `out`; returns how many regions of each finding were written."""
    from PIL import Image

    (out / "images").mkdir(parents=True, exist_ok=True)
    number = {name: place for place, name in enumerate(FINDINGS, start=1)}
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    seen = dict.fromkeys(FINDINGS, 0)
    for place, item in enumerate(items, start=1):
        name = _file_name(item.seed)
        Image.fromarray(item.image).save(out / "images" / name)
        patient = f"seed-{item.seed}"
        images.append({"id": place, "file_name": name, "width": SIZE, "height": SIZE, "patient_id": patient})
        for finding, mask in item.masks.items():
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            x, y = int(columns[0]), int(rows[0])
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": place,
                    "category_id": number[finding],
                    "segmentation": {"size": [SIZE, SIZE], "counts": run_lengths(mask)},
                    "area": int(mask.sum()),
                    "bbox": [x, y, int(columns[-1]) + 1 - x, int(rows[-1]) + 1 - y],
                    "iscrowd": 0,
                }
            )
            seen[finding] += 1
    categories = [{"id": number[name], "name": name} for name in FINDINGS]
    content = {"images": images, "categories": categories, "annotations": annotations}
    partial = out / f"{_ANNOTATIONS}.part"
    partial.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    partial.replace(out / _ANNOTATIONS)
    return seen


def is_drawn(out: Path, split: str, count: int) -> bool:
    """Whether `write` has written the first `count` phantoms of a split, and no others, below `out`."""
    try:
        images = json.loads((out / _ANNOTATIONS).read_text(encoding="utf-8"))["images"]
        names = [image["file_name"] for image in images]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    expected = [_file_name(seed_of(split, index)) for index in range(count)]
    return names == expected and all((out / "images" / name).is_file() for name in names)


def _file_name(seed: int) -> str:
    return f"phantom-{seed}.png"
