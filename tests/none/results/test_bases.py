"""What decides which rows stand together: positives, limits, the basis of a cell, and the basis of most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_rows import ResultRow
from stored_counts import add_cell, random_rows
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.comparability import find_basis, on_one_basis
from xbench_fast.runtime.results.load_rows import CellRows, StoredRun, load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import scored_pairs


def without(row: ResultRow) -> ResultRow:
    """The same image without the finding."""
    nothing = dict.fromkeys(("area", "overlap", "hit", "argmax", "degenerate", "region", "frame", "saliency"))
    return replace(row, label=0, region_area=0, **nothing)


def stored(path: Path, rows: list[ResultRow], **details: Any) -> tuple[StoredRun, CellRows]:
    with RunDirectory(path) as run:
        run.begin({})
        add_cell(run, "kad", "one", rows, **details)
    loaded = load_run(path)
    return loaded, loaded.cell("kad", "one")


@pytest.mark.parametrize(
    ("bases", "groups", "expected"),
    [
        ("abb", None, [False, True, True]),
        ("abba", None, [True, False, False, True]),
        ("aabbb", "xxxyy", [True, True, False, True, True]),
    ],
)
def test_the_basis_of_most_decides_and_of_equally_many_the_first(
    bases: str, groups: str | None, expected: list[bool]
) -> None:
    assert on_one_basis(list(bases), None if groups is None else list(groups)) == expected


def test_a_region_makes_a_finding_positive_without_a_label(tmp_path: Path) -> None:
    rows = random_rows(1)
    place = next(i for i, row in enumerate(rows) if row.region_area)
    rows[place] = replace(rows[place], label=None)
    _, cell = stored(tmp_path / "run", rows)
    case, finding = divmod(place, len(cell.findings))
    image = cell.case_of.tolist().index(case)
    assert cell.labels[image, finding] == -1 and cell.positive[case, finding]
    assert cell.positive.sum() == sum(row.label == 1 or bool(row.region_area) for row in rows)


@pytest.mark.parametrize(("every", "expected"), [(30, None), (60, 30), (None, 30)])
def test_a_limit_counts_where_it_left_cases_out(every: int | None, expected: int | None, tmp_path: Path) -> None:
    known = {} if every is None else {"dataset_cases": every}
    _, cell = stored(tmp_path / "run", random_rows(1), limit=30, **known)
    assert cell.limit == expected


def test_which_of_two_readings_of_an_image_a_region_is_of_belongs_to_its_basis(tmp_path: Path) -> None:
    """Two readers of one image, of whom one marks nothing: another order of theirs is another truth of each."""
    rows = random_rows(1)
    first = [row for row in rows if row.case_id == "c0"]
    second = [without(row) for row in first]
    rest = [row for row in rows if row.case_id != "c0"]
    assert any(row.region_area for row in first)
    bases = []
    for name, order in (("there", [first, second]), ("back", [second, first])):
        run, cell = stored(tmp_path / name, [*(replace(row) for rows in order for row in rows), *rest])
        bases.append(find_basis(cell, scored_pairs(run, cell, Choices())))
    assert bases[0].pairs.keys() == bases[1].pairs.keys() and bases[0].pairs != bases[1].pairs
