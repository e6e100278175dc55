"""Reads the images of an audit: their sizes alone, or all their pixels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .....engines.errors import ImageError
from ....host.machine_record import usable_cores
from ...images.decode import read_grey
from ...images.size import image_size
from ..dataset import Case


@dataclass
class AuditImages:
    """What was read: sizes, case -> (height, width); reasons why images cannot be read; number of constant images."""

    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    constant: int = 0


def decode_images(cases: Sequence[Case], threads: int | None) -> AuditImages:
    """Decodes all images in `threads` threads (None: one per usable core)."""
    images = AuditImages()
    for case, outcome in _decoded(cases, threads or usable_cores()):
        if isinstance(outcome, str):
            images.reasons.append(outcome)
        else:
            images.sizes[case.case_id] = outcome[0], outcome[1]
            images.constant += outcome[2]
    return images


def read_headers(cases: Sequence[Case], threads: int | None) -> AuditImages:
    """The sizes of the images with a region, from their headers; without those that cannot be read."""
    drawn = [case for case in cases if case.regions]
    with ThreadPoolExecutor(threads or usable_cores(), thread_name_prefix="audit") as pool:
        sizes = zip(drawn, pool.map(_header, drawn), strict=True)
        return AuditImages({case.case_id: size for case, size in sizes if size is not None})


def _header(case: Case) -> tuple[int, int] | None:
    try:
        return image_size(case.image)
    except ImageError:
        return None


def _decoded(cases: Sequence[Case], threads: int) -> Iterator[tuple[Case, str | tuple[int, int, bool]]]:
    """Every case with (height, width, is constant) or the reason why it cannot be read; holds few images in memory."""
    with ThreadPoolExecutor(threads, thread_name_prefix="audit") as pool:
        waiting: deque[Any] = deque()
        for case in cases:
            waiting.append((case, pool.submit(_look, case)))
            if len(waiting) >= 4 * threads:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


def _look(case: Case) -> str | tuple[int, int, bool]:
    try:
        grey = read_grey(case.image)
    except ImageError as error:
        return str(error)
    return grey.shape[0], grey.shape[1], bool(np.all(grey == grey[0, 0]))
