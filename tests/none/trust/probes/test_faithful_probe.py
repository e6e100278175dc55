"""The probes `deletion` and `region` on a model that is a formula: every score is computed again, image by image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from xbench_fast.engines.bundle import Bundle
from xbench_fast.metrics_gpu.trust.faithfulness import cell_order, fill_of, placements, random_orders
from xbench_fast.runtime.trust.probes.asking import AskedModel, VariantLogits, VariantScores
from xbench_fast.runtime.trust.probes.directory import rows_as_table
from xbench_fast.runtime.trust.probes.faithful import DeletionProbe, gap_question
from xbench_fast.runtime.trust.probes.judging import judged
from xbench_fast.runtime.trust.probes.probe import ProbeOptions
from xbench_fast.runtime.trust.probes.probe_images import PreparedImage
from xbench_fast.runtime.trust.probes.region_deletion import RegionProbe

SIDE, CELLS = 56, 14
NO_BUNDLE = cast(Bundle, None)


@dataclass
class Formula:
    """The logit of a finding rises with the brightness of its own cells; the map shows the cells it is told to show."""

    rests_on: dict[str, Any]
    shows: dict[str, Any]
    least: dict[str, float] = field(default_factory=dict)
    grid: tuple[int, int] = (CELLS, CELLS)
    asked: list[int] = field(default_factory=list)

    def ask(self, pixels: Any, findings: Any) -> VariantScores:
        assert pixels.dtype == np.uint8 and pixels.shape[1:] == (1, SIDE, SIDE)
        self.asked.append(len(pixels))
        cells = pixels.reshape(len(pixels), CELLS, SIDE // CELLS, CELLS, -1).mean(axis=(2, 4)) / 255
        logits = np.stack(
            [self.least.get(name, -6) + 0.3 * (cells * self.rests_on[name]).sum(axis=(1, 2)) for name in findings],
            axis=1,
        ).astype(np.float32)
        maps = np.stack([np.repeat(self.shows[name][None], len(pixels), 0) for name in findings], axis=1)
        return VariantScores(logits, 1 / (1 + np.exp(-logits.astype(np.float64))), maps.astype(np.float32))

    def ask_logits(self, variants: Any, findings: Any) -> VariantLogits:
        return self.ask(np.concatenate(list(variants))[:, None], findings)


def square(top: int, left: int, side: int = 5) -> Any:
    """Cells of a square, with values that differ."""
    cells = np.zeros((CELLS, CELLS), np.float32)
    cells[top : top + side, left : left + side] = 1 + np.arange(side * side).reshape(side, side) / 100
    return cells


def image(case: str, findings: tuple[str, ...], marked: list[Any], frame: Any = (0.0, 0.0, 1.0, 1.0)) -> PreparedImage:
    """A bright square on dark noise; regions are cells of the grid."""
    rng = np.random.default_rng(len(case))
    pixels = rng.integers(0, 60, (SIDE, SIDE)).astype(np.uint8)
    pixels[8:28, 8:28] += 180
    regions = np.stack([np.kron(cells > 0, np.ones((16, 16))) > 0 for cells in marked])
    return PreparedImage(case, f"p{case}", None, pixels[None], findings, regions, frame)


def asked(model: Formula) -> AskedModel:
    return cast(AskedModel, model)


TRUE, OTHER = square(2, 2), square(8, 8)
GOOD = Formula({"Mass": TRUE, "Nodule": OTHER}, {"Mass": TRUE, "Nodule": OTHER}, least={"Nodule": -8})


def area(scores: list[float]) -> float:
    return float(np.trapezoid(scores) / (len(scores) - 1))


@pytest.mark.parametrize("fill", ["mean", "blur16"])
def test_curves_are_those_of_a_loop(fill: str) -> None:
    """Cell by cell and image by image, as RISE does it; the random areas are means over three orders."""
    one = image("a", ("Mass",), [TRUE])
    probe = DeletionProbe(ProbeOptions(seed=4))
    (row,) = [row for row in probe.rows(one, asked(GOOD)) if row["fill"] == fill]
    plain, filled = one.pixels[0], fill_of(one.pixels[0], fill)

    def curve(order: Any, mode: str, unit: str) -> float:
        scores = []
        for step in range(15):
            picture = (plain if mode == "deletion" else filled).copy()
            other = filled if mode == "deletion" else plain
            for cell in order[: 14 * step]:
                y, x = divmod(int(cell), CELLS)
                picture[4 * y : 4 * y + 4, 4 * x : 4 * x + 4] = other[4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
            said = GOOD.ask(picture[None, None], ("Mass",))
            scores.append(float(said.logits[0, 0] if unit else said.probabilities[0, 0]))
        return area(scores)

    for unit in ("", "_logit"):
        for mode in ("deletion", "insertion"):
            assert row[f"own_{mode}{unit}"] == pytest.approx(curve(cell_order(TRUE), mode, unit), abs=1e-6)
            random = [curve(order, mode, unit) for order in random_orders("4 a", CELLS * CELLS, 3)]
            assert row[f"random_{mode}{unit}"] == pytest.approx(np.mean(random), abs=1e-6)
    assert row["score"] == pytest.approx(GOOD.ask(plain[None, None], ("Mass",)).probabilities[0, 0])
    assert row["filled_score"] == pytest.approx(GOOD.ask(filled[None, None], ("Mass",)).probabilities[0, 0])


def test_all_variants_of_an_image_are_asked_together_and_random_orders_serve_every_finding() -> None:
    both = Formula(GOOD.rests_on, GOOD.shows)
    two = image("a", ("Mass", "Nodule"), [TRUE, OTHER])
    two.pixels[0, 32:52, 32:52] += 180
    probe = DeletionProbe(ProbeOptions())
    rows = probe.rows(two, asked(both))
    assert len(rows) == 4 and all(row["own_deletion"] is not None for row in rows)
    assert (
        both.asked == [3, 2 * 2 * 13 * (2 + 3)] and sum(both.asked) == probe.passes(2, (CELLS, CELLS), 9) - 104 == 263
    )
    assert probe.passes(1, (7, 7), 9) == 1 + 2 * (1 + 2 * 6 * 5)
    alone = image("a", ("Mass",), [TRUE])
    alone.pixels[:] = two.pixels
    for first, second in zip(
        probe.rows(alone, asked(both)), [row for row in rows if row["finding"] == "Mass"], strict=True
    ):
        assert first.items() == {key: pytest.approx(value) for key, value in second.items()}.items()


def test_the_order_of_the_prior_map_is_that_of_the_other_patients() -> None:
    """Three images of two patients: the prior of each pair is the mean of the scaled maps of the other patient's."""
    images = [
        image("a", ("Mass",), [TRUE]),
        image("bb", ("Mass",), [TRUE]),
        image("ccc", ("Mass", "Nodule"), [TRUE, OTHER]),
    ]
    images[1] = replace(images[1], patient_id="pa")
    shown = {"a": square(1, 4), "bb": square(6, 3) * 7 - 3, "ccc": square(4, 4)}
    rows = []
    for one in images:
        model = Formula(GOOD.rests_on, dict.fromkeys(("Mass", "Nodule"), shown[one.case_id]))
        rows += DeletionProbe(ProbeOptions()).survey([one], asked(model))
    assert [(row["case_id"], row["finding"]) for row in rows][2:] == [("ccc", "Mass"), ("ccc", "Nodule")]
    stored = rows_as_table(DeletionProbe.columns, rows, "key").to_pylist()
    probe = DeletionProbe(ProbeOptions(seed=4)).surveyed(stored, (CELLS, CELLS))
    scaled = {name: (each - each.min()) / (each.max() - each.min()) for name, each in shown.items()}
    priors = {"a": scaled["ccc"], "bb": scaled["ccc"], "ccc": (scaled["a"] + scaled["bb"]) / 2}
    for one in images:
        plain, filled = one.pixels[0], fill_of(one.pixels[0], "mean")
        GOOD.asked.clear()
        found = [row for row in probe.rows(one, asked(GOOD)) if row["fill"] == "mean" and row["finding"] == "Mass"]
        assert GOOD.asked == [3, 2 * 2 * 13 * (1 + 1 + 3)], "all orders are asked together"
        scores = []
        for step in range(15):
            picture = plain.copy()
            for cell in cell_order(priors[one.case_id].astype(np.float32))[: 14 * step]:
                y, x = divmod(int(cell), CELLS)
                picture[4 * y : 4 * y + 4, 4 * x : 4 * x + 4] = filled[4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
            scores.append(float(GOOD.ask(picture[None, None], ("Mass",)).probabilities[0, 0]))
        assert found[0]["prior_deletion"] == pytest.approx(area(scores), abs=1e-6)
    two = image("ccc", ("Mass", "Nodule"), [TRUE, OTHER])
    two.pixels[0, 32:52, 32:52] += 180
    (lone,) = [row for row in probe.rows(two, asked(GOOD)) if (row["finding"], row["fill"]) == ("Nodule", "mean")]
    assert "own_deletion" in lone and "prior_deletion" not in lone, "no other patient has a Nodule"


def test_the_gap_to_the_prior_order_is_a_fact_and_pairs_without_one_are_counted() -> None:
    rows = everything(DeletionProbe(ProbeOptions()), GOOD, many(12))
    for at, row in enumerate(rows):
        if row["case_id"] != "x":
            row |= {f"prior_{mode}": row[f"own_{mode}"] + 0.01 * at for mode in ("deletion", "insertion")}
    records, found = judgement(DeletionProbe(ProbeOptions()), rows)
    assert list(records) == ["deletion_mean", "insertion_mean", "deletion_blur16", "insertion_blur16"]
    for mode, sign in (("deletion", 1), ("insertion", -1)):
        gap = found.facts[f"{mode}_mean"]["gap_to_prior"]
        assert gap["value"] == pytest.approx(sign * np.mean(np.arange(2, 24, 2) * 0.01)) and gap["pairs"] == 11
        assert gap["left_out"]["no other patient has the finding"] == 1 and gap["low"] is not None
    (told, *_) = [note for note in found.notes if "order of the prior map - order of the map" in note]
    assert told.startswith("deletion, fill mean, order of") and told.endswith(
        "; 1 left out, no other patient has the finding"
    )


def test_pairs_that_can_say_nothing_are_not_asked_further() -> None:
    """p of Nodule is below 0.1, since its cells are dark."""
    GOOD.asked.clear()
    two = image("a", ("Mass", "Nodule"), [TRUE, OTHER])
    rows = DeletionProbe(ProbeOptions()).rows(two, asked(GOOD))
    assert sum(GOOD.asked) == 3 + 2 * 2 * 13 * (1 + 3)
    for row in rows:
        assert ("own_deletion" in row) == (row["finding"] == "Mass")
    GOOD.asked.clear()
    rows = DeletionProbe(ProbeOptions()).rows(image("a", ("Nodule",), [OTHER]), asked(GOOD))
    assert GOOD.asked == [3] and len(rows) == 2


def test_a_low_score_that_falls_to_nothing_is_still_too_low() -> None:
    low = Formula(GOOD.rests_on, GOOD.shows, least={"Mass": -9.5})
    rows = DeletionProbe(ProbeOptions()).rows(image("a", ("Mass",), [TRUE]), asked(low))
    (row,) = [row for row in rows if row["fill"] == "mean"]
    assert 2 * row["filled_score"] < row["score"] < 0.1 and "own_deletion" not in row and low.asked == [3]


def judgement(probe: Any, rows: list[Any], words: bool = True) -> tuple[dict[str, Any], Any]:
    """Records by question, and the judgement, after a way through the file's types."""
    found = probe.judge(rows_as_table({**probe.columns}, rows, "key"), NO_BUNDLE)
    return {record["question"]: record for record in judged(found.questions)}, found


def everything(probe: Any, model: Formula, images: list[PreparedImage]) -> list[Any]:
    return [row for one in images for row in probe.rows(one, asked(model))]


def many(count: int, findings: tuple[str, ...] = ("Mass",), marked: Any = None) -> list[PreparedImage]:
    return [image("x" * (1 + at), findings, marked or [TRUE]) for at in range(count)]


def test_a_faithful_map_passes_and_one_that_shows_other_cells_does_not() -> None:
    probe = DeletionProbe(ProbeOptions())
    images = many(12)
    records, found = judgement(probe, everything(probe, GOOD, images))
    assert list(records) == ["deletion_mean", "insertion_mean", "deletion_blur16", "insertion_blur16"]
    assert {record["verdict"] for record in records.values()} == {"pass"}
    assert {record["line"] for record in records.values()} == {5}
    assert found.facts["deletion_mean"]["own"] < found.facts["deletion_mean"]["random"]
    false = Formula(GOOD.rests_on, {"Mass": OTHER - TRUE})
    records, _ = judgement(probe, everything(probe, false, images))
    assert {record["word"] for record in records.values()} == {"fail"}


def test_pairs_left_out_are_counted_by_reason() -> None:
    probe = DeletionProbe(ProbeOptions())
    bright = Formula({"Mass": TRUE * 0.02, "Nodule": OTHER}, GOOD.shows, least={"Mass": 1.0, "Nodule": -8})
    images = many(4, ("Mass", "Nodule"), [TRUE, OTHER])
    records, found = judgement(probe, everything(probe, bright, images))
    for record in records.values():
        assert record["left_out"] == {"p of the image is below 0.1": 4, "the filled image keeps more than 50 % of p": 4}
        assert (record["value"], record["pairs"], record["verdict"]) == (None, 0, "cannot tell (0 patients)")
    facts = found.facts["deletion_mean"]
    assert facts["own"] is facts["random"] is facts["gap_in_logits"] is facts["gap_to_prior"]["value"] is None
    assert "deletion, fill mean: the mean p is" in found.notes[0]


@pytest.mark.parametrize("value", [0.5, np.nan])
def test_dead_maps_are_kept_and_void_the_test(value: float) -> None:
    probe = DeletionProbe(ProbeOptions())
    dead = Formula(GOOD.rests_on, {"Mass": np.full((CELLS, CELLS), value, np.float32)})
    records, _ = judgement(probe, everything(probe, dead, many(12)))
    assert {record["verdict"] for record in records.values()} == {"void (12 of 12 maps are degenerate)"}


def test_high_scores_are_told_in_logits_too() -> None:
    probe = DeletionProbe(ProbeOptions())
    sure = Formula({"Mass": TRUE * 2}, GOOD.shows, least={"Mass": -6})
    rows = everything(probe, sure, many(3))
    assert min(row["score"] for row in rows) > 0.99
    _, found = judgement(probe, rows)
    told = [note for note in found.notes if "p is above 0.99 in most pairs, which hides drops" in note]
    assert [note.split(":")[0] for note in told] == ["deletion, fill mean", "insertion, fill mean"], "blurred, p stays"
    _, found = judgement(probe, everything(probe, Formula(GOOD.rests_on, GOOD.shows, {"Mass": -7}), many(3)))
    assert not any("0.99" in note for note in found.notes)


def test_one_patient_says_nothing_and_no_row_asks_nothing() -> None:
    for probe in (DeletionProbe(ProbeOptions()), RegionProbe(ProbeOptions())):
        records, _ = judgement(probe, everything(probe, GOOD, many(1)))
        assert {record["verdict"] for record in records.values()} == {"cannot tell (1 patient)"}
        assert probe.judge(rows_as_table(probe.columns, [], "key"), NO_BUNDLE).questions == []


@pytest.mark.parametrize("fill", ["mean", "blur16"])
def test_filled_regions_are_those_of_a_loop(fill: str) -> None:
    one = image("a", ("Mass", "Nodule"), [TRUE, OTHER])
    other = np.random.default_rng(2).random((CELLS, CELLS)) / 2  # wherever a region is placed, it matters
    model = Formula({"Mass": TRUE + other, "Nodule": OTHER + other}, GOOD.shows)
    probe = RegionProbe(ProbeOptions(seed=4))
    rows = probe.rows(one, asked(model))
    assert len(rows) == 4 and len(model.asked) == 2 and sum(model.asked) <= probe.passes(2, (CELLS, CELLS), 9) == 43
    plain, filled = one.pixels[0], fill_of(one.pixels[0], fill)
    masks = [np.kron(cells > 0, np.ones((4, 4))) > 0 for cells in (TRUE, OTHER)]
    for place, finding in enumerate(one.findings):
        (row,) = [row for row in rows if (row["finding"], row["fill"]) == (finding, fill)]

        def score(mask: Any, finding: str = finding) -> float:
            return float(model.ask(np.where(mask, filled, plain)[None, None], (finding,)).probabilities[0, 0])

        elsewhere = placements(masks[place], masks[0] | masks[1], f"4 a {finding}")
        assert row["places"] == len(elsewhere) == 8
        assert row["region_score"] == pytest.approx(score(masks[place]))
        assert row["elsewhere_score"] == pytest.approx(np.mean([score(mask) for mask in elsewhere]))
        assert row["mirror_score"] == pytest.approx(score(masks[place][:, ::-1]))
        assert row["share"] == pytest.approx(25 / 196)


def test_a_score_that_rests_on_the_region_passes() -> None:
    probe = RegionProbe(ProbeOptions())
    records, found = judgement(probe, everything(probe, GOOD, many(12)))
    assert {key: record["verdict"] for key, record in records.items()} == {
        "region_mean": "pass",
        "region_blur16": "pass",
    }
    assert all(record["line"] == 6 and record["value"] > 0.1 for record in records.values())
    assert any("drop of its mirror image is +" in note and "of 12 pairs" in note for note in found.notes)
    elsewhere = Formula({"Mass": TRUE}, GOOD.shows)
    records, _ = judgement(probe, everything(probe, elsewhere, many(12, marked=[OTHER])))
    assert {record["word"] for record in records.values()} == {"fail"}


def test_regions_without_room_or_out_of_sight_are_counted() -> None:
    probe = RegionProbe(ProbeOptions())
    wide = np.ones((CELLS, CELLS), np.float32)
    wide[:, 0] = 0
    images = [
        *many(3),
        image("y" * 20, ("Mass",), [wide]),
        image("z" * 30, ("Mass",), [square(8, 8)], (0.0, 0.0, 0.5, 0.5)),
    ]
    records, found = judgement(probe, everything(probe, GOOD, images))
    for record in records.values():
        assert record["pairs"] == 3
        assert record["left_out"]["no free place of the region's size and shape"] == 1
        assert record["left_out"]["the model sees no pixel of the region"] == 1
    assert any(
        note.startswith("region: regions without a free place: ") and "1 of 1 of 15 % to 100 %" in note
        for note in found.notes
    )


def test_settings_name_everything_a_row_depends_on() -> None:
    assert DeletionProbe(ProbeOptions(3)).settings == {"seed": 3, "random_orders": 3, "fills": ["mean", "blur16"]}
    assert RegionProbe(ProbeOptions(3)).settings == {"seed": 3, "placements": 8, "fills": ["mean", "blur16"]}


def test_the_files_types_hold_every_row(tmp_path: Path) -> None:
    for probe in (DeletionProbe(ProbeOptions()), RegionProbe(ProbeOptions())):
        rows = everything(probe, GOOD, many(1, ("Mass", "Nodule"), [TRUE, OTHER]))
        table = rows_as_table(probe.columns, rows, "key")
        assert {name for row in rows for name in row} <= set(table.column_names) and table.num_rows == 4


def test_a_pair_is_left_out_once_under_its_first_reason() -> None:
    held = pd.DataFrame({"score": [0.05, 0.9, 0.9, 0.9], "filled_score": [0.04, 0.8, 0.1, 0.1]})
    alone = pd.Series([True, True, True, False])
    question = gap_question(("k", "t"), 5, held, pd.Series([1.0, 2.0, 3.0, 4.0]), {"alone": alone})
    assert list(question.left_out.values()) == [1, 1, 1] and np.isnan(question.values[:3]).all()
    assert question.values[3] == 4
