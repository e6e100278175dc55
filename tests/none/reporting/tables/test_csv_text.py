"""Rows as CSV: unrounded values, columns in the order they occur, headings also without rows."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from xbench_fast.engines.visible_text import visible_text
from xbench_fast.runtime.reporting.tables.markdown_csv import to_csv


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


@pytest.mark.parametrize("text", ["=1+1", "+2", "-3", "@SUM(1)", "\tx", "\rx", "\n=1", "'a", "-", "=cmd|' /C calc'!A0"])
def test_a_text_that_looks_like_a_formula_gets_an_apostrophe(text: str) -> None:
    (row,) = csv.DictReader(io.StringIO(to_csv([{"class": text}]), newline=""))
    assert row["class"] == "'" + visible_text(text)
    (row,) = csv.DictReader(io.StringIO(to_csv([{"class": text}], raw=True), newline=""))
    assert row["class"] == text


def test_numbers_are_numbers_in_both_forms() -> None:
    rows = [{"low": -0.5, "n": -3, "share": np.float64(-1.25), "none": None, "yes": True}]
    assert to_csv(rows) == to_csv(rows, raw=True) == "low,n,share,none,yes\n-0.5,-3,-1.25,,True\n"
