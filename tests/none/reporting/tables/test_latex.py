"""Tables for a paper: signs, sizes, splits, captions, and that pdfLaTeX takes what is written."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from xbench_fast.engines.file_names import label_stems
from xbench_fast.runtime.reporting.tables.latex import TEXT_WIDTH, WRITTEN, latex_files
from xbench_fast.runtime.reporting.tables.latex_text import escaped, number_text
from xbench_fast.runtime.reporting.tables.table import MEAN_OF_DATASETS, Cell, Column, Table

MODELS = (
    "kad",
    "naïve-Ödem_50% & <b>",
    "肺炎 model",
    "a-model-with-a-name-of-more-than-fifty-signs-and-no-spaces_at-all",
)


def to_latex(title: str, lines: list[str], tables: list[Table], width: float = TEXT_WIDTH) -> str:
    """The file of all tables."""
    return latex_files(title, lines, tables, width)["tables.tex"]


def body(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("%"))


def wide(groups: int, rows: int = 4, **more: object) -> Table:
    """A table of three numbers for each group, with intervals and the paper's values."""
    columns = [Column("model")]
    numbers = (("Point", "pointing"), ("Dice*", "dice_best"), ("IoU*", "iou_best"))
    columns += [Column(title, f"Set {group}", key) for group in range(groups) for title, key in numbers]
    cells = [Cell("44.12", "[40.1, 48.0]", ("best", "second", "")[i % 3], "39.07", "+5.05") for i in range(3 * groups)]
    body = [(MODELS[i % len(MODELS)] + (f" {i}" if i > 3 else ""), *cells) for i in range(rows)]
    given = {"stamps": ("kad: stand-in weights",), "notes": ("* in-sample",), "name": "table1", "caption": "Grounding."}
    return Table("Table 1: grounding", tuple(columns), tuple(body), **{**given, **more})  # type: ignore[arg-type]


def classes(count: int, models: int = 3) -> Table:
    names = [f"Finding {i}" for i in range(count)]
    rows = tuple((MODELS[i], *(Cell("5.00", "[0.1, 9.9]") for _ in names)) for i in range(models))
    return Table("Per class", (Column("model"), *map(Column, names)), rows, name="pointing-x_y", turns="class")


def test_numbers_have_a_real_minus_and_names_keep_their_hyphen() -> None:
    assert number_text("-0.6") == "$-$0.6" and number_text("[-1.2, -0.3]") == "[$-$1.2, $-$0.3]"
    assert number_text("kad-224") == "kad-224" and number_text("-") == "--" and number_text("n/a (1 patient)")[0] == "n"
    assert escaped("--protocol") == "-{}-protocol" and escaped("a\nb") == "a b"
    assert escaped("18.52\u2020") == r"18.52$^\dagger$" and escaped("CLIP\u2021") == r"CLIP$^\ddagger$"


def test_every_letter_is_set_or_named() -> None:
    assert escaped("Ödem o\u0308dem Łódź") == "Ödem ödem Łódź"
    assert escaped("肺") == r"{\ifdefined\Umathcode 肺\else [U+80BA]\fi}"
    assert escaped("a\x07b") == "a b" and escaped("a\ud800b") == "a[U+D800]b"


def test_a_table_is_split_and_never_shrunk() -> None:
    text = body(to_latex("T", [], [wide(7)], 345))
    parts = text.count("\\begin{tabular}")
    assert parts > 2 and "resizebox" not in text and "scriptsize" not in text
    assert min(float(size) for size in re.findall(r"\\fontsize\{([\d.]+)\}", text)) == 7
    assert text.count("\\caption[{Grounding}]{Grounding. kad: stand-in weights.}\\label{tab:table1}") == 1
    assert text.count("Grounding (continued)") == parts - 1 and text.count("* in-sample.") == 1
    one = body(to_latex("T", [], [wide(7)], 2000))
    assert one.count("\\begin{tabular}") == 1 and "\\fontsize{8}" in one
    every = re.findall(r"\\begin\{tabular\}\{@\{\}l(r+)@\{\}\}", text)
    assert sum(map(len, every)) == 21


def test_long_tables_are_split_at_their_rows() -> None:
    text = body(to_latex("T", [], [wide(1, rows=30)], 345))
    parts = re.findall(r"\\midrule\n(.*?)\\bottomrule", text, re.DOTALL)
    assert len(parts) > 2 and all(part.count(r"\\") <= 28 for part in parts)
    assert sum(part.count("44.12") for part in parts) == 90


def test_many_classes_are_rows_and_few_are_columns() -> None:
    many, few = (body(to_latex("T", [], [classes(count)], 345)) for count in (21, 3))
    assert "\nFinding 20 & 5.00" in many and "class & kad" in many
    assert "model & Finding 0" in few and "\\label{tab:pointing-x-y}" in few


