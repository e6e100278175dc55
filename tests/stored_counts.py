"""Finished cells with random counts, written without any model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from result_rows import ResultRow, table_of
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.schema import result_schema
from xbench_fast.runtime.results.storage import KEY_FIELD

PIXELS = 224 * 224
CLASSES = ("Mass", "Effusion", "Edema")


def random_rows(seed: int, *, negative: bool = False) -> list[ResultRow]:
    """30 cases x 3 classes; Edema has neither a region nor a positive label; cases 4 and 5 have no image."""
    rng, prompts, maps = (np.random.default_rng(seed + more) for more in (0, 1000, 2000))
    rows = []
    for index in range(30):
        for finding in CLASSES:
            label = None if finding == "Effusion" and index % 7 == 0 else int(finding != "Edema" and rng.random() < 0.6)
            row = ResultRow(f"c{index}", f"p{index // 2}", finding, "ok", None, label)
            rows.append(row)
            if index in (4, 5):
                row.status, row.reason = ("missing", "unreadable")[index - 4], "no image"
                continue
            row.logit = np.float32(rng.integers(-8, 8) / 4)
            row.logit_negative = np.float32(prompts.normal()) if negative else None
            row.region_area, row.sub_pixel = 0, False
            if label == 1:
                row.region_area = int(rng.integers(50, 9000))
                area = np.sort(rng.integers(1, PIXELS, 101))[::-1].astype(np.int32)
                area[0] = PIXELS
                row.overlap = random_overlap(rng, area, row.region_area)
                row.area, row.argmax = area, int(rng.integers(PIXELS))
                row.hit, row.degenerate = bool(rng.random() < 0.4), index == 9
                row.sub_pixel = index == 11
                row.keep(square(row.region_area), (0.0, 0.0, 1.0, 1.0), maps.random((4, 4), np.float32))
    return rows


def other_answers(rows: list[ResultRow], seed: int, *, negative: bool = False) -> list[ResultRow]:
    """What another model says to the same images, labels and regions."""
    rng = np.random.default_rng(seed)
    answers = []
    for row in rows:
        other = replace(row)
        if row.logit is not None:
            other.logit = np.float32(rng.integers(-8, 8) / 4)
            other.logit_negative = np.float32(rng.normal()) if negative else None
        if row.area is not None and row.region_area is not None:
            area = np.sort(rng.integers(1, PIXELS, 101))[::-1].astype(np.int32)
            area[0] = PIXELS
            other.overlap = random_overlap(rng, area, row.region_area)
            other.area, other.argmax, other.hit = area, int(rng.integers(PIXELS)), bool(rng.random() < 0.4)
            other.keep(square(row.region_area), (0.0, 0.0, 1.0, 1.0), rng.random((4, 4), np.float32))
        answers.append(other)
    return answers


def finding_rows(seed: int, answers: int, strengths: dict[str, tuple[float, float]]) -> Iterator[ResultRow]:
    """120 cases of 60 patients, of the findings of `strengths`: how much higher the scores of images with it are, and
    how often its maps point right. seed: of labels and regions, answers: of scores and hits. With seed 0 Fracture is in
    two cases alone."""
    truth, said = np.random.default_rng(seed), np.random.default_rng(answers)
    for index, finding in product(range(120), strengths):
        label = int(index in (7, 30) if finding == "Fracture" and not seed else truth.random() < 0.4)
        row = ResultRow(f"c{index}", f"p{index // 2}", finding, "ok", None, label)
        higher, right = strengths[finding]
        row.logit = np.float32(round(said.normal() + higher * label, 1))
        row.region_area, row.sub_pixel = 0, False
        if label:
            row.region_area = int(truth.integers(50, 9000))
            area = np.sort(said.integers(1, PIXELS, 101))[::-1].astype(np.int32)
            area[0] = PIXELS
            row.area, row.overlap = area, random_overlap(said, area, row.region_area)
            row.argmax, row.hit, row.degenerate = int(said.integers(PIXELS)), bool(said.random() < right), False
            row.keep(square(row.region_area), (0.0, 0.0, 1.0, 1.0), said.random((4, 4), np.float32))
        yield row


def random_overlap(rng: np.random.Generator, area: NDArray[np.int32], region: int) -> NDArray[np.int32]:
    """Pixels of the region at each threshold: random, and none is gained inside or outside of it."""
    low = np.maximum(0, region - (PIXELS - area))
    drawn = rng.integers(low, np.minimum(area, region) + 1)
    overlap = np.sort(drawn)[::-1].astype(np.int32)
    overlap[0] = region
    for k in range(1, len(area)):
        overlap[k] = np.clip(overlap[k], overlap[k - 1] - (area[k - 1] - area[k]), overlap[k - 1])
    return overlap


def square(pixels: int) -> NDArray[np.uint8]:
    """Packed bits of a region of that many pixels."""
    return np.packbits((np.arange(PIXELS) < pixels).reshape(224, 224), axis=1, bitorder="little")


def add_cell(
    run: RunDirectory,
    model: str,
    dataset: str,
    rows: list[ResultRow],
    weights: str = "published",
    limit: int | None = None,
    **details: Any,
) -> None:
    """`details`: keys of the cell's entry in run.json that differ from a plain cell's."""
    key = f"{model}{dataset}".ljust(64, "0")
    files = run.files(model, dataset, key)
    files.write_part(0, table_of(rows, model, dataset, {KEY_FIELD: key}))
    files.merge(1, result_schema({KEY_FIELD: key}))
    run.set_cell(
        model,
        dataset,
        "done",
        key=key,
        file=files.final.relative_to(run.path).as_posix(),
        weights=weights,
        **{
            "ingredients": {"engine": "numpy fp32", "decoder": "cpu 1", "limit": limit},
            "protocol": "default",
            "grid": [4, 4],
            "title": f"The {dataset}",
            "findings": list(CLASSES),
            "model_family": model,
            **details,
        },
    )
