"""The public interface: its names, what importing it costs, datasets and counts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xbench_fast as xb
from exact_units import in_units
from sklearn.metrics import roc_auc_score
from synthetic import CLASSES, make_dataset, reference_sweep


@pytest.fixture
def names(root: Path) -> set[str]:
    """The public names: those of the table in docs/python.md."""
    return set(re.findall(r"`(\w+)`", (root / "docs" / "python.md").read_text().partition("| name | page |")[2]))


def test_public_names(names: set[str]) -> None:
    assert len(names) > 20 and set(xb.__all__) == names and len(xb.__all__) == len(names) and dir(xb) == sorted(names)
    for name in names:
        assert getattr(xb, name).__doc__, name
    assert xb.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = xb.nothing  # type: ignore[attr-defined]


def test_type_checkers_see_every_name(root: Path, names: set[str]) -> None:
    """The names that are loaded late stand under TYPE_CHECKING, each from the module it is loaded from."""
    tree = ast.parse((root / "api" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: f".{node.module}" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == xb._HOME and {*seen, "__version__"} == names
    modules = {path.stem for path in (root / "api").glob("*.py")}
    assert not modules & names  # importing such a module would put it in the place of the name


def test_importing_takes_no_heavy_package() -> None:
    code = "import sys, xbench_fast\nprint(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pandas", "pyarrow", "scipy", "numba", "sklearn", "PIL", "pydicom", "rich", "click"}
    heavy |= {"torch", "onnx", "onnxruntime", "cupy", "ray", "matplotlib", "starlette"}
    assert not heavy & set(done.stdout.split())


def test_a_dataset_is_iterated(tmp_path: Path) -> None:
    data = xb.load_dataset("coco", make_dataset(tmp_path / "data", 8, missing=(7,)))
    assert (len(data), data.name, data.classes) == (8, "coco", CLASSES)
    first = next(iter(data))
    assert first.case_id == data[0].case_id == "case0000" and first.patient_id == "p0"
    assert first.labels == {"Mass": 1, "Effusion": 1} and first.findings == ("Mass", "Effusion")
    image, mask, grid = first.image(), first.mask("Mass"), first.mask("Mass", grid=True)
    assert image.dtype == np.uint8 and image.shape == mask.shape == first.size == (40, 56)
    assert mask.any() and image[mask].mean() > image[~mask].mean() + 80
    rows, columns = (np.arange(224) * side // 224 for side in (40, 56))
    np.testing.assert_array_equal(grid, mask[np.ix_(rows, columns)])
    assert not data[1].mask("Mass").any() and data[1].mask("Effusion", grid=True).shape == (224, 224)
    with pytest.raises(xb.XBenchError, match="no class 'Hernia': known are Mass, Effusion"):
        first.mask("Hernia")
    with pytest.raises(xb.XBenchError, match=r"case0007\.png cannot be read"):
        data[7].image()


def test_a_dataset_takes_the_options_of_its_reader(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "data", 4)
    mine = xb.load_dataset("mine", root, reader="coco", title="Mine")
    assert (mine.name, mine.title) == ("mine", "Mine")
    with pytest.raises(xb.XBenchError, match="has no option 'titel': did you mean 'title'"):
        xb.load_dataset("coco", root, titel="Mine")
    with pytest.raises(xb.XBenchError, match="Unknown dataset 'coca': did you mean 'coco'"):
        xb.load_dataset("coca", root)


def test_a_dataset_of_the_configuration_needs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(tmp_path / "data", 4)
    toml = tmp_path / "xbench.toml"
    toml.write_text('[datasets.mine]\nreader = "coco"\nroot = "data"\ntitle = "Mine"\n')
    assert xb.load_dataset("mine", config=toml).title == "Mine"
    assert xb.load_dataset("mine", config=toml, title="Other").title == "Other"
    make_dataset(tmp_path / "copy", 2)
    assert len(xb.load_dataset("mine", tmp_path / "copy", config=toml)) == 2
    with pytest.raises(xb.XBenchError, match="No dataset 'mime' is configured: did you mean 'mine'"):
        xb.load_dataset("mime", config=toml)
    with pytest.raises(xb.XBenchError, match="No dataset 'mine' is configured; give its folder"):
        xb.load_dataset("mine")
    monkeypatch.chdir(tmp_path)
    assert xb.load_dataset("mine").root == Path("data")


def test_inputs_are_those_of_an_evaluation(tmp_path: Path) -> None:
    data = xb.load_dataset("coco", make_dataset(tmp_path / "data", 8, missing=(7,)))
    geometry = xb.Geometry("pad_crop", 32, 40, "area")
    found = list(data.inputs(geometry, ["Mass"], places=[7, 0, 3]))
    assert [each.radiograph.case_id for each in found] == ["case0007", "case0000", "case0003"]
    assert found[0].pixels is None and "does not exist" in str(found[0].problem)
    for each in found[1:]:
        np.testing.assert_array_equal(each.pixels, xb.prepare(each.radiograph.path, geometry)[0])
        np.testing.assert_array_equal(each.pixels, xb.prepare(each.radiograph.image(), geometry)[0])
        drawn = each.radiograph.mask("Mass", grid=True)
        assert set(each.regions) <= {"Mass"} and ("Mass" in each.regions) == drawn.any()
        np.testing.assert_array_equal(each.regions.get("Mass", np.zeros((224, 224), bool)), drawn)
    # A picture of 40 x 56 becomes 28 x 40 in the middle of 40 x 40, and the model sees 32 x 32 of these.
    assert found[1].frame == pytest.approx((-2 / 28, 4 / 40, 30 / 28, 36 / 40))
    assert sum(len(each.regions) for each in data.inputs(geometry)) == sum(
        len(each.findings) for each in data if each.case_id != "case0007"
    )
    assert data[0].rows and data.sources == (tmp_path / "data" / "annotations.json",)
    with pytest.raises(xb.XBenchError, match="no class 'Mas': did you mean 'Mass'"):
        data.inputs(geometry, ["Mas"])


def test_differences_in_memory_are_paired() -> None:
    rng = np.random.default_rng(2)
    a = rng.random(40)
    b, findings, patients = a + 0.1, ["x", "y"] * 20, [f"p{n // 4}" for n in range(40)]
    b[::2] += rng.normal(0, 0.01, 20)
    found = xb.mean_difference(a, b, findings, patients)
    assert isinstance(found, xb.PairedDifference) and found.patients == 10
    assert (found.a, found.b) == (pytest.approx(a.mean()), pytest.approx(b.mean()))
    assert found.low is not None and found.high is not None
    assert found.value == pytest.approx(found.b - found.a) and found.low < found.value < found.high < found.low + 0.02
    few = xb.mean_difference(a[:12], b[:12], findings[:12], patients[:12])
    assert few is not None and few.patients == 3 < few.LEAST_PATIENTS and few.low is few.high is None
    assert xb.mean_difference([], [], [], []) is None
    with pytest.raises(ValueError, match="must be equally many"):
        xb.mean_difference(a, b, findings, patients[1:])
    with pytest.raises(ValueError, match="is not finite"):
        xb.mean_difference([0.0, np.nan], [0.0, 1.0], "xx", "pq")


def test_auc_leaves_out_what_has_one_label_or_few_patients() -> None:
    rng = np.random.default_rng(4)
    scores, labels = rng.normal(size=(2, 30, 4)), (rng.random((30, 4)) < 0.5).astype(float)
    labels[3, 0], labels[:, 2] = np.nan, 1
    labels[:, 3] = np.arange(30) < 2  # two positive patients
    found = xb.auc(scores[0], labels)
    known = ~np.isnan(labels[:, 0])
    assert found[0] == pytest.approx(roc_auc_score(labels[known, 0], scores[0][known, 0])) and np.isnan(found[2])
    change = xb.auc_difference(*scores, labels, [f"p{n}" for n in range(30)])
    both = np.array([xb.auc(each, labels)[:2] for each in scores])
    assert change is not None and (change.a, change.b) == (pytest.approx(both[0].mean()), pytest.approx(both[1].mean()))
    assert change.low is not None and change.low < change.value < (change.high or 0)
    assert xb.auc_difference(*scores[..., 2:], labels[:, 2:], list(range(30))) is None
    with pytest.raises(ValueError, match="labels must be 1, 0, or NaN"):
        xb.auc(scores[0], labels + 1)
    with pytest.raises(ValueError, match="30 images and 2 patients"):
        xb.auc_difference(*scores, labels, "ab")
    with pytest.raises(ValueError, match="one shape"):
        xb.auc(scores[0], labels[:, :1])


def test_counts_give_the_numbers_of_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    maps, masks = rng.random((6, 7, 5), np.float32), rng.random((6, 224, 224)) < 0.3
    counts, plain = xb.sweep(maps, masks), reference_sweep(maps, masks)
    assert isinstance(counts, xb.Counts) and len(counts) == 6
    np.testing.assert_array_equal(counts.overlap, plain.overlap)
    dice = in_units(2 * plain.overlap / (plain.area + plain.region[:, None]))
    np.testing.assert_array_equal(xb.dice(counts), dice)
    np.testing.assert_array_equal(xb.dice(counts, 0.5), dice[:, 50])
    np.testing.assert_array_equal(
        xb.iou(counts, 0.25), in_units(plain.overlap / (plain.area + plain.region[:, None] - plain.overlap))[:, 25]
    )
    np.testing.assert_array_equal(xb.pointing(counts), plain.hit.astype(float))
    best = int(dice.mean(axis=0).argmax())
    assert xb.best_threshold(counts) == best / 100
    assert xb.best_threshold(counts, tau_from=0.9) == (90 + int(dice.mean(axis=0)[90:].argmax())) / 100
    raw = xb.Sweeping(upsample="nearest", normalise="none", comparison=">")
    marked = np.repeat(np.repeat(maps[:, :4, :4], 56, 1), 56, 2)
    counts_raw = xb.sweep(maps[:, :4, :4], masks, sweeping=raw)
    np.testing.assert_array_equal(counts_raw.area[:, 50], (marked > 0.5).sum((1, 2)))
    with pytest.raises(ValueError, match="no pair"):
        xb.best_threshold(counts.take(slice(0, 0)))
    with pytest.raises(ValueError, match="not one of the thresholds"):
        xb.dice(counts, 0.123)
