"""The probe `stability` on maps that follow the image, stand still or are dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from printed_whole import check_whole
from xbench_fast.engines.bundle import Bundle
from xbench_fast.metrics_gpu.trust.perturbations import DEFAULT
from xbench_fast.runtime.reporting.tables.table import cell_of
from xbench_fast.runtime.trust.probes.asking import AskedModel, VariantScores
from xbench_fast.runtime.trust.probes.directory import rows_as_table
from xbench_fast.runtime.trust.probes.judging import change_table, judged
from xbench_fast.runtime.trust.probes.probe import ProbeOptions
from xbench_fast.runtime.trust.probes.probe_images import PreparedImage
from xbench_fast.runtime.trust.probes.stable import StabilityProbe

Maps = Callable[[Any], Any]
CHANGES = tuple(map(str, DEFAULT))


@dataclass
class Drawn:
    """A model whose map is a function of the images uint8 [V, S, S]; its score rises with their mean grey."""

    maps: Maps
    batches: int = 0
    grid: tuple[int, int] = (28, 28)

    def ask(self, pixels: Any, findings: Any) -> VariantScores:
        self.batches += 1
        logits = np.repeat(pixels.mean(axis=(1, 2, 3))[:, None] / 20 - 5, len(findings), axis=1).astype(np.float32)
        maps = self.maps(pixels[:, 0])
        return VariantScores(
            logits, 1 / (1 + np.exp(-logits.astype(np.float64))), np.stack([maps] * len(findings), axis=1)
        )


def following(images: Any) -> Any:
    """The brightness in 8 x 8 pixels: it moves with the image."""
    return images.reshape(len(images), 28, 8, 28, 8).mean(axis=(2, 4), dtype=np.float64).astype(np.float32)


def still(images: Any) -> Any:
    """Always the same: a ramp with one peak."""
    maps = np.repeat(np.linspace(0, 0.5, 28 * 28, dtype=np.float32).reshape(1, 28, 28), len(images), axis=0)
    maps[:, 12, 9] = 1
    return maps


def dead(images: Any) -> Any:
    return np.full((len(images), 28, 28), np.nan, np.float32)


def startled(images: Any) -> Any:
    """Follows the image, but looks elsewhere once it is darker than the first."""
    maps = following(images)
    maps[images.mean(axis=(1, 2)) < images[0].mean() - 2, 20, 20] = 1000
    return maps


def spot(case: str, findings: tuple[str, ...] = ("Mass",), top: int = 72, left: int = 96) -> PreparedImage:
    """A bright square of 16 pixels on a ramp; the region is a little larger."""
    pixels = np.add.outer(np.arange(224) * 0.3, np.arange(224) * 0.3).astype(np.uint8)
    pixels[top : top + 16, left : left + 16] = 230 + len(case) % 5
    region = np.zeros((224, 224), np.bool_)
    region[top - 4 : top + 20, left - 4 : left + 20] = True
    return PreparedImage(
        case, f"p{case}", None, pixels[None], findings, np.stack([region] * len(findings)), (0.0, 0.0, 1.0, 1.0)
    )


def rows_of(maps: Maps, images: list[PreparedImage]) -> tuple[list[dict[str, Any]], Drawn]:
    model = Drawn(maps)
    probe = StabilityProbe(ProbeOptions())
    return [row for one in images for row in probe.rows(one, cast(AskedModel, model))], model


def judgement(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    probe = StabilityProbe(ProbeOptions())
    found = probe.judge(rows_as_table(probe.columns, rows, "key"), cast(Bundle, None))
    (record,) = judged(found.questions)
    return record, found


def many(count: int) -> list[PreparedImage]:
    return [spot("x" * (1 + at), top=24 + 8 * (at % 16), left=40 + 8 * (at % 9)) for at in range(count)]


def forty(maps: Maps) -> list[dict[str, Any]]:
    """The rows of two images, as if 40 patients had one of them each."""
    rows, _ = rows_of(maps, many(2))
    return [
        {**row, "case_id": f"{row['case_id']}{k}", "patient_id": f"{row['case_id']}{k}"}
        for k in range(20)
        for row in rows
    ]


def test_every_pair_has_a_row_for_every_change_from_one_batch() -> None:
    rows, model = rows_of(following, [spot("a", ("Mass", "Nodule"))])
    assert model.batches == 1 and [row["change"] for row in rows[::2]] == list(CHANGES)
    assert [row["finding"] for row in rows] == ["Mass", "Nodule"] * len(CHANGES)
    probe = StabilityProbe(ProbeOptions(seed=7))
    assert probe.passes(5, (7, 7), 9) == 11 == 1 + len(CHANGES)
    assert probe.settings["seed"] == 7 and probe.settings["changes"] == list(CHANGES)
    assert "libjpeg" in probe.settings["jpeg"]


def test_a_map_that_follows_the_image_is_the_same_when_undone() -> None:
    """Shifts by whole cells of the map, and changes of grey, move nothing; the hit stays."""
    rows, _ = rows_of(following, [spot("a")])
    by_change = {row["change"]: row for row in rows}
    for change in ("shift 8", "flip", "gamma 0.8", "gamma 1.25", "window 127.5/230"):
        row = by_change[change]
        assert (row["hit"], row["changed_hit"], row["degenerate"]) == (True, True, False), change
        assert row["distance"] == 0 and row["spearman"] > 0.999, change
    assert by_change["flip"]["spearman"] == by_change["flip"]["ssim"] == pytest.approx(1)
    assert by_change["shift 2"]["distance"] <= 8 and by_change["jpeg 90"]["changed_hit"]
    probabilities = 1 / (1 + np.exp(-(spot("a").pixels.mean() / 20 - 5)))
    assert by_change["flip"]["score"] == by_change["flip"]["changed_score"] == pytest.approx(probabilities, abs=1e-6)
    assert by_change["gamma 0.8"]["changed_score"] > probabilities


def test_a_map_that_stands_still_loses_its_place_in_the_moved_image() -> None:
    rows, _ = rows_of(still, [spot("a")])
    by_change = {row["change"]: row for row in rows}
    assert by_change["shift 8"]["distance"] == pytest.approx(8 * 2**0.5)
    assert by_change["shift 2"]["distance"] == pytest.approx(2 * 2**0.5)
    assert (
        by_change["flip"]["distance"] == pytest.approx(223 - 2 * 76, abs=1) and by_change["gamma 0.8"]["distance"] == 0
    )
    assert by_change["shift 8"]["spearman"] < 1


def test_a_maximum_in_the_repeated_edge_is_no_hit() -> None:
    def corner(images: Any) -> Any:
        maps = np.zeros((len(images), 28, 28), np.float32)
        maps[:, 0, 0] = 1
        return maps

    image = spot("a", top=4, left=4)
    image.regions[0, :8, :8] = True
    rows, _ = rows_of(corner, [image])
    by_change = {row["change"]: row for row in rows}
    assert by_change["gamma 0.8"]["changed_hit"] and by_change["shift 2"]["hit"]
    assert not by_change["shift 8"]["changed_hit"]


def test_stable_maps_pass_and_startled_ones_fail() -> None:
    record, found = judgement(forty(following))
    assert (record["question"], record["line"], record["value"], record["verdict"]) == ("flips", 7, 0.0, "pass")
    assert record["low"] == 0 and 0.05 < record["high"] < 0.1 and record["p"] is None and record["family"] == 0
    assert found.facts["shift 8"]["gained"] == found.facts["shift 8"]["lost"] == 0
    assert found.facts["flip"]["spearman"]["value"] == pytest.approx(1)
    record, found = judgement(forty(startled))
    assert record["verdict"] == "fail" and record["value"] == pytest.approx(0.2)  # gamma 1.25, one of five
    assert found.facts["gamma 1.25"]["lost"] == 40 and found.facts["gamma 0.8"]["lost"] == 0
    entry = {"model": "m", "dataset": "d", "probe": "stability", "facts": found.facts}
    (row,) = [row for row in change_table([entry], ()).rows if row[2] == "gamma 1.25"]
    assert [cell_of(item).text for item in row[:8]] == ["m", "d", "gamma 1.25", "40", "100.0", "0", "40", "176"]


def test_all_levels_add_changes_and_the_verdict_stays() -> None:
    probe = StabilityProbe(ProbeOptions(levels="all"))
    model = Drawn(startled)
    rows = [row for one in many(12) for row in probe.rows(one, cast(AskedModel, model))]
    changes = list(dict.fromkeys(row["change"] for row in rows))
    more = {"shift 4", "shift 16", "gamma 0.9", "gamma 1.1", "jpeg 50", "jpeg 20", "noise 5"}
    assert set(changes) == {*CHANGES, *more} and probe.passes(1, (7, 7), 9) == 18 == 1 + len(changes)
    assert [change for change in changes if change not in more] == list(CHANGES)
    found = probe.judge(rows_as_table(probe.columns, rows, "key"), cast(Bundle, None))
    fewer = [row for row in rows if row["change"] not in more]
    (all_levels,), (record, _) = judged(found.questions), judgement(fewer)
    assert all_levels == record and set(found.facts) == {*changes, "change_correlation"}
    table = change_table([{"model": "m", "dataset": "d", "probe": "stability", "facts": found.facts}], ())
    assert [row[2] for row in table.rows] == changes
    check_whole(table, 80)


def test_flips_are_counted_by_a_loop() -> None:
    rng = np.random.default_rng(8)
    rows, _ = rows_of(following, [spot("a"), spot("bb", ("Mass", "Nodule")), spot("ccc")])
    for row in rows:
        row["changed_hit"] = bool(rng.random() < 0.5)
    record, found = judgement(rows)
    shares: dict[str, list[float]] = {"Mass": [], "Nodule": []}
    for case, finding in {(row["case_id"], row["finding"]): None for row in rows}:
        mine = [row for row in rows if (row["case_id"], row["finding"]) == (case, finding)]
        judged_ones = [
            row for row in mine if row["change"] in ("shift 2", "gamma 0.8", "gamma 1.25", "jpeg 90", "noise 2")
        ]
        assert len(judged_ones) == 5
        shares[finding].append(sum(row["hit"] != row["changed_hit"] for row in judged_ones) / 5)
    assert record["value"] == pytest.approx(np.mean([np.mean(each) for each in shares.values()]))
    lost = sum(row["hit"] and not row["changed_hit"] for row in rows if row["change"] == "noise 2")
    assert found.facts["noise 2"]["lost"] == lost
    assert record["verdict"] == "cannot tell (3 patients)"


def test_dead_maps_are_counted_and_void_the_test() -> None:
    images = many(12)
    for image in images:
        image.regions[:] = True
    rows, _ = rows_of(dead, images)
    assert not any(row["hit"] or row["changed_hit"] for row in rows), "a dead map has no maximum"
    record, found = judgement(rows)
    assert record["verdict"] == "void (12 of 12 maps are degenerate)"
    assert found.facts["shift 2"]["spearman"] == {"value": None, "low": None, "high": None}
    assert found.facts["shift 2"]["distance_median"] is None and found.facts["shift 2"]["degenerate"] == 12
    entry = {"model": "m", "dataset": "d", "probe": "stability", "facts": found.facts}
    assert [cell_of(item).text for item in change_table([entry], ()).rows[0][7:10]] == ["-"] * 3
    assert found.notes[-1] == "stability: whether maps move with the score cannot be told: 0 changes, fewer than 30"


def test_one_patient_and_no_pair() -> None:
    record, found = judgement(rows_of(following, [spot("a")])[0])
    assert record["verdict"] == "cannot tell (1 patient)" and record["low"] is None
    assert found.facts["shift 2"]["rank_change"]["value"] is None, "one pair of a finding has no rank to change"
    assert "9 changes, fewer than 30" in found.notes[-1]
    probe = StabilityProbe(ProbeOptions())
    assert probe.judge(rows_as_table(probe.columns, [], "key"), cast(Bundle, None)).questions == ()


def test_regions_are_those_of_the_models_view() -> None:
    """A model that sees the right half: the spot at column 152 is seen at twice its distance from the middle."""
    whole = spot("a", top=100, left=160)
    half = PreparedImage("a", "p", None, whole.pixels, ("Mass",), whole.regions, (0.0, 0.5, 1.0, 1.0))
    rows, _ = rows_of(following, [half])
    assert not rows[0]["hit"], (
        "the bright square of the input is at column 160, the region from 2 (156 - 112) = 88 to 136"
    )
    wide = np.zeros((1, 224, 224), np.bool_)
    wide[0, 96:120, 112 + 78 : 112 + 90] = True
    rows, _ = rows_of(following, [PreparedImage("a", "p", None, whole.pixels, ("Mass",), wide, (0.0, 0.5, 1.0, 1.0))])
    assert rows[0]["hit"]
