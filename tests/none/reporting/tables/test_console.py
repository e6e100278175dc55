"""Tables in a terminal: no word and no number is broken, whatever its width."""

from __future__ import annotations

import io

import pytest
from printed_whole import check_whole, shown
from rich.console import Console
from xbench_fast.runtime.reporting.tables.console import make_console, print_line
from xbench_fast.runtime.reporting.tables.table import Cell, Column, Table

WIDTHS = (20, 80, 100, 120, 200)
LONG = "a-model-of-our-own_with-a-name-of-more-than-sixty-signs-and-no-space"


def class_table(classes: int, models: tuple[str, ...] = ("kad", "clip"), **more: object) -> Table:
    names = [f"Enlarged Cardiomediastinum {place}" for place in range(classes)]
    columns = (Column("model"), Column("Mean"), *map(Column, names))
    rows = [("n", "", *map(str, range(classes)))]
    for model in models:
        rows.append((model, *(Cell(f"{c}.25", "[10.1, 20.3]", "best" if c == 3 else "") for c in range(classes + 1))))  # type: ignore[arg-type]
    return Table("Per class", columns, tuple(rows), ("stamped",), ("a note of several words",), turns="class", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("models", [("kad", "clip"), (LONG, "kad"), ("肺炎モデル", "naïve-modèle")])
@pytest.mark.parametrize("classes", [2, 21])
def test_no_token_is_broken(width: int, classes: int, models: tuple[str, ...]) -> None:
    table = class_table(classes, models)
    check_whole(table, width)
    check_whole(table.turned(), width)


def test_many_classes_become_rows() -> None:
    table = class_table(21)
    lines = shown(table, 80).splitlines()
    assert sum("Cardiomediastinum 7" in line for line in lines) == 1
    at = next(place for place, line in enumerate(lines) if line.split()[:1] == ["class"])
    assert lines[at].split() == ["class", "n", "kad", "clip"]
    few = shown(class_table(2), 120).splitlines()
    assert any(line.split()[:2] == ["model", "Mean"] for line in few)


def test_groups_become_the_first_column_of_a_turned_table() -> None:
    columns = (Column("model"), *(Column(t, g) for g in ("RSNA", "SIIM") for t in ("Point", "Dice")))
    rows = (("n", "3", "", "4", ""), (Cell("kad", note="1 of 2"), "5.0", "6.0", "7.0", "8.0"))
    turned = Table("t", columns, rows, turns="dataset").turned()
    assert [column.title for column in turned.columns] == ["dataset", "number", "n", "kad, 1 of 2"]
    assert turned.rows == (
        ("RSNA", "Point", "3", "5.0"),
        ("", "Dice", "", "6.0"),
        ("SIIM", "Point", "4", "7.0"),
        ("", "Dice", "", "8.0"),
    )
    assert turned.leading == 2 and not turned.turns


def test_a_wide_group_is_split_at_its_columns_and_leading_columns_are_repeated() -> None:
    columns = (Column("model"), Column("set"), *(Column(f"c{i}", "wide") for i in range(9)))
    table = Table("t", columns, (("kad", "RSNA", *(f"{i}.123456789" for i in range(9))),))
    lines = shown(table, 40).splitlines()
    assert sum("kad" in line and "RSNA" in line for line in lines) > 2
    check_whole(table, 40)


def test_names_wider_than_the_terminal_make_a_list() -> None:
    table = class_table(2, (LONG,))
    lines = shown(table, 60).splitlines()
    assert f"model: {LONG}" in " ".join(lines) and "  Mean: 0.25, [10.1, 20.3]" in lines


def test_a_heading_of_a_group_that_is_longer_than_its_columns() -> None:
    columns = (Column("model"), Column("x", "A very long heading of a group"), Column("y", "B"))
    lines = shown(Table("t", columns, (("kad", "1.0", "2.0"),)), 80).splitlines()
    heads = next(line for line in lines if "heading" in line)
    row = next(line for line in lines if "kad" in line)
    assert heads.index("B") >= row.index("1.0") + 3 and row.rstrip().endswith("2.0")


def test_text_is_left_and_numbers_are_right() -> None:
    columns = tuple(map(Column, ("case", "finding", "Dice")))
    rows = (("c1", "Mass", "-9.1"), ("c2", "Effusion", "12.34"), ("c3", "-", "-"))
    lines = shown(Table("t", columns, rows), 80).splitlines()
    row = next(line for line in lines if "c1" in line)
    assert row == "c1    Mass       -9.1"


def test_sentences_are_wrapped_in_a_terminal_and_whole_in_a_pipe() -> None:
    text = "a sentence of many words " * 10
    for terminal, count in ((True, 7), (False, 1)):
        console = Console(width=40, file=io.StringIO(), force_terminal=terminal, color_system=None)
        print_line(console, text.strip())
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) == count and " ".join(lines) == text.strip()
        assert not terminal or all(len(line) <= 40 for line in lines)


def test_a_pipe_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console().width == 200
    monkeypatch.setenv("COLUMNS", "90")
    assert make_console().width == 90
