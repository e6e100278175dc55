"""Names of map files: what belongs to a case and a class, what does not, and what could mean two."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.evaluation.reference.map_files import CaseMaps, MapFolder

CLASSES = ("Mass", "Nodule/Mass", "Lung Lesion", "Épanchement", "b c")


def case(name: str, image: str = "") -> Case:
    return Case(name, Path("/data") / (image or f"{name}.png"), {}, {}, "all")


def write(folder: Path, *names: str) -> Path:
    """Maps with these names; the only value of each is its number."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, np.full((2, 2), number, np.float32))
    return folder


def named(folder: Path, *cases: Case, classes: tuple[str, ...] = CLASSES) -> CaseMaps:
    return MapFolder(folder).of(cases or (case("p1/s1/v1", "film-7.jpg"), case("p2", "film-8.jpg")), classes)


@pytest.mark.parametrize(
    "name",
    [
        "p1/s1/v1/Mass.npy",
        "p1_s1_v1/Mass.npy",
        "p1_s1_v1_Mass.npy",
        "p1_s1_v1_Mass_map.npy",
        "p1/s1/v1_MASS.npy",
        "p1\\s1\\v1\\Mass.npy",
        "p1\\s1\\v1_mass_MAP.npy",
        "film-7/Mass.npy",
        "film-7.jpg/Mass.npy",
        "film-7_Mass.npy",
        "film-7.jpg_Mass.npy",
        "film-7_mass_map.npy",
        "gradcam/val/film-7_Mass.npy",
        "my maps/p1/s1/v1/Mass.npy",
        "p1 s1 v1/Mass.npy",
    ],
)
def test_a_case_is_known_by_its_id_and_its_file(tmp_path: Path, name: str) -> None:
    maps = named(write(tmp_path, name))
    assert maps.find("p1/s1/v1", "Mass") is not None and not maps.unused
    assert maps.find("p2", "Mass") is None and maps.find("p1/s1/v1", "Nodule/Mass") is None


@pytest.mark.parametrize(
    "finding",
    ["Nodule_Mass", "Nodule/Mass", "Nodule\\Mass", "nodule_mass", "NODULE MASS", "Nodule-Mass", "Nodule__Mass"],
)
@pytest.mark.parametrize("form", ["p2/{}.npy", "p2_{}.npy", "x/p2_{}_map.npy"])
def test_a_class_with_a_slash(tmp_path: Path, form: str, finding: str) -> None:
    maps = named(write(tmp_path, form.format(finding)))
    assert maps.find("p2", "Nodule/Mass") is not None and maps.find("p2", "Mass") is None


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_composed_and_decomposed_letters_are_equal(tmp_path: Path, form: str) -> None:
    text = unicodedata.normalize(form, "père/épanchement.npy")  # type: ignore[arg-type]
    for id_form in ("NFC", "NFD"):
        each = case(unicodedata.normalize(id_form, "père"))  # type: ignore[arg-type]
        classes = (unicodedata.normalize(id_form, "Épanchement"),)  # type: ignore[arg-type]
        found = named(write(tmp_path / form / id_form, text), each, classes=classes)
        assert found.find(each.case_id, classes[0]) is not None


def test_arrays_of_an_archive_are_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "film-8.npz", **{"Nodule/Mass": np.eye(2), "lung_lesion": np.eye(3), "Unicorn": np.eye(4)})
    maps = named(tmp_path)
    one, other = maps.find("p2", "Nodule/Mass"), maps.find("p2", "Lung Lesion")
    assert one is not None and other is not None and (one.shape, other.shape) == ((2, 2), (3, 3))
    assert maps.unused.startswith(f"1 of 3 maps in {tmp_path} are of no case and class of the dataset")
    assert "'film-8/Unicorn' first" in maps.unused


def test_one_array_is_named_by_its_file_or_by_itself(tmp_path: Path) -> None:
    np.savez(tmp_path / "p2_Mass.npz", np.eye(2))
    np.savez(tmp_path / "film-7.npz", Mass=np.eye(3))
    maps = named(tmp_path)
    assert maps.find("p2", "Mass") is not None and maps.find("p1/s1/v1", "Mass") is not None and not maps.unused


def test_two_files_of_one_pair_are_an_error_that_names_both(tmp_path: Path) -> None:
    pairs = [
        ("p2/Mass.npy", "p2_mass.npy"),
        ("p2/Mass.npy", "film-8.jpg/Mass.npy"),
        ("p2/Nodule_Mass.npy", "p2/Nodule Mass.npy"),
        ("old/p2/Mass.npy", "p2/Mass.npy"),
        ("one/p2/Mass.npy", "two/p2/Mass.npy"),
    ]
    for number, (a, b) in enumerate(pairs):
        folder = write(tmp_path / str(number), a, b)
        with pytest.raises(DataError) as raised:
            named(folder)
        text = str(raised.value)
        assert str(folder / a) in text and str(folder / b) in text and "keep one of them" in text
        assert "in the case 'p2'" in text


