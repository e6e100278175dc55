"""The fixtures of predicted boxes as `Answers`, without the reader of the runtime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from xbench_fast.metrics_gpu.detection.boxes import Answers, BoxLists

CLASSES = (
    "Atelectasis", "Calcification", "Consolidation", "Effusion", "Emphysema",
    "Fibrosis", "Fracture", "Mass", "Nodule", "Pneumothorax",
)  # fmt: skip


@cache
def truth_of(reference_files: Path) -> tuple[list[str], list[tuple[str, str, list[list[float]]]]]:
    """The cases of the test list, and (case, class, boxes) of each pair."""
    entries = json.loads((reference_files / "data/annotations/chestxdet10/test.json").read_text())
    pairs = []
    for entry in entries:
        by: dict[str, list[list[float]]] = {}
        for finding, box in zip(entry["syms"], entry["boxes"], strict=True):
            by.setdefault(finding, []).append(box)
        pairs += [(entry["file_name"].removesuffix(".png"), finding, by[finding]) for finding in sorted(by)]
    return [entry["file_name"].removesuffix(".png") for entry in entries], pairs


def read(reference_files: Path, name: str) -> Answers:
    """The prediction file of that name."""
    cases, pairs = truth_of(reference_files)
    place = {case: k for k, case in enumerate(cases)}
    text = (reference_files / f"boxes/predictions/{name}.jsonl").read_text().splitlines()[1:]
    lines: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in map(json.loads, text):
        lines[line["case"], line["finding"]] = line
    scored = any("scores" in line for line in lines.values())
    own = [lines.pop((case, finding), {"boxes": [], "scores": []}) for case, finding, _ in pairs]
    return Answers(
        given=BoxLists.of([line["boxes"] for line in own], [line["scores"] for line in own] if scored else None),
        truth=BoxLists.of([boxes for _, _, boxes in pairs]),
        class_of=np.array([CLASSES.index(finding) for _, finding, _ in pairs]),
        case_of=np.array([place[case] for case, _, _ in pairs]),
        sizes=np.full((len(pairs), 2), 1024),
        names=CLASSES,
        cases=len(cases),
        negatives=BoxLists.of([line["boxes"] for line in lines.values()]),
        negative_class=np.array([CLASSES.index(finding) for _, finding in lines], np.int64),
        negative_case=np.array([place[case] for case, _ in lines], np.int64),
        tried=np.array([len(line["boxes"]) > 0 for line in lines.values()], np.bool_),
    )


def made(given: Any, truth: Any, size: tuple[int, int] = (100, 100), scores: Any = None) -> Answers:
    """Answers of one class, each pair in an image of its own."""
    pairs = len(truth)
    return Answers(
        given=BoxLists.of(given, scores),
        truth=BoxLists.of(truth),
        class_of=np.zeros(pairs, np.int64),
        case_of=np.arange(pairs),
        sizes=np.tile(np.array(size), (pairs, 1)),
        names=("Mass", "Nodule"),
        cases=pairs,
    )
