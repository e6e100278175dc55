"""Tables -> LaTeX with booktabs: the best of a column bold, the second best underlined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from .table import Column, Item, Table, cell_of

__all__ = ["to_latex"]

COLUMNS: Final = 11
"""Maximum columns of a part of a table; a wider table is split at its groups."""

_HEAD = """% Needs in the preamble: \\usepackage[utf8]{inputenc} \\usepackage[T1]{fontenc} \\usepackage{textcomp}
% \\usepackage{booktabs} \\usepackage{graphicx}; then \\input this file.
"""
_ESCAPES: Final = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\u2212": "$-$",
    "\u2013": "--",
    "\u2020": r"\textdagger{}",
    "\u2021": r"\textdaggerdbl{}",
    "\u00b2": r"\textsuperscript{2}",
    "\u0394": r"$\Delta$",
    "\u03c4": r"$\tau$",
    "\u2265": r"$\geq$",
    "\n": " ",
}
_SIGNS: Final = re.compile("|".join(map(re.escape, _ESCAPES)))


def to_latex(title: str, lines: Sequence[str], tables: Sequence[Table]) -> str:
    """A file to \\input: comments with facts about the run, then a table environment for each part of each table."""
    comments = "".join(f"% {' '.join(line.split())}\n" for line in (title, *lines))
    return "\n".join([comments + _HEAD, *(block for table in tables for block in _blocks(table))])


def _blocks(table: Table) -> list[str]:
    parts = list(table.parts(lambda indices: len(indices) <= COLUMNS))
    label = f"\\label{{tab:{table.name}}}" if table.name else ""
    blocks = []
    for number, part in enumerate(parts, 1):
        title = table.title if len(parts) == 1 else f"{table.title} ({number} of {len(parts)})"
        last = number == len(parts)
        notes = "\n".join(f"\\par {_escape(line)}" for line in table.notes) if last else ""
        stamps = "\n".join(f"\\par\\textbf{{{_escape(line)}}}" for line in table.stamps)
        blocks.append(
            "\n".join(
                filter(
                    None,
                    [
                        "\\begin{table}[htbp]",
                        "\\centering",
                        f"\\caption{{{_escape(title)}}}{label if number == 1 else ''}",
                        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
                        _tabular(part),
                        "}",
                        "\\footnotesize" if stamps or notes else "",
                        stamps,
                        notes,
                        "\\end{table}",
                        "",
                    ],
                )
            )
            + "\n"
        )
    return blocks


def _tabular(table: Table) -> str:
    width = len(table.columns)
    rows = [" & ".join(map(_item, row)) + r" \\" for row in table.rows]
    heads = [" & ".join(_escape(column.title) for column in table.columns) + r" \\"]
    if table.groups:
        heads.insert(0, _group_row(table.columns))
    left = max(table.leading, 1)
    begin = f"\\begin{{tabular}}{{{'l' * left}{'r' * (width - left)}}}"
    return "\n".join([begin, "\\toprule", *heads, "\\midrule", *rows, "\\bottomrule", "\\end{tabular}"])


def _group_row(columns: Sequence[Column]) -> str:
    """Headings over their columns, each with a rule below."""
    cells, rules, start = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        count = len(list(members))
        if group:
            cells.append(f"\\multicolumn{{{count}}}{{c}}{{{_escape(group)}}}")
            rules.append(f"\\cmidrule(lr){{{start}-{start + count - 1}}}")
        else:
            cells += [""] * count
        start += count
    return " & ".join(cells) + r" \\" + "\n" + " ".join(rules)


def _item(item: Item) -> str:
    cell = cell_of(item)
    text = _escape(cell.text)
    if cell.mark:
        text = f"\\{'textbf' if cell.mark == 'best' else 'underline'}{{{text}}}"
    others = [part for part in (cell.interval, cell.against_paper, cell.note) if part]
    if others:
        text += f" {{\\scriptsize {_escape('; '.join(others))}}}"
    # LaTeX would read [ or * at the start of a row as an argument of the line end before it.
    return f"{{}}{text}" if text.startswith(("[", "*")) else text


def _escape(text: str) -> str:
    return _SIGNS.sub(lambda found: _ESCAPES[found.group()], text)
