"""Rows as CSV: unrounded values, columns in the order they occur, headings also without rows."""

from __future__ import annotations

import csv

from xbench_fast.runtime.tables.markdown_csv import to_csv


def test_values_are_unrounded_and_come_back() -> None:
    rows = [{"model": "kad", "value": 0.1 + 0.2, "note": 'a "quoted", text'}, {"model": "clip", "value": None, "n": 3}]
    text = to_csv(rows)
    assert text.splitlines()[0] == "model,value,note,n" and text.endswith("\n") and "\r" not in text
    first, second = csv.DictReader(text.splitlines())
    assert float(first["value"]) == 0.1 + 0.2 and first["note"] == 'a "quoted", text'
    assert second == {"model": "clip", "value": "", "note": "", "n": "3"}


def test_no_rows() -> None:
    assert to_csv([]) == "" and to_csv([], ("a", "b")) == "a,b\n"
    assert to_csv(iter([{"a": 1}]), ("a", "b")) == "a,b\n1,\n"