def test_intervals_stand_below_beside_or_nowhere() -> None:
    table = wide(1, rows=1, notes=("[low, high]: 95 %",), caption="What. Brackets: 95 % intervals of patients. Last.")
    below, inline, none = (body(to_latex("T", [], [table.with_intervals(how)])) for how in ("below", "inline", "none"))  # type: ignore[arg-type]
    assert "\n & \\xbsub{[40.1, 48.0]}" in below
    assert "\\textbf{44.12} \\xbsub{[40.1, 48.0]}" in inline and "\n & \\xbsub{[40.1" not in inline
    assert "[40.1" not in none and "low, high" not in none and "{What. Last." in none and "44.12" in none


def test_columns_are_chosen_in_order() -> None:
    columns = [
        Column("model"),
        *(Column(k, g, k) for g in ("a", "b", MEAN_OF_DATASETS) for k in ("pointing", "iou_best")),
    ]
    columns.append(Column("delta", MEAN_OF_DATASETS, "delta_dice"))
    table = Table("t", tuple(columns), (tuple(map(str, range(8))),))

    def kept(*keys: str) -> list[str]:
        return [str(item) for item in table.chosen(keys).rows[0]]

    assert kept("iou_best", "pointing") == ["0", "2", "1", "4", "3"]
    assert kept("pointing", "mean") == ["0", "1", "3", "5"]
    assert kept("pointing", "delta_dice") == ["0", "1", "3", "7"]
    assert table.chosen(["auc"]) is table, "a table that has none of the numbers stays whole"


def test_notes_without_room_are_comments() -> None:
    long = "no difference to the paper: " + ", ".join(f"kad on set {i}" for i in range(60))
    text = to_latex("T", [], [wide(1, notes=("short", long))])
    marked = body(to_latex("T", [], [wide(1, notes=(*["n" * 250] * 9, "\u2021 printed"))]))
    assert "ddagger$ printed." in marked, "what a mark means is never left out"
    assert "short." in body(text) and "set 59" not in body(text) and f"% Note: {long}." in text


def test_a_legend_and_what_the_author_knows_are_comments() -> None:
    """The paper's author knows whose weights and prompts these are; other stamps and notes stay in the paper."""
    known = ("mine, kad: own weights: nothing says that they are published ones", "clip: stand-in weights")
    notes = ("prompts that are not the authors' official ones (docs): mine: own", "not asked for on x: Mass")
    text = to_latex("T", [], [replace(wide(1, notes=notes), stamps=known, legend=("[low, high]: an interval",))])
    shown = body(text)
    assert "own weights" not in shown and "official" not in shown and "interval" not in shown
    assert "clip: stand-in weights." in shown and "not asked for on x: Mass." in shown
    for line in (f"% Note: {known[0]}.", f"% Note: {notes[0]}.", "%   [low, high]: an interval"):
        assert line in text.splitlines()


def test_each_table_has_a_file_that_says_what_it_needs() -> None:
    files = latex_files("All", ["run: today"], [wide(2), classes(2, 1)], 345)
    assert list(files) == ["tables.tex", "latex/table1.tex", "latex/pointing-x-y.tex"]
    plain, letters = files["latex/pointing-x-y.tex"], files["latex/table1.tex"]
    assert WRITTEN in plain and "preamble: \\usepackage{booktabs}\n" in plain
    assert "\\usepackage[utf8]{inputenc} \\usepackage[T1]{fontenc} \\usepackage{booktabs}" in letters
    assert label_stems(["dice-Mein Datensatz/Ö_2"]) == ["dice-mein-datensatz-o-2"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_pdflatex_takes_every_table_within_the_stated_width(tmp_path: Path) -> None:
    """With the stated preamble alone: no error, nothing too wide, nothing too high for its page."""
    tables = [wide(7), wide(2, rows=30), classes(21), classes(4), Table("Empty", (Column("x"),), ())]
    text = to_latex("All", ["50 % of it"], tables, 345)
    (tmp_path / "tables.tex").write_text(text, encoding="utf-8")
    stated = re.search(r"preamble: (.*)", text)
    assert stated
    main = "\\documentclass{article}\n%s\n\\begin{document}\n\\input{tables}\n\\end{document}\n"
    (tmp_path / "main.tex").write_text(main % stated[1], encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-draftmode", "-interaction=nonstopmode", "main.tex"],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
    )
    said = (tmp_path / "main.log").read_text(errors="replace")
    assert done.returncode == 0, said[-3000:]
    assert not re.search(r"^!|Overfull|too large for page", said, re.MULTILINE), said[-3000:]
