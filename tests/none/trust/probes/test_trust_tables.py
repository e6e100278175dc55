"""The tables of `trust` use the words of the trust card and of the studies."""

from __future__ import annotations

from typing import Any

from test_faithful_probe import GOOD, everything, many
from test_stability_probe import following, forty
from test_stability_probe import judgement as of_stability
from xbench_fast.runtime.reporting.studies.writing import number_cell
from xbench_fast.runtime.reporting.tables.table import cell_of
from xbench_fast.runtime.trust.card.report_cards import _table
from xbench_fast.runtime.trust.probes.faithful import DeletionProbe
from xbench_fast.runtime.trust.probes.judging import as_text, change_table, judged, verdict_table
from xbench_fast.runtime.trust.probes.probe import ProbeOptions
from xbench_fast.runtime.trust.probes.region_deletion import RegionProbe


def entry(probe: str, records: list[dict[str, Any]], found: Any) -> dict[str, Any]:
    lead = {"model": "m", "dataset": "coco", "title": "My images", "probe": probe}
    return {**lead, "questions": records, "notes": list(found.notes), "facts": dict(found.facts)}


def test_numbers_are_named_as_on_the_card_and_datasets_by_their_titles() -> None:
    record, found = of_stability(forty(following))
    entries = [entry("stability", [record], found)]
    for probe in (DeletionProbe, RegionProbe):
        made = probe(ProbeOptions())
        found = judge(made, everything(made, GOOD, many(12)))
        entries.append(entry(made.name, judged(found.questions), found))
    table = verdict_table(entries, "Trust", ())
    assert {column.title for column in table.columns} <= {column.title for column in _table([]).columns}
    assert [cell_of(row[3]).text for row in table.rows] == [
        "share of flips over shift 2, gamma 0.8, gamma 1.25, jpeg 90, noise 2",
        *(f"{mode}, fill {fill}: {words}" for fill in ("mean", "blur16") for mode, words in (
            ("deletion", "random order - order of the map"), ("insertion", "order of the map - random order"))),
        *(f"region, fill {fill}: drop of the region - drop elsewhere" for fill in ("mean", "blur16")),
    ]  # fmt: skip
    text = as_text([table])
    assert "My images" in text and "coco" not in text and " less " not in text
    first, *others = (cell_of(row[4]) for row in table.rows)
    assert first.text == "0.0" and first.interval.endswith("] %"), "a share, in percent as on the card"
    assert all("%" not in cell.interval and "+" not in cell.text + cell.interval for cell in others)


def judge(probe: Any, rows: Any) -> Any:
    from xbench_fast.runtime.trust.probes.directory import rows_as_table

    return probe.judge(rows_as_table(probe.columns, rows, "key"), None)


def test_changes_stand_under_what_they_are_of() -> None:
    _, found = of_stability(forty(following))
    table = change_table([entry("stability", [], found)], ())
    groups = {column.title: column.group for column in table.columns[-7:]}
    assert list(groups) == ["flips", "gained", "lost", "moved", "Spearman", "SSIM", "change of p"]
    assert list(groups.values()) == ["pointing"] * 3 + ["map"] * 3 + ["score"]
    assert table.rows[0][1] == "My images" and "%" not in "".join(cell_of(item).text for item in table.rows[0])
    older = {name: value for name, value in entry("stability", [], found).items() if name != "title"}
    assert change_table([older], ()).rows[0][1] == "coco", "of an earlier version"


def test_no_number_is_a_negative_zero() -> None:
    assert number_cell(-0.0004, (-0.0001, 0.2), 3).text == "0.000" and number_cell(-0.0004, None, 4).text == "-0.0004"
    assert number_cell(-0.0004, (-0.0001, 0.2), 3).interval == "[0.000, 0.200]"
    record, found = of_stability(forty(following))
    small = {**record, "question": "region_mean", "value": -0.0004, "low": -0.0003, "high": 0.2}
    (row,) = verdict_table([entry("region", [small], found)], "Trust", ()).rows
    assert cell_of(row[4]).lines == ("0.000 [0.000, 0.200]",)
