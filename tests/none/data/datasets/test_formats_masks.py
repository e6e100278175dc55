"""Folders of masks: names of files, values and colours, and files that cannot serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.mask_folder import PngMasks
from xbench_fast.runtime.data.datasets.formats.nifti import NiftiMasks

VALUES: NDArray[np.uint8] = np.zeros((6, 8), np.uint8)
VALUES[1:3, 2:5] = 1
VALUES[4, 4:] = 2


def make(root: Path, files: dict[str, Any], /, **options: Any) -> PngMasks:
    """Masks by their names below masks/; arrays are written as PNG."""
    (root / "images").mkdir(exist_ok=True)
    (root / "images/a.png").write_bytes(encode(np.arange(48, dtype=np.uint8).reshape(6, 8), "PNG"))
    for name, content in files.items():
        path = root / "masks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else encode(content, "PNG"))
    return PngMasks(root, **options)


def areas(dataset: PngMasks | NiftiMasks) -> dict[str, int]:
    return {name: int(region.mask(6, 8).sum()) for name, region in dataset.cases()[0].regions.items()}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Mass/a.png", {}),
        ("a/Mass.png", {"files": "{image}/{class}.png"}),
        ("a_Mass_mask.png", {"files": "{image}_{class}_mask.png"}),
        ("Mass-a.PNG", {"files": "{class}-{image}.PNG"}),
        ("a.png", {"files": "{image}.png", "values": {"Mass": 1}}),
    ],
)
def test_names_of_files(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    dataset = make(tmp_path, {name: VALUES == 1}, **options)
    assert areas(dataset) == {"Mass": 6} and dataset.cases()[0].image == tmp_path / "images/a.png" and not dataset.notes


def test_a_class_that_holds_what_separates_it(tmp_path: Path) -> None:
    files = {"a_Pleural_effusion.png": VALUES == 1, "a_Rib.png": VALUES == 2}
    dataset = make(tmp_path, files, files="{image}_{class}.png", classes=["Pleural_effusion", "Rib"])
    assert areas(dataset) == {"Pleural_effusion": 6, "Rib": 4} and not dataset.notes
    dataset = make(tmp_path, files, files="{image}_{class}.png", classes=["Pleural_effusion"])
    assert areas(dataset) == {"Pleural_effusion": 6}
    assert [(note.kind, note.subject) for note in dataset.notes] == [("unknown_class", "Rib")]


def test_an_empty_mask_and_a_class_without_a_file_are_negative(tmp_path: Path) -> None:
    dataset = make(tmp_path, {"Mass/a.png": VALUES * 0, "Rib/a.png": VALUES > 0, "No finding/b.png": VALUES > 0})
    first, second = dataset.cases()
    assert dataset.classes == ("Rib",) and first.labels == {"Rib": 1} and second.labels == {"Rib": 0}
    assert [note.kind for note in dataset.notes] == ["empty_mask", "no_finding"]
    dataset = make(tmp_path, {}, classes=["Mass", "Rib"])
    assert dataset.cases()[0].labels == {"Mass": 0, "Rib": 1}


def test_values_and_their_classes(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("Label,Value\nRib,2\nMass,1\nbackground,0\n")
    (tmp_path / "v.txt").write_text("background\nMass\nRib\n")
    for given in ({"Mass": 1, "Rib": 2}, "v.csv", "v.txt"):
        dataset = make(tmp_path, {"a.png": VALUES}, values=given)
        assert areas(dataset) == {"Mass": 6, "Rib": 4} and not dataset.notes
        assert set(dataset.sources()) == {
            tmp_path / "masks/a.png",
            *([tmp_path / given] if isinstance(given, str) else []),
        }
    grey = np.stack([VALUES] * 3, -1)
    assert areas(make(tmp_path, {"a.png": grey}, values={"Mass": 1, "Rib": 2})) == {"Mass": 6, "Rib": 4}
    dataset = make(tmp_path, {"a.png": VALUES}, values={"Mass": 1})
    assert [(note.kind, note.text) for note in dataset.notes] == [
        ("unknown_class", "values without a class, which are not used: 2")
    ]
    assert not audit(dataset).passed


def test_colours_and_transparency(tmp_path: Path) -> None:
    colours = np.zeros((6, 8, 4), np.uint8)
    colours[VALUES == 1] = 255, 0, 0, 255
    colours[VALUES == 2] = 0, 0, 9, 0
    dataset = make(tmp_path, {"a.png": colours}, values={"Mass": "#ff0000", "Rib": [0, 0, 9]})
    assert areas(dataset) == {"Mass": 6} and not dataset.notes
    colours[0, 0] = 254, 0, 0, 255
    dataset = make(tmp_path, {"a.png": colours}, values={"Mass": "#ff0000"})
    assert areas(dataset) == {"Mass": 6} and "#fe0000" in dataset.notes[0].text


def test_a_mask_of_another_size(tmp_path: Path) -> None:
    dataset = make(tmp_path, {"Mass/a.png": np.eye(12, 16, dtype=np.uint8)})
    with pytest.raises(
        DataError, match=r"'Mass' in .*a\.png cannot be drawn: A mask of 12 x 16 cannot be drawn on 6 x 8"
    ):
        audit(dataset)
    found = audit(make(tmp_path, {}, resized=True), decode=True)
    assert found.passed and found.size_differs == 1 and found.pairs == 1
    with pytest.raises(DataError, match=r"Rib/a\.png: the mask is 8 x 6, a\.png of the same image is not"):
        make(tmp_path, {"Rib/a.png": VALUES})


@pytest.mark.parametrize(
    ("files", "options", "sentence"),
    [
        (
            {"a.png": VALUES},
            {"files": "{image}.png"},
            r"name no class; say which value is which class in the option values",
        ),
        ({"M/a.png": b"\xff\xd8\xff"}, {}, r"mask .*a\.png cannot be read: it is not a PNG file"),
        ({"M/a.png": encode(VALUES, "PNG")[:60]}, {}, r"mask .*a\.png cannot be read: "),
        ({"a.jpg": VALUES}, {}, r"has no file that ends with \.png"),
        ({"a.png": np.full((6, 8, 3), [1, 2, 3], np.uint8)}, {"values": {"M": 1}}, "it has colours, not values"),
        ({"a.png": VALUES}, {"values": "v.csv"}, r"v\.csv does not exist"),
        ({"a.png": VALUES}, {"values": "masks/a.csv"}, r"a\.csv, row 2: r, g, b of 'M' are not whole numbers"),
    ],
)
def test_masks_that_cannot_serve(tmp_path: Path, files: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks/a.csv").write_text("label,r,g,b\nM,300,0,0\n")
    with pytest.raises(DataError, match=sentence):
        make(
            tmp_path,
            {name: np.asarray(a, np.uint8) if not isinstance(a, bytes) else a for name, a in files.items()},
            **options,
        )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"files": "a.png"}, r"'files' .* must be a path with \{image\}"),
        ({"files": "{image}/{image}.png"}, "must be a path with"),
        ({"files": "{name}.png"}, "must be a path with"),
        ({"values": {"Mass": "red"}}, "'values' .* must be a table of classes with all numbers or all colours"),
        ({"values": {"Mass": 1, "Rib": [1, 2, 3]}}, "all numbers or all colours"),
        ({"values": 3}, "must be a table of classes, or the name of a"),
        ({"resized": "yes"}, "must be true or false"),
    ],
)
def test_options_that_cannot_be_used(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make(tmp_path, {"Mass/a.png": VALUES}, **options)


def test_files_of_another_form_are_counted(tmp_path: Path) -> None:
    dataset = make(tmp_path, {"Mass/a.png": VALUES == 1, "b.png": VALUES, "c.png": VALUES})
    assert [(note.kind, note.text) for note in dataset.notes] == [
        ("other_file", "files of another form than {class}/{image}.png, which are not used: 2")
    ]


def nifti(root: Path, values: Any, affine: Any, /, **options: Any) -> NiftiMasks:
    nibabel = pytest.importorskip("nibabel")
    make(root, {"Mass/x.png": VALUES})
    nibabel.save(nibabel.Nifti1Image(values, affine), root / "masks/Mass/a.nii.gz")
    return NiftiMasks(root, **options)


@pytest.mark.parametrize(
    ("axes", "turn"),
    [
        (np.diag([-1, -1, 1, 1]), lambda a: a.T[..., None]),
        (np.diag([1, 1, 1, 1.5]), lambda a: a.T[::-1, ::-1]),
        (np.array([[0, -2, 0, 5], [-2, 0, 0, 5], [0, 0, 1, 0], [0, 0, 0, 1]]), lambda a: a[..., None]),
        (np.array([[-1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]]), lambda a: a.T[..., None]),  # coronal
        (np.array([[-1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]), lambda a: a.T[:, None, ::-1]),
    ],
)
def test_the_affine_tells_how_a_mask_lies(tmp_path: Path, axes: Any, turn: Any) -> None:
    affine = axes.astype(float)
    affine[3, 3] = 1
    affine[0, 3] += affine[0, 3] == 0
    # An identity, moved or not, is asked about unless the user says that it is meant.
    stated = {"axes": "affine"} if np.array_equal(affine[:3, :3], np.eye(3)) else {}
    region = nifti(tmp_path, turn((VALUES > 0).astype(np.uint8)), affine, **stated).cases()[0].regions["Mass"]
    np.testing.assert_array_equal(region.mask(6, 8), VALUES > 0)


def test_arrays_that_were_saved_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"its affine is the identity.*; set the option axes to rows .* or to affine"):
        nifti(tmp_path, VALUES, np.eye(4))
    dataset = nifti(tmp_path, VALUES, np.eye(4), axes="rows", values={"Mass": 1, "Rib": 2}, files="Mass/{image}.nii.gz")
    assert areas(dataset) == {"Mass": 6, "Rib": 4}
    np.testing.assert_array_equal(dataset.cases()[0].regions["Mass"].mask(6, 8), VALUES == 1)
    turned = nifti(tmp_path, VALUES, np.eye(4), axes="affine", resized=True).cases()[0]
    np.testing.assert_array_equal(turned.regions["Mass"].mask(8, 6), VALUES[::-1, ::-1].T > 0)
    with pytest.raises(ConfigError, match=r"'axes' .* cannot be 'row': did you mean 'rows'"):
        nifti(tmp_path, VALUES, np.eye(4), axes="row")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            np.zeros((6, 8, 2), np.uint8),
            r"a\.nii\.gz cannot be read: its shape is 6 x 8 x 2, not the shape of one slice",
        ),
        (np.full((6, 8), 0.5, np.float32), "it holds other values than whole numbers"),
        (np.full((6, 8), -1, np.int16), "it holds other values than whole numbers"),
        (np.full((6, 8), np.nan, np.float32), "it holds other values than whole numbers"),
    ],
)
def test_nifti_that_is_no_mask(tmp_path: Path, values: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        nifti(tmp_path, values, np.diag([-1.0, -1, 1, 1]))


def test_damaged_nifti_and_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nifti(tmp_path, VALUES, np.diag([-1.0, -1, 1, 1]))
    file = tmp_path / "masks/Mass/a.nii.gz"
    whole = file.read_bytes()
    for data in (b"", b"no", whole[:40], whole[:-20]):
        file.write_bytes(data)
        with pytest.raises(DataError, match=r"The mask .*a\.nii\.gz cannot be read: "):
            NiftiMasks(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "nibabel", None)
    with pytest.raises(DataError, match=r"needs nibabel, which is not installed; install xbench-fast\[formats\]"):
        NiftiMasks(tmp_path)


def test_a_palette_gives_its_indices(tmp_path: Path) -> None:
    make(tmp_path, {"Mass/x.png": VALUES})
    (tmp_path / "masks/Mass/x.png").unlink()
    image = Image.fromarray(VALUES).convert("P")
    image.putdata(VALUES.ravel().tolist())
    image.putpalette([9, 9, 9, 0, 0, 0, 255, 0, 0] + [0] * 759)
    image.save(tmp_path / "masks/a.png")
    assert areas(PngMasks(tmp_path, values={"Mass": 1, "Rib": 2})) == {"Mass": 6, "Rib": 4}
