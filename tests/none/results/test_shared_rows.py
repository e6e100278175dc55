"""Which rows several cells share, and where two results may be subtracted."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored_counts import add_cell, other_answers, random_rows
from xbench_fast.engines.errors import RunError
from xbench_fast.metrics_gpu.grounding.protocols import PROTOCOLS
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.comparability import check_protocols, pair_keys, protocols_in
from xbench_fast.runtime.results.comparing.align import shared_rows
from xbench_fast.runtime.results.load_rows import CellRows, load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import ScoredPairs, scored_pairs
from xbench_fast.runtime.results.storage import region_digests


@pytest.fixture
def cells(tmp_path: Path) -> list[tuple[CellRows, ScoredPairs]]:
    """Three cells: the second lacks c3 and a class, the third was told another label and another region of c7."""
    first = random_rows(1)
    second = [row for row in other_answers(first, 2) if row.case_id != "c3" and row.finding != "Edema"]
    third = other_answers(first, 3)
    for row in third:
        if (row.case_id, row.finding) == ("c8", "Effusion"):
            row.label = 1 - (row.label or 0)
        if row.case_id == "c11" and row.region is not None:  # of the same size, elsewhere
            row.region = row.region[28:] + row.region[:28]
    with RunDirectory(tmp_path / "run") as run:
        run.begin({})
        for name, rows in (("a", first), ("b", second), ("c", third)):
            add_cell(run, name, "one", rows, findings=list(dict.fromkeys(row.finding for row in rows)))
    stored = load_run(tmp_path / "run")
    return [(cell, scored_pairs(stored, cell, Choices())) for cell in stored.cells()]


def test_shared_rows_of_three_cells(cells: list[tuple[CellRows, ScoredPairs]]) -> None:
    shared = shared_rows(cells)
    assert shared.findings == ("Mass", "Effusion")
    assert set(shared.cases) == {f"c{index}" for index in range(30)} - {"c3", "c4", "c5"}
    assert ("c8", "Effusion") in shared.names(np.argwhere(shared.other_labels))
    assert (shared.labels[shared.other_labels] == -1).all() and shared.other_labels.sum() == 1
    changed = shared.names(shared.other_regions)
    assert changed and {case for case, _ in changed} == {"c11"}
    for place, (cell, scored) in enumerate(cells):
        rows, pairs = shared.cut(place, cell, scored)
        keys = set(shared.pair_names(np.arange(len(shared.image_of))))
        counted = zip(cell.case_of[cell.image_of].tolist(), cell.class_of.tolist(), strict=True)
        own = {(cell.case_ids[case], cell.findings[c]): i for i, (case, c) in enumerate(counted)}
        assert keys <= own.keys() and len(pairs.counts) == len(keys)
        for pair, name in enumerate(shared.pair_names(np.arange(len(keys)))):
            assert pairs.counts.argmax[pair] == scored.counts.argmax[own[name]]
        images = {cell.case_ids[case]: image for image, case in enumerate(cell.case_of)}
        for image, case in enumerate(rows.case_ids):
            column = cell.findings.index("Effusion")
            assert rows.logits[image, 1] == cell.logits[images[case], column]
        assert not keys & set(changed) and (rows.truth == cell.truth[scored.places[shared.pairs[place]]]).all()


def test_a_case_listed_twice_is_two_images(cells: list[tuple[CellRows, ScoredPairs]]) -> None:
    cell, pairs = cells[0]
    twice = replace(cell, case_ids=("c1", *cell.case_ids[1:]))
    shared = shared_rows([(twice, pairs), (twice, pairs)])
    assert shared.cases.count("c1") == 2 and len(shared.image_of) == len(pairs.counts)
    assert [place.tolist() for place in shared.images] == [list(range(len(cell.logits)))] * 2


def test_the_key_of_a_pair_is_of_its_class(cells: list[tuple[CellRows, ScoredPairs]]) -> None:
    """Two findings can have one region."""
    cell, scored = cells[0]
    other = replace(cell, findings=tuple(f"other {name}" for name in cell.findings))
    assert not np.isin(pair_keys(cell, scored), pair_keys(other, scored)).any()


def test_blocks_stand_in_the_order_of_the_protocols() -> None:
    assert protocols_in(["mavl", "chexlocalize", "paper", "default", "mavl"]) == tuple(
        name for name in PROTOCOLS if name not in ("medklip", "biovil")
    )
    assert list(PROTOCOLS) != sorted(PROTOCOLS)


def test_cells_of_different_protocols_are_refused(cells: list[tuple[CellRows, ScoredPairs]]) -> None:
    one = cells[0][0]
    other = replace(one, protocol="mavl")
    check_protocols("a on one", [("x", one), ("y", one)])
    with pytest.raises(RunError, match="x was evaluated by protocol 'default', y by 'mavl', and their numbers cannot"):
        check_protocols("a on one", [("x", one), ("y", other)])


def test_two_results_are_tested_in_one_place(root: Path) -> None:
    """Sign flips and DeLong are imported in comparing/ and nowhere else in runtime: for two results, and for answers
    of two models to the same images. So is Holm, but for studies whose p values are of no two results."""
    found = set()
    for path in (root / "runtime").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if {"sign_flip_tests", "holm", "auc_difference"} & set(names):
                found.add(path.relative_to(root).as_posix())
            if isinstance(node, ast.ImportFrom) and path.parent.name == "comparing":
                assert not {"reporting", "studies"} & set((node.module or "").split(".")), path
    of_two = {"runtime/results/comparing/score_differences.py", "runtime/results/comparing/difference.py"}
    studies = {"gap/finding_points", "groups/contrasts", "wording/wordings"}  # quadrants, models, changes of 10 %
    assert found == of_two | {f"runtime/reporting/studies/{name}.py" for name in studies}


def test_regions_that_are_not_stored_are_told_apart_by_their_size(tmp_path: Path) -> None:
    """As in files of earlier versions."""
    pq.write_table(pa.table({"case_id": ["a", "b", "c"]}), tmp_path / "old.parquet")
    one, same, other = region_digests(tmp_path / "old.parquet", np.ones(3, bool), np.array([9, 9, 8], np.int32))
    assert one == same != other


def test_regions_are_told_apart_in_parts_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region's digest does not depend on the part of the file in which it is read."""
    regions = [b"one", None, b"two", b"one", None, b"three", b"one"]
    pq.write_table(pa.table({"region": pa.array(regions, pa.binary())}), tmp_path / "new.parquet")
    rows = np.array([region is not None for region in regions])
    asked = tmp_path / "new.parquet", rows, np.array([3, 3, 3, 5, 4], np.int32)
    whole = region_digests(*asked)
    assert [whole.tolist().index(digest) for digest in whole] == [0, 1, 0, 3, 4], "the size counts too"
    monkeypatch.setattr("xbench_fast.runtime.results.storage._ROWS", 2)
    assert region_digests(*asked).tolist() == whole.tolist()
