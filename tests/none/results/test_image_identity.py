"""Which images of several results are the same: case, file and patient (docs/metrics.md §8.4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from result_rows import ResultRow
from stored_counts import add_cell, other_answers, random_rows
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.reporting.studies.variants import value_rows, value_table
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.comparing.align import shared_rows
from xbench_fast.runtime.results.comparing.cell_variants import Variant, side_by_side
from xbench_fast.runtime.results.image_identity import agreed_images, image_conflicts, on_agreed_images
from xbench_fast.runtime.results.load_rows import CellRows, load_run
from xbench_fast.runtime.results.numbers.run_numbers import Results, make_results
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import Resampling, scored_pairs

FILES = {"c0": b"a" * 16, "c1": b"b" * 16, "c2": b"c" * 16, "c9": b"d" * 16, "c4": b"e" * 16}
NOTHING = dict.fromkeys(FILES)


def rows(files: dict[str, Any], patients: dict[str, Any] | None = None, seed: int = 0) -> list[ResultRow]:
    """The 30 cases of `random_rows`, of which c4 and c5 are not readable, with hashes and, if given, other patients."""
    found = [replace(row) for row in random_rows(1)]
    for row in found:
        row.image_hash = files.get(row.case_id)
        row.patient_id = row.patient_id if patients is None else patients.get(row.case_id)
    return other_answers(found, seed) if seed else found


def cells_of(path: Path, given: dict[str, list[ResultRow]], **weights: str) -> list[CellRows]:
    with RunDirectory(path) as run:
        run.begin({})
        for model, own in given.items():
            add_cell(run, model, "one", own, weights.get(model, "published"))
    return list(load_run(path).cells())


def of(cell: CellRows, case: str) -> tuple[str, bool, bytes]:
    """The patient of a case, whether it is named, and the file."""
    place = cell.case_ids.index(case)
    return cell.patients[place], bool(cell.named[place]), cell.contents[place].tobytes()


def test_a_cell_knows_patients_and_files_of_models(tmp_path: Path) -> None:
    cells = cells_of(
        tmp_path / "run", {"a": rows(FILES), "b": rows(FILES, {"c1": "x"}), "maps": rows(FILES)}, maps="maps"
    )
    a, b, maps = cells
    assert of(a, "c1") == ("p0", True, b"b" * 16) and of(a, "c3") == ("p1", True, bytes(16)) and a.unnamed == 0
    assert of(b, "c1") == ("x", True, b"b" * 16) and of(b, "c2") == ("case c2", False, b"c" * 16) and b.unnamed == 29
    assert of(a, "c4")[2] == bytes(16), "the image could not be read"
    assert not maps.contents.any(), "the hash of own maps is of the size of the image"


def test_a_named_patient_wins_over_none_where_the_file_is_the_same(tmp_path: Path) -> None:
    other = FILES | {"c1": b"z" * 16}
    a, b, maps = agreed_images(
        cells_of(
            tmp_path / "run",
            {"a": rows(FILES, {}), "b": rows(other, {"c0": "x", "c1": "y", "c3": "z"}), "maps": rows({}, {})},
            maps="maps",
        )
    )
    assert of(a, "c0") == of(b, "c0") == of(maps, "c0") == ("x", True, b"a" * 16)
    assert of(a, "c1") == ("case c1", False, b"b" * 16) and of(maps, "c1") == ("y", True, bytes(16))
    assert of(a, "c3")[:2] == of(maps, "c3")[:2] == ("z", True)
    assert of(a, "c2") == of(maps, "c2") == ("case c2", False, b"c" * 16)
    assert (a.unnamed, b.unnamed, maps.unnamed) == (28, 27, 27)
    assert of(agreed_images([b, a])[1], "c0") == of(a, "c0"), "in any order"


def test_what_two_others_disagree_on_is_left_out(tmp_path: Path) -> None:
    named = {"a": rows(FILES, {}), "b": rows(FILES, {"c0": "x", "c1": "y"}), "c": rows(FILES, {"c0": "v", "c1": "y"})}
    cells = agreed_images(cells_of(tmp_path / "run", named))
    assert [of(cell, "c0")[0] for cell in cells] == ["case c0", "x", "v"]
    assert [of(cell, "c1")[0] for cell in cells] == ["y"] * 3
    assert image_conflicts(cells).patients == {("c0", 0)} and image_conflicts(cells).images == 28
    # With one of the two alone, the patient is the one that it names.
    for other in (1, 2):
        first, second = agreed_images([cells[0], cells[other]])
        assert of(first, "c0") == of(second, "c0") and not image_conflicts([first, second]).all


def test_cells_that_know_all_are_the_same_objects(tmp_path: Path) -> None:
    """Their regions are read once."""
    cells = cells_of(tmp_path / "run", {"a": rows(FILES), "b": rows(FILES, seed=2)})
    assert all(one is two for one, two in zip(agreed_images(cells), cells, strict=True))


def test_images_of_other_files_or_patients_are_apart(tmp_path: Path) -> None:
    path = tmp_path / "run"
    given = {"a": rows(FILES), "b": rows(FILES | {"c1": b"z" * 16, "c4": b"z" * 16}), "c": rows(FILES)}
    for row in given["c"]:
        row.patient_id = "other" if row.case_id in ("c2", "c3") else row.patient_id
    for row in given["b"]:
        row.patient_id = "third" if row.case_id == "c1" else row.patient_id  # of another file: no second count
    cells = cells_of(path, given)
    run = load_run(path)
    scored = [(cell, scored_pairs(run, cell, Choices())) for cell in cells]
    for chosen, files, patients in (
        ((0, 1), {"c1"}, set()),
        ((0, 2), set(), {"c2", "c3"}),
        ((2, 1, 0), {"c1"}, {"c2", "c3"}),
    ):
        shared = shared_rows([scored[place] for place in chosen])
        assert {case for case, _ in shared.conflicts.files} == files
        assert {case for case, _ in shared.conflicts.patients} == patients
        assert set(shared.cases) == {f"c{index}" for index in range(30)} - {"c4", "c5"} - files - patients
        for place, at in zip(chosen, shared.apart, strict=True):
            cell = cells[place]
            assert {cell.case_ids[cell.case_of[image]] for image in at} == files | patients
        assert not shared.conflicts.all & {(shared.cases[image], 0) for image in shared.image_of}


def test_the_second_of_two_equal_cases_is_another_image(tmp_path: Path) -> None:
    (cell,) = cells_of(tmp_path / "run", {"a": rows(FILES)})
    twice = replace(cell, case_ids=("c1", *cell.case_ids[1:]))
    contents = twice.contents.copy()
    contents[1] += 1
    assert image_conflicts([twice, replace(twice, contents=contents)]).files == {("c1", 1)}


def test_results_without_hashes_go_with_any_file(tmp_path: Path) -> None:
    """Those of versions 2 and 3 have no such column."""
    cells_of(tmp_path / "run", {"a": rows(FILES)})
    run = load_run(tmp_path / "run")
    file = tmp_path / "run" / run.data["cells"]["a--one"]["file"]
    new = run.cell("a", "one")
    table = pq.read_table(file).drop_columns(["image_hash"])
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"xbench_checksum"}
    pq.write_table(table.replace_schema_metadata(metadata), file)
    old = load_run(tmp_path / "run").cell("a", "one")
    assert not old.contents.any() and old.patients == new.patients and not image_conflicts([old, new]).all
    assert of(agreed_images([old, new])[0], "c1") == of(new, "c1")


def test_a_case_has_one_hash(tmp_path: Path) -> None:
    damaged = rows(FILES)
    damaged[1].image_hash = b"z" * 16
    with pytest.raises(RunError, match="the rows of a case do not have one 'image_hash'"):
        cells_of(tmp_path / "run", {"a": damaged})


def results(path: Path) -> Results:
    return make_results(load_run(path), Choices(replicates=0))


def test_models_of_other_images_are_not_ranked_together_and_a_note_counts_them(tmp_path: Path) -> None:
    given = {"a": rows(FILES), "b": rows(FILES | {"c1": b"z" * 16}, seed=2), "c": rows(FILES, seed=3)}
    given["maps"], given["ones"] = rows({}, {}, seed=4), rows({}, {}, seed=5)
    cells_of(tmp_path / "run", given, maps="maps", ones="baseline")
    found = results(tmp_path / "run")
    for field in ("pointing", "auc"):
        a, b, c = (found.number(model, "one", field).basis for model in "abc")
        assert a == c != b
    (line,) = found.conflicts
    assert line.startswith("The one: other image files: 1 of 28 images, ")
    assert not found.left_out
    files = [FILES, FILES | {"c0": bytes(16)}]
    cells_of(tmp_path / "same", {"a": rows(files[0]), "b": rows(files[1]), "maps": rows({}, {})}, maps="maps")
    found = results(tmp_path / "same")
    bases = {found.number(model, "one", "pointing").basis for model in ("a", "b", "maps")}
    assert len(bases) == 1 and not found.conflicts


def test_a_baseline_of_other_patients_is_left_out(tmp_path: Path) -> None:
    other = {f"c{index}": "x" for index in range(30)}
    cells_of(tmp_path / "run", {"a": rows(FILES), "ones": rows({}, other)}, ones="baseline")
    found = results(tmp_path / "run")
    assert "or names other patients" in found.left_out["ones", "one"]
    assert not found.conflicts and set(found.patients["one"].number) == {f"p{index}" for index in range(15)}


def test_datasets_do_not_lend_each_other_anything(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as run:
        run.begin({})
        add_cell(run, "a", "one", rows(FILES, {}))
        add_cell(run, "a", "two", rows(FILES))
    (one, two), lines = on_agreed_images(list(load_run(tmp_path / "run").cells()))
    assert one.unnamed == 30 and two.unnamed == 0 and not lines


def test_a_study_of_two_runs_counts_other_images(tmp_path: Path) -> None:
    variants = []
    for name, own in (("old", rows(FILES)), ("new", rows(FILES | {"c1": b"z" * 16}, seed=2))):
        (cell,) = cells_of(tmp_path / name, {"a": own})
        variants.append(Variant(name, cell, scored_pairs(load_run(tmp_path / name), cell, Choices())))
    group = side_by_side("a", "The one", variants, Resampling(0))
    assert group is not None
    table = value_table(group, value_rows(group, group.by_class(), "class"), "class", "by class", ())
    line = "other image files: 1 of 28 images, left out, as they are not the same for all variants"
    assert line in table.notes and not any(note.startswith("other patients") for note in table.notes)
