"""Random inputs from a seed: pixels, text features, maps with regions, and image files similar to radiographs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ConfigError
from ...engines.user_files import tree
from ..data.datasets.dataset import Case
from ..data.datasets.region_boxes import Boxes
from ..host.machine_record import usable_cores

if TYPE_CHECKING:
    from ...engines.bundle import Bundle
    from ...engines.prompts.prompt_set import PromptSet

_QUERIES = 10
_SUFFIXES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom")


def random_pixels(bundle: Bundle, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Model inputs uint8 [count, 1, S, S]: random numbers on a random gradient, never constant."""
    side = bundle.manifest.geometry.size
    ramp = np.linspace(0, 1, side, dtype=np.float32)
    tilt = rng.uniform(-60, 60, (count, 2, 1, 1)).astype(np.float32)
    noise = rng.integers(60, 196, (count, side, side)).astype(np.float32)
    grey = np.clip(noise + tilt[:, 0] * ramp[:, None] + tilt[:, 1] * ramp[None], 0, 255)
    pixels: NDArray[np.uint8] = grey.astype(np.uint8)[:, None]
    return pixels


def prompts_of(bundle: Bundle) -> PromptSet | None:
    """The first prompt set of the bundle, by name; None if it has none."""
    names = sorted(bundle.manifest.prompt_sets)
    return bundle.prompt_set(names[0]) if names else None


def random_text(bundle: Bundle, rng: np.random.Generator) -> NDArray[np.float32]:
    """Text features of the bundle's first prompt set, or ten random unit vectors if it has none."""
    prompts = prompts_of(bundle)
    if prompts is not None:
        return prompts.features
    shape = tuple(int(n) for n in bundle.graph("image").inputs[1].shape[1:])
    drawn = rng.standard_normal((_QUERIES, *shape))
    text: NDArray[np.float32] = (drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)).astype(np.float32)
    return text


def make_pairs(count: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Maps float32 [count, 14, 14], peaks on noise, and box regions bool [count, 224, 224] of 1 to 15 %."""
    y, x = np.mgrid[:14, :14].astype(np.float32)
    centres = rng.uniform(0, 14, (count, 2, 1, 1)).astype(np.float32)
    width = rng.uniform(3, 20, (count, 1, 1)).astype(np.float32)
    peaks = np.exp(-((y - centres[:, 0]) ** 2 + (x - centres[:, 1]) ** 2) / width)
    grids = peaks + np.float32(0.1) * rng.random((count, 14, 14), dtype=np.float32)
    sides = (224 * rng.uniform(0.1, 0.39, (count, 2))).astype(int)
    corners = (rng.random((count, 2)) * (224 - sides)).astype(int)
    masks = np.zeros((count, 224, 224), np.bool_)
    for mask, (top, left), (height, across) in zip(masks, corners, sides, strict=True):
        mask[top : top + height, left : left + across] = True
    return grids.astype(np.float32), masks


def film_files(folder: Path, count: int, side: int, seed: int) -> list[Path]:
    """`count` grey PNG files of side x side pixels in `folder`: smooth shapes with grain. Drawn on all cores."""
    from PIL import Image

    y, x = np.mgrid[:side, :side].astype(np.float32) / side

    def draw(number: int) -> Path:
        rng = np.random.default_rng([seed, 1, number])
        centre, spread = rng.random(2), rng.uniform(0.05, 0.3)
        shape = 150 * np.exp(-((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / spread) + 40 * y
        grain = rng.normal(0, 4, (side, side))
        path = folder / f"image{number:06d}.png"
        Image.fromarray(np.clip(shape + grain + 20, 0, 255).astype(np.uint8)).save(path)
        return path

    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(draw, range(count)))


def found_files(folder: Path, count: int) -> list[Path]:
    """The first `count` images of `folder` and below. Raises ConfigError when there are none."""
    paths = sorted(path for path in tree(folder) if path.suffix.lower() in _SUFFIXES)[:count]
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}; correct --folder.")
    if not paths:
        raise ConfigError(f"The folder {folder} holds no .png, .jpg or .dcm file; correct --folder.")
    return paths


def films_as_cases(paths: Sequence[Path], findings: Sequence[str], seed: int) -> list[Case]:
    """Every file as a case with a box for one finding, so that each image brings one pair."""
    rng = np.random.default_rng([seed, 2])
    cases = []
    for number, path in enumerate(paths):
        finding = findings[number % len(findings)]
        labels: dict[str, int | None] = {name: int(name == finding) for name in findings}
        x, y = rng.uniform(0, 0.6, 2)
        w, h = rng.uniform(0.1, 0.39, 2)
        cases.append(_case(number, path, labels, finding, (x, y, x + w, y + h)))
    return cases


def _case(
    number: int, path: Path, labels: dict[str, int | None], finding: str, box: tuple[float, float, float, float]
) -> Case:
    # The box has its own grid, so that the file need not be opened to know its size.
    x0, y0, x1, y1 = (round(1024 * value) for value in box)
    regions = {finding: Boxes(((x0, y0, x1, y1),))}
    return Case(f"case{number:06d}", path, labels, regions, "all", size=(1024, 1024))
