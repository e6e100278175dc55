"""What may stand beside what in a report, tried from the command line: the truth, the protocol, the rows beside."""

from __future__ import annotations

import json

import xbench_fast as xb
from basis_world import Desk, desk

__all__ = ["desk"]


def test_models_that_saw_other_boxes_have_no_difference(desk: Desk) -> None:
    """The boxes move, keeping their size, and one of two models is evaluated again."""
    desk.eval("good", "poor")
    desk.report()
    before = next(row for row in desk.csv("differences.csv") if row["number"] == "pointing")
    assert int(before["shared"]) > 15 and before["left_out"] == "0" and before["p"]
    desk.move_boxes()
    desk.eval("good")
    text = desk.report()
    assert not desk.csv("differences.csv"), "neither a difference nor a p value"
    assert f"as the two models were evaluated with different regions: {before['shared']} of maps:good and" in text
    assert "maps:good and maps:poor share no pairs on lungs: no difference can be given" in text
    table = text.split("## ")[1]
    assert "not ranked, where they have others: maps:" in table and "| **" not in table
    assert xb.load_run(desk.run).table("differences", replicates=0).empty


def test_runs_are_compared_without_pairs_whose_region_changed(desk: Desk) -> None:
    desk.eval("good")
    before, boxes = desk.run.rename(desk.folder / "before"), desk.annotations
    boxes["annotations"][0]["bbox"][0] += 6
    (desk.data / "annotations.json").write_text(json.dumps(boxes))
    desk.eval("good")
    pairs = xb.load_run(desk.run).table("grounding", replicates=0).n.iloc[0]
    said = desk.command("compare", before, desk.run, "--json", desk.folder / "c.json", "--replicates", 20)
    (cell,) = json.loads((desk.folder / "c.json").read_text())["cells"]
    assert cell["pairs"] == pairs - 1 and len(cell["region_changes"]) == 1
    assert "another region: left out of the pairs" in said
    assert {change["change"] for change in cell["changes"]} == {0}
    frame = xb.compare(before, desk.run, replicates=0).table()
    assert set(frame[(frame.metric == "pointing") & (frame.finding == "")].n) == {pairs - 1}
