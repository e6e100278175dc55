"""Tables -> LaTeX, Markdown and the terminal: nothing is lost, nothing escapes."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from xbench_fast.runtime.reporting.tables.console import print_table
from xbench_fast.runtime.reporting.tables.latex import TEXT_WIDTH, latex_files
from xbench_fast.runtime.reporting.tables.markdown_csv import to_markdown
from xbench_fast.runtime.reporting.tables.table import Cell, Column, Item, Table

HOSTILE = 'a&b_c%d$e#f{g}h~i^j\\k<l>m|n"o*p`q[r]s\nt'
FULL = Cell("44.12", "[40.1, 48.0]", "best", "42.06\u2020", "+2.06", "Wilson [39.0, 49.2]")


def to_latex(title: str, lines: list[str], tables: list[Table], width: float = TEXT_WIDTH) -> str:
    """The file of all tables."""
    return latex_files(title, lines, tables, width)["tables.tex"]


def table(groups: int = 2, **more: object) -> Table:
    columns = [Column("model"), *(Column(title, f"set {i}") for i in range(groups) for title in ("Point", "Dice*"))]
    numbers: list[Item] = [FULL, Cell("9.00", mark="second"), *["-"] * (2 * groups - 2)]
    rows: tuple[tuple[Item, ...], ...] = (("n", *[""] * (2 * groups)), ("[kad", *numbers[: 2 * groups]))
    return Table("A title", tuple(columns), rows, ("a stamp",), ("a note",), "name")


def ungrouped(text: str) -> Table:
    return Table(text, (Column(text), Column("x")), ((text, Cell(text, text, "", text, text, text)),), (text,), (text,))


def environments(text: str) -> list[str]:
    """Names of the environments, each of which must end where it should."""
    stack, seen = [], []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if kind == "begin":
            stack.append(name)
            seen.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    return seen


def balanced(text: str) -> bool:
    depth = 0
    for sign in re.sub(r"\\\\|\\[{}]", "", text):
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    return depth == 0


@pytest.mark.parametrize("groups", [1, 2, 7])
def test_latex_is_well_formed(groups: int) -> None:
    text = to_latex("Report", ["fact one", "50 % of\nit"], [table(groups)], 400)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    found, parts = environments(body), {1: 1, 2: 1, 7: 2}[groups]
    assert found[1::2] == ["tabular"] * parts and {*found[::2]} <= {"table", "table*"} and balanced(body)
    for spec, grid in re.findall(r"\\begin\{tabular\}\{@\{\}(\w+)@\{\}\}\n(.*?)\\end\{tabular\}", body, re.DOTALL):
        assert grid.startswith("\\toprule") and grid.rstrip().endswith("\\bottomrule") and "\\midrule" in grid
        for line in [line for line in grid.splitlines() if line.endswith("\\\\")]:
            cells = re.split(r"(?<!\\)&", line)
            spans = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert len(cells) + spans == len(spec), line
        for first, last in re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", grid):
            assert 1 < int(first) <= int(last) <= len(spec)
    assert body.count("\\label{tab:name}") == body.count("a note.") == body.count("a stamp.") == 1
    assert body.count("A title (continued)") == body.count("\\addtocounter{table}{-1}") == parts - 1
    assert "\n{}[kad & \\textbf{44.12} & \\underline{9.00}" in body
    assert " & \\xbsub{[40.1, 48.0] Wilson [39.0, 49.2]} & " in body
    assert " & \\xbsub{paper 42.06$^\\dagger$ (+2.06)} & " in body
    assert all(line.startswith("%") for line in text.splitlines()[:4]) and "50 % of it" in text


def test_latex_escapes_whatever_a_name_holds() -> None:
    text = to_latex("Report", [], [ungrouped(HOSTILE)])
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert environments(body) == ["table*", "tabular"] and balanced(body)
    escaped = (
        r"a\&b\_c\%d\$e\#f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k\textless{}l\textgreater{}m"
        r"\textbar{}n''o*p`q[r]s t"
    )
    assert body.count(escaped) == 9  # two long ones are broken after a hyphen
    left = re.sub(r"\\([a-zA-Z]+|.)", "", body.replace("}[1]{{", "").replace("#1}}", ""))
    assert not set('~^#<>|"_%') & set(left)


def test_latex_writes_the_signs_of_reports() -> None:
    body = to_latex("R", [], [ungrouped("\u22121 \u2013 \u2021 \u0394 \u03c4 \u2265 R\u00b2")])
    assert "$-$1 -- $^\\ddagger$ $\\Delta$ $\\tau$ $\\geq$ R\\textsuperscript{2}" in body


def test_markdown_marks_and_escapes() -> None:
    text = to_markdown("Report", ["a_fact"], [table(1)])
    assert text.startswith("# Report\n\n- a\\_fact\n\n## A title\n\n> **a stamp**")
    assert (
        "| \\[kad | **44.12**<br>\\[40.1, 48.0\\]<br>paper 42.06\u2020 (+2.06)<br>Wilson \\[39.0, 49.2\\] | *9.00* |"
        in text
    )
    hostile = to_markdown("R", [], [ungrouped(HOSTILE)])
    rows = [line for line in hostile.splitlines() if line.startswith("|")]
    assert len(rows) == 3 and all(len(re.split(r"(?<!\\)\|", row)) == 4 for row in rows)
    assert "<l" not in hostile and "&amp;b" in hostile


def test_the_terminal_shows_all_parts_of_a_cell() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    print_table(console, table(2))
    shown = console.export_text()
    for part in ("44.12", "[40.1, 48.0]", "paper 42.06\u2020 (+2.06)", "Wilson [39.0, 49.2]", "a stamp", "a note"):
        assert shown.count(part) == 1


def test_the_terminal_prints_brackets_as_they_are() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    print_table(console, ungrouped("[bold]x[/bold]"))
    assert console.export_text().count("[bold]x[/bold]") == 10


def test_wide_tables_are_broken_at_groups() -> None:
    columns = [Column("model"), *(Column(title, f"set {i}") for i in range(6) for title in ("Point", "Dice"))]
    wide = Table("wide", tuple(columns), (tuple(["name"] + [f"{i}.00" for i in range(12)]),), ("stamped",), ("noted",))
    for width, parts in ((200, 1), (60, 2)):
        console = Console(width=width, record=True, file=io.StringIO())
        print_table(console, wide)
        text = console.export_text()
        assert text.count("name") == parts and text.count("stamped") == text.count("noted") == 1
        assert all(f" {i}.00" in text for i in range(12))
