"""docs/own-maps.md says what is so."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.evaluation.reference.map_arrays import MapFile
from xbench_fast.runtime.evaluation.reference.map_files import KEPT_CELLS, MapFolder


def found_in(folder: Path, case: str) -> MapFile | None:
    cases = [Case(case, Path("image.png"), {}, {}, "all")]
    return MapFolder(folder).of(cases, ("Lung Lesion",)).find(case, "Lung Lesion")


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "own-maps.md").read_text()


def test_pickles_become_maps_as_the_page_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).random((1, 1, 8, 9), np.float32)
    (tmp_path / "gradcam_maps_val" / "patient1").mkdir(parents=True)
    stored = tmp_path / "gradcam_maps_val" / "patient1" / "patient1_study1_view1_frontal_Lung Lesion_map.pkl"
    stored.write_bytes(pickle.dumps({"map": values, "prob": 0.3}))
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    exec(compile(code[1], "own-maps.md", "exec"), {})
    found = found_in(tmp_path / "gradcam_maps_val", "patient1_study1_view1_frontal")
    assert found is not None
    np.testing.assert_array_equal(found.read(), values[0, 0])


def test_the_names_of_files_are_found(page: str, tmp_path: Path) -> None:
    names = re.findall(r"`(CASE[^`]*)`", page)
    assert len(names) >= 4
    for number, name in enumerate(names):
        if name == "CASE":
            continue
        folder = tmp_path / str(number)
        path = folder / name.replace("CASE", "c1").replace("FINDING", "Lung_Lesion")
        path.parent.mkdir(parents=True)
        np.savez(path, Lung_Lesion=np.eye(3)) if path.suffix == ".npz" else np.save(path, np.eye(3))
        found = found_in(folder, "c1")
        assert found is not None and found.read().shape == (3, 3), name


def test_the_limit_of_kept_maps(page: str) -> None:
    assert KEPT_CELLS == 64 * 64 and "64 x 64" in page
