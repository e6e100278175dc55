"""The columns of a result are those of plain rows, one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from result_rows import ResultRow, table_of
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.evaluation.decoded_case import DecodedCase
from xbench_fast.runtime.evaluation.drawn import CaseColumns, DrawnPairs
from xbench_fast.runtime.evaluation.queries import Logits, Queries, prompt_mean
from xbench_fast.runtime.evaluation.scoring import Scored, rows_table

FINDINGS = ("Mass", "Edema", "Nodule")
META = {"xbench_cell_key": "k"}


def random_case(rng: np.random.Generator, number: int, status: str) -> DecodedCase:
    labels = {name: rng.choice([0, 1, None]) for name in FINDINGS if rng.random() < 0.9}
    case = Case(f"c{number}é", Path(f"{number}.png"), labels, {}, "test", None if number % 3 else f"p{number}")
    image = None if number == 4 else rng.bytes(16)
    if status != "ok":
        return DecodedCase(case, status, "it is damaged", image=image)
    held = [name for name in FINDINGS if rng.random() < 0.6]
    rng.shuffle(held)
    masks = {name: rng.random((224, 224)) < 0.5 for name in held}
    frame = tuple(rng.random(4).tolist())
    faults = {name: "clipped" for name in FINDINGS if rng.random() < 0.2}
    return DecodedCase(case, "ok", None, None, frame, masks, frozenset(held[:1]), (9, 9), faults, image)


def random_counts(rng: np.random.Generator, pairs: int) -> Counts:
    area, overlap = (rng.integers(0, 99, (pairs, 101)).astype(np.int32) for _ in range(2))
    region, argmax = (rng.integers(0, 99, pairs).astype(np.int32) for _ in range(2))
    return Counts(area, overlap, region, argmax, rng.random(pairs) < 0.5, rng.random(pairs) < 0.5)


def plain_rows(cases: list[DecodedCase], scored: list[Scored]) -> list[ResultRow]:
    """The rows by a loop over cases, findings and parts."""
    waiting = [(part, number) for part in scored for number in range(part.cases)]
    rows = []
    for decoded in cases:
        part, number = waiting.pop(0) if decoded.status == "ok" else (None, -1)
        for at, finding in enumerate(FINDINGS):
            row = ResultRow(decoded.case.case_id, decoded.case.patient_id, finding, decoded.status, decoded.reason)
            row.label, row.image_hash = decoded.case.labels.get(finding), decoded.image
            row.region_fault = decoded.faults.get(finding)
            rows.append(row)
            if part is None:
                continue
            row.region_area, row.sub_pixel = 0, False
            if part.logits is not None:
                row.logit = part.logits.positive[number, at]
                row.logit_negative = None if part.logits.without[at] else part.logits.negative[number, at]
            for pair in range(len(part.pairs)):
                if (part.pairs.of_case[pair], part.pairs.of_finding[pair]) == (number, at):
                    row.take(part.counts, pair)
                    row.sub_pixel = finding in decoded.sub_pixel
                    row.keep(
                        pack_masks(decoded.masks[finding][None])[0],
                        decoded.frame,
                        None if part.maps is None else part.maps[pair],
                    )
                    row.native = None if part.native is None else part.native[pair]
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_columns_are_those_of_plain_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    states = rng.choice(["ok", "ok", "ok", "missing", "unreadable"], 23).tolist() if seed else ["missing"] * 5
    cases = [random_case(rng, number, status) for number, status in enumerate(states)]
    readable = [case for case in cases if case.status == "ok"]
    scored = []
    for kind in range(4):
        mine, readable = (readable[:5], readable[5:]) if kind < 3 else (readable, [])
        pairs = DrawnPairs.of(mine, FINDINGS)
        shape = len(mine), len(FINDINGS)
        logits = Logits(*(rng.random(shape, np.float32) for _ in range(2)), np.array([False, True, kind == 2]))
        native = [{"height": 3, "area": [1, 2], "hit": True}, None] * len(pairs)
        scored.append(
            Scored(
                pairs,
                random_counts(rng, len(pairs)),
                None if kind == 1 else logits,
                None if kind == 2 else rng.random((len(pairs), 2, 3), np.float32),
                native[: len(pairs)] if kind == 3 else None,
            )
        )
    parts = [CaseColumns.of(cases[start : start + 9], FINDINGS) for start in range(0, len(cases), 9)]
    found = rows_table(parts, scored, FINDINGS, "a model", "a dataset", META)
    found.validate(full=True)
    expected = table_of(plain_rows(cases, scored), "a model", "a dataset", META)
    assert found.schema.equals(expected.schema, check_metadata=True)
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


def test_cases_and_scores_must_fit() -> None:
    cases = [random_case(np.random.default_rng(0), number, "ok") for number in range(2)]
    pairs = DrawnPairs.of(cases[:1], FINDINGS)
    with pytest.raises(ValueError, match="readable"):
        rows_table(
            [CaseColumns.of(cases, FINDINGS)],
            [Scored(pairs, random_counts(np.random.default_rng(0), len(pairs)))],
            FINDINGS,
            "",
            "",
            {},
        )


def test_logits_and_maps_of_several_prompts_have_the_bits_of_one_image() -> None:
    rng = np.random.default_rng(5)
    logits, saliency = (
        (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(np.float32)
        for shape in ((7, 40), (7, 40, 1, 1))
    )
    sizes, own = ((1, 2, 9, 21), (0, 1, 3, 3)), rng.permutation(40)
    positive, negative = (np.split(own, np.cumsum(size))[: len(size)] for size in sizes)
    queries = Queries(("a", "b", "c", "d"), tuple(positive), tuple(negative))
    found = queries.logits(logits)
    assert found.without.tolist() == [True, False, False, False]
    for image in range(7):
        for at in range(4):
            assert found.positive[image, at] == prompt_mean(logits[image, positive[at]])
            if at:
                assert found.negative[image, at] == prompt_mean(logits[image, negative[at]])
    cases, findings = (each.reshape(-1) for each in np.mgrid[:7, :4])
    maps = queries.maps(saliency, cases, findings)
    expected = [prompt_mean(saliency[case, positive[at]]) for case, at in zip(cases, findings, strict=True)]
    np.testing.assert_array_equal(maps, np.stack(expected))