def test_a_name_that_can_mean_two_pairs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"'a_b_c' of .*a_b_c\.npy can be the map of 'b/c' in the case 'a' or of 'C' in"
    ):
        named(write(tmp_path / "0", "a_b_c.npy"), case("a"), case("a_b"), classes=("b/c", "C"))
    same = [case("one", "sub1/x.png"), case("two", "sub2/x.png")]
    with pytest.raises(DataError, match="'Mass' in the case 'one' or of 'Mass' in the case 'two'; name it by the id"):
        named(write(tmp_path / "1", "x/Mass.npy"), *same)
    assert named(write(tmp_path / "2", "one/Mass.npy"), *same).find("one", "Mass") is not None
    with pytest.raises(DataError, match="can be the map of 'MASS' in the case 'p2' or of 'Mass' in the case 'p2'"):
        named(write(tmp_path / "3", "p2/mass.npy"), case("p2"), classes=("Mass", "MASS"))


def test_the_spelling_of_the_dataset_decides_between_two(tmp_path: Path) -> None:
    maps = named(write(tmp_path / "0", "a/b/Mass.npy", "a_b/Mass.npy"), case("a/b"), case("a_b"))
    first, second = maps.find("a/b", "Mass"), maps.find("a_b", "Mass")
    assert first is not None and second is not None and (first.read()[0, 0], second.read()[0, 0]) == (0, 1)
    both = named(write(tmp_path / "1", "p/Mass.npy", "p/MASS.npy"), case("p"), classes=("Mass", "MASS"))
    first, second = both.find("p", "Mass"), both.find("p", "MASS")
    assert first is not None and second is not None and (first.read()[0, 0], second.read()[0, 0]) == (0, 1)


def test_an_id_is_before_the_name_of_a_file(tmp_path: Path) -> None:
    crossed = [case("7", "8.png"), case("8", "9.png")]
    maps = named(write(tmp_path, "8/Mass.npy", "8.png_Lung_Lesion.npy"), *crossed)
    assert maps.find("8", "Mass") is not None and maps.find("7", "Mass") is None
    assert maps.find("7", "Lung Lesion") is not None, "with its extension it is a file"
    exchanged = named(write(tmp_path / "x", "a.png/Mass.npy"), case("a.png", "b.png"), case("b.png", "a.png"))
    assert exchanged.find("a.png", "Mass") is not None and exchanged.find("b.png", "Mass") is None
    with pytest.raises(DataError, match="None of the 1 maps"):
        named(write(tmp_path / "stem", "9/Mass.npy"), *crossed)


def test_upper_and_lower_case_of_a_case_count(tmp_path: Path) -> None:
    maps = named(write(tmp_path, "A/Mass.npy", "a/Mass.npy"), case("A"), case("a"))
    first, second = maps.find("A", "Mass"), maps.find("a", "Mass")
    assert first is not None and second is not None and first.path != second.path


def test_hidden_folders_and_files_are_not_walked(tmp_path: Path) -> None:
    hidden = [
        ".ipynb_checkpoints/p2_Mass.npy",
        "p2/.ipynb_checkpoints/Mass.npy",
        "__MACOSX/p2/Mass.npy",
        "p2/._Mass.npy",
        ".thumbnails/p2_Mass.npy",
        "@eaDir/p2_Mass.npy",
        "$RECYCLE.BIN/p2_Mass.npy",
    ]
    folder = write(tmp_path / ".mine", "p2/Mass.npy")
    before = MapFolder(folder).digest
    write(folder, *hidden)
    maps = named(folder)
    found = maps.find("p2", "Mass")
    assert found is not None and found.path == folder / "p2/Mass.npy" and not maps.unused
    assert MapFolder(folder).digest == before
    with pytest.raises(DataError, match="holds no maps"):
        named(write(tmp_path / "only", *hidden))


def test_maps_that_fit_nothing_are_told_with_an_example_of_both_names(tmp_path: Path) -> None:
    folder = write(tmp_path, "case7/Mass.npy", "p2/Unicorn.npy")
    with pytest.raises(DataError) as raised:
        named(folder, case("p2", "film.png"), classes=("Nodule/Mass",))
    assert str(raised.value) == (
        f"None of the 2 maps in {folder} is of a case and a class of the dataset: the first is called 'case7/Mass', "
        "one of the dataset is called 'p2/Nodule_Mass.npy'."
    )


def test_the_pairs_are_part_of_what_rows_depend_on(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "film/Mass.npy")
    one = named(folder, case("1", "film.png"), case("2", "other.png")).description
    assert one == named(folder, case("1", "film.png"), case("2", "other.png")).description
    assert one != named(folder, case("1", "other.png"), case("2", "film.png")).description
    assert one == named(write(tmp_path / "b", "film/Mass.npy"), case("1", "film.png")).description, "wherever it lies"
