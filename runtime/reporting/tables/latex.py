"""Tables -> LaTeX with booktabs, to be \\input: the best of a column bold, the second best underlined.

LaTeX does not say how wide a page is, so columns are measured here with the widths of Computer Modern, the widest of
the usual fonts. A table that is too wide for 7 pt is split, never shrunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, product
from typing import Final

from ....engines.file_names import label_stems
from ....engines.visible_text import visible_line
from .latex_text import escaped, number_text, text_width
from .stamps import OWN_WEIGHTS, UNOFFICIAL_PROMPTS
from .table import Item, Table, cell_of

TEXT_WIDTH: Final = 345
"""Points that a table may be wide: the text width of the class article with 10 pt, narrower than that of others."""

NARROW: Final = 235
"""Points of a column of most two-column papers; a wider table is a table*."""

WRITTEN: Final = "Written by xbench-fast."
"""Stands in every file."""

_SIZES: Final = ((8.0, 3.0), (8.0, 2.0), (7.0, 2.0), (7.0, 1.5))
"""Font size and half the space between columns, the best first."""

_LINES: Final = 28  # of a part of a table, so that it fits on a page with its caption and notes
_NOTES: Final = 1400  # characters of notes below a table; other notes, and longer ones, are comments in the file
_NOTE: Final = 260
_KNOWN: Final = (OWN_WEIGHTS, UNOFFICIAL_PROMPTS)
"""What the author of a paper knows of the models that it presents: a comment in the file."""
_WORDS: Final = 34  # characters of a line of text
_PAGE: Final = 6  # floats between two \clearpage in a file of all tables, as LaTeX holds few at once

_PREAMBLE: Final = "\\usepackage{booktabs}"
_LETTERS: Final = "\\usepackage[utf8]{inputenc} \\usepackage[T1]{fontenc} "
_TITLE: Final = re.compile(r"^Table \d+: ")


def latex_files(title: str, lines: Sequence[str], tables: Sequence[Table], width: float) -> dict[str, str]:
    """File name -> content to \\input: all tables in tables.tex, and in latex/ each in a file of its own.

    A file has comments with facts about the run, then a float for each part of each table. width: points that a table
    may be wide.
    """
    stems = label_stems([table.name or f"table-{number}" for number, table in enumerate(tables, 1)])
    labelled = [replace(table, name=stem) if table.name else table for table, stem in zip(tables, stems, strict=True)]
    floats = [(table, _floats(table, width)) for table in labelled]
    return {
        "tables.tex": _document(title, lines, floats),
        **{f"latex/{stem}.tex": _document(one[0].title, lines, [one]) for stem, one in zip(stems, floats, strict=True)},
    }


def _comment(line: str) -> str:
    """A text on one line, without a sign that LaTeX refuses."""
    return visible_line(" ".join(line.split()))


def _document(title: str, lines: Sequence[str], floats: Sequence[tuple[Table, list[tuple[str, float]]]]) -> str:
    needed = max((width for _, parts in floats for _, width in parts), default=0.0)
    body = ""
    count = 0
    for table, parts in floats:
        known = [_sentence(line) for line in table.stamps if line.endswith(_KNOWN)]
        body += "".join(f"% Note: {_comment(note)}\n" for note in (*known, *_notes(table)[1]))
        if table.legend:
            body += f"% {_comment(table.legend_title)}:\n"
            body += "".join(f"%   {_comment(line)}\n" for line in table.legend)
        for text, _ in parts:
            body += f"\n{text}"
            count += 1
            body += "\\clearpage\n" if count % _PAGE == 0 and len(floats) > 1 else ""
    plain = all(text.isascii() for _, parts in floats for text, _ in parts)
    comments = [
        *map(_comment, (title, *lines)),
        "",
        f"{WRITTEN} Needs in the preamble: {'' if plain else _LETTERS}{_PREAMBLE}",
        f"and a text width of {needed:.0f} pt (report --text-width chooses it); no text is smaller than 7 pt.",
    ]
    return "".join(f"% {line}".rstrip() + "\n" for line in comments) + body


def _floats(table: Table, width: float) -> list[tuple[str, float]]:
    """The floats of a table and their widths, turned if it can be and then has fewer; the largest type that needs the
    fewest parts."""
    forms = (table, table.turned()) if table.turns == "class" else (table,)
    best: list[Table] = []
    chosen = _SIZES[0]
    for form, (size, gap) in product(forms, _SIZES):
        if len(best) == 1:
            break
        parts = [part for wide in form.parts(_measure(form, size, gap), width) for part in _short(wide)]
        if not best or len(parts) < len(best):
            best, chosen = parts, (size, gap)
    widths = [_measure(part, *chosen)(range(len(part.columns))) for part in best]
    return [
        (_float(part, chosen, (number, len(best)), own), own)
        for number, (part, own) in enumerate(zip(best, widths, strict=True), 1)
    ]


def _measure(table: Table, size: float, gap: float) -> Callable[[Sequence[int]], float]:
    """The width of columns of a table in points; size: of its letters, gap: half the space between columns."""
    widths = []
    for index, column in enumerate(table.columns):
        cells = [text_width(column.title, size)]
        for row in table.rows:
            bold = 1.17 if cell_of(row[index]).mark else 1.0
            for place, line in enumerate(_lines(row[index])):
                cells.append(text_width(line, size if place == 0 else 7.0) * (bold if place == 0 else 1.0))
        widths.append(max(cells))
    return partial(table.width, widths=widths, gap=2 * gap, size=partial(text_width, size=size))


def _short(table: Table) -> Iterator[Table]:
    """The table split into parts of at most `_LINES` lines, where a row has a name of its own."""
    rows: list[tuple[Item, ...]] = []
    used = 0
    for row in table.rows:
        height = max(len(_lines(item)) for item in row)
        if rows and used + height > _LINES and cell_of(row[0]).text:
            yield replace(table, rows=tuple(rows))
            rows, used = [], 0
        rows.append(row)
        used += height
    yield replace(table, rows=tuple(rows))


def _float(table: Table, look: tuple[float, float], place: tuple[int, int], width: float) -> str:
    """A part of a table; look: size and gap; place: its number, and that of the last part."""
    (size, gap), (number, count) = look, place
    environment = "table*" if width > NARROW else "table"
    label = f"\\label{{tab:{table.name}}}" if table.name else ""
    title = escaped(_TITLE.sub("", table.title).capitalize() if _TITLE.match(table.title) else table.title)
    if number == 1:
        stamps = (line for line in table.stamps if not line.endswith(_KNOWN))
        told = " ".join(map(_sentence, (table.caption or table.title, *stamps)))
        caption = f"\\caption[{{{title}}}]{{{escaped(told)}}}{label}"
    else:
        caption = f"\\addtocounter{{table}}{{-1}}\n\\caption[]{{{title} (continued)}}"
    notes = _notes(table)[0] if number == count else []
    return "\n".join(
        [
            f"\\begin{{{environment}}}[{'tp' if environment == 'table*' else 'htbp'}]",
            "\\providecommand{\\xbsub}[1]{{\\fontsize{7}{8.2}\\selectfont #1}}",
            "\\centering",
            f"{caption}\n\\par\\smallskip",
            f"\\fontsize{{{size:g}}}{{{1.2 * size:g}}}\\selectfont",
            f"\\setlength{{\\tabcolsep}}{{{gap:g}pt}}",
            _tabular(table),
            *(["\\par\\smallskip", "\\fontsize{7}{8.2}\\selectfont\\raggedright"] if notes else []),
            *(f"{escaped(note)}\\par" for note in notes),
            f"\\end{{{environment}}}",
            "",
        ]
    )


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _notes(table: Table) -> tuple[list[str], list[str]]:
    """The notes that stand below the table, those of marks first, and the notes for which there is no room."""
    shown: list[str] = []
    rest: list[str] = []
    for note in sorted(table.notes, key=lambda note: not note.startswith(("*", "\u2020", "\u2021"))):
        room = not note.startswith(_KNOWN) and len(note) <= _NOTE and sum(map(len, shown)) + len(note) <= _NOTES
        (shown if room else rest).append(_sentence(note.replace(" (italic in Markdown)", "")))
    return shown, rest


def _tabular(table: Table) -> str:
    """The tabular environment."""
    kinds = ["l" if i < table.leading or table.is_text(i) else "r" for i in range(len(table.columns))]
    heads = [" & ".join(escaped(column.title) for column in table.columns) + r" \\"]
    if table.groups:  # headings over their columns, each with a rule below
        cells, rules, start = [], [], 1
        for group, members in groupby(table.columns, key=lambda column: column.group):
            count = len(list(members))
            cells += [f"\\multicolumn{{{count}}}{{c}}{{{escaped(group)}}}"] if group else [""] * count
            rules += [f"\\cmidrule(lr){{{start}-{start + count - 1}}}"] if group else []
            start += count
        heads.insert(0, " & ".join(cells) + r" \\" + "\n" + " ".join(rules))
    rows = [line for row in table.rows for line in _row(row)]
    begin = f"\\begin{{tabular}}{{@{{}}{''.join(kinds)}@{{}}}}"
    return "\n".join([begin, "\\toprule", *heads, "\\midrule", *rows, "\\bottomrule", "\\end{tabular}"])


def _row(row: Sequence[Item]) -> Iterator[str]:
    cells = [_lines(item) for item in row]
    count = max(map(len, cells), default=1)
    for place in range(count):
        parts = []
        for item, lines in zip(row, cells, strict=True):
            text = lines[place] if place < len(lines) else ""
            if place or not text:
                name = place < len(_wrapped(cell_of(item).text))  # a long name goes on in its own size
                parts.append((number_text(text) if name else f"\\xbsub{{{number_text(text)}}}") if text else "")
            else:
                cell = cell_of(item)
                own = cell.text if text.startswith(cell.text) else text
                value, rest = number_text(own), text.removeprefix(own).strip()
                if cell.mark:  # only the value itself is marked
                    value = f"\\{'textbf' if cell.mark == 'best' else 'underline'}{{{value}}}"
                # LaTeX would read [ or * at the start of a row as an argument of the line end before it.
                guard = "{}" if value.startswith(("[", "*")) else ""
                parts.append(f"{guard}{value}" + (f" \\xbsub{{{number_text(rest)}}}" if rest else ""))
        yield " & ".join(parts) + r" \\"
    if count > 1:
        yield "\\addlinespace[1.5pt]"


def _lines(item: Item) -> list[str]:
    """The lines of a cell: its value, its interval with the method, the paper's value, and what else is said of it."""
    cell = cell_of(item)
    around = f"{cell.interval} {cell.note}".strip() if cell.interval else ""
    rest = [part for part in (cell.against_paper, "" if around else cell.note) if part]
    if cell.inline and around:
        return [f"{cell.text} {around}", *rest]
    first, *more = _wrapped(cell.text) if cell.text else [""]
    return [first, *more, *(part for part in (around, *rest) if part)] if first else [around or "", *rest]


def _wrapped(text: str) -> list[str]:
    """A long text in lines, broken at spaces and after the signs that join the parts of a name."""
    lines = [""]
    for word in re.split(r"(?<=[ _/:-])", text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > _WORDS:
            lines.append("")
        lines[-1] += word
    return [line.strip() for line in lines]
