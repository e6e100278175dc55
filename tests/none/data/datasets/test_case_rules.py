"""The rules that hold for every reader, tried on a reader that knows nothing of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.case import UNCERTAIN
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.checking.note_warnings import FAILING_NOTES, REPEATED_NOTES, note_warnings
from xbench_fast.runtime.data.datasets.dataset import UNCERTAIN_LABELS, Case, Dataset, Note
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_shapes import AtLeast, Ellipse, Polygons, Rle, Union

BOX, OTHER = (1.0, 1.0, 5.0, 5.0), (2.0, 2.0, 6.0, 6.0)
TRIANGLE = ((0.0, 0.0), (4.0, 0.0), (0.0, 4.0))


class Given(Dataset):
    """A reader of cases that are handed to it."""

    name, title = "given", "Given"
    classes: tuple[str, ...] = ("Mass", "Nodule")
    option_help: ClassVar[Mapping[str, str]] = {**UNCERTAIN_LABELS}
    given: Sequence[Case] = ()

    def read(self, notes: list[Note]) -> Sequence[Case]:
        return self.given

    def sources(self) -> Sequence[Path]:
        return (self.root / "annotations.csv",)


def case(number: int, **values: object) -> Case:
    about = {"labels": {"Mass": 0, "Nodule": None}, "regions": {}, "split": "all", **values}
    return Case(str(number), about.pop("image", Path(f"{number}.png")), **about)  # type: ignore[arg-type]


def given(root: Path, cases: Sequence[Case], **options: object) -> Given:
    dataset = Given(root, **options)
    dataset.given = cases
    return dataset


def kinds(dataset: Dataset) -> Counter[str]:
    return Counter(note.kind for note in dataset.notes)


@pytest.mark.parametrize(
    ("region", "left", "count"),
    [
        (Boxes((BOX, OTHER, BOX, BOX)), Boxes((BOX, OTHER)), 2),
        (Polygons((TRIANGLE, TRIANGLE)), Polygons((TRIANGLE,)), 1),
        (Union((Rle((4, 4), (2, 3, 11)), Rle((4, 4), (2, 3, 11)))), Union((Rle((4, 4), (2, 3, 11)),)), 1),
        (Union((Boxes((BOX, BOX)), Ellipse(3, 3, 1, 1))), Union((Boxes((BOX,)), Ellipse(3, 3, 1, 1))), 1),
        # Readers who draw the same are two votes; what one reader draws twice is one box.
        (AtLeast((Boxes((BOX,)), Boxes((BOX,))), 2), AtLeast((Boxes((BOX,)), Boxes((BOX,))), 2), 0),
        (AtLeast((Boxes((BOX, BOX)), Boxes((BOX,))), 2), AtLeast((Boxes((BOX,)), Boxes((BOX,))), 2), 1),
        (Ellipse(3, 3, 1, 1), Ellipse(3, 3, 1, 1), 0),
    ],
)
def test_a_region_that_is_listed_twice_counts_once(tmp_path: Path, region: object, left: object, count: int) -> None:
    dataset = given(tmp_path, [case(1, labels={"Mass": 1, "Nodule": 0}, regions={"Mass": region}, rows=(4, 5))])
    assert dataset.cases()[0].regions == {"Mass": left}
    assert kinds(dataset) == ({"duplicate": 1} if count else {})
    if count:
        assert f"listed before: {count};" in dataset.notes[0].text and dataset.notes[0].row == 4


@pytest.mark.parametrize(("policy", "label"), [(None, None), ("ignore", None), ("positive", 1), ("negative", 0)])
def test_uncertain_labels_become_what_the_policy_says(tmp_path: Path, policy: str | None, label: int | None) -> None:
    cases = [
        case(n, labels={"Mass": UNCERTAIN if n < 3 else 1, "Nodule": UNCERTAIN if n == 0 else 0}) for n in range(4)
    ]
    dataset = given(tmp_path, cases, uncertain=policy)
    assert [c.labels["Mass"] for c in dataset.cases()] == [label, label, label, 1]
    assert [c.labels["Nodule"] for c in dataset.cases()] == [label, 0, 0, 0]
    assert dataset.uncertain_labels == 4 and dataset.uncertain == (policy or "ignore")
    assert [note.text for note in dataset.notes if note.kind == "uncertain"] == [
        f"uncertain labels of 'Mass': 3; the policy is {policy or 'ignore'}",
        f"uncertain labels of 'Nodule': 1; the policy is {policy or 'ignore'}",
    ]
    with pytest.raises(ConfigError, match="cannot be 'maybe'"):
        given(tmp_path, cases, uncertain="maybe").cases()


@pytest.mark.parametrize(
    "name", ["nan", "NaN", "ANONYMOUS", " Anonymized^^ ", "None", "", "n/a", "Unknown", "-", "^^^^"]
)
def test_a_placeholder_is_no_patient(tmp_path: Path, name: str) -> None:
    dataset = given(tmp_path, [case(n, patient_id=name if n < 5 else "p") for n in range(6)])
    assert len({c.patient for c in dataset.cases()}) == 6
    assert kinds(dataset) == {"placeholder_patient": 1}
    assert "is given as the patient of 5 images" in dataset.notes[0].text


@pytest.mark.parametrize("name", ["0", "00001", "Nana", "P-1", "x1"])
def test_other_names_are_patients_and_one_of_most_images_is_noted(tmp_path: Path, name: str) -> None:
    dataset = given(tmp_path, [case(n, patient_id=name if n < 3 else f"p{n}") for n in range(5)])
    assert [c.patient for c in dataset.cases()][:3] == [name] * 3
    assert next(n.text for n in dataset.notes if n.kind == "one_patient").startswith(
        f"the patient '{name}' has 3 of 5 images"
    )
    assert not given(tmp_path, [case(n, patient_id=name if n < 3 else f"p{n}") for n in range(6)]).notes, (
        "half is not most"
    )
    assert not given(tmp_path, [case(n, patient_id=name) for n in range(3)]).notes, "too few"
    # An image that several cases name is one film of the patient.
    same = [case(n, patient_id=name if n < 4 else f"p{n}", image=Path(f"{max(n, 3)}.png")) for n in range(7)]
    assert "one_patient" not in kinds(given(tmp_path, same))


def test_cases_that_name_one_image_are_noted(tmp_path: Path) -> None:
    twice = [case(1, image=Path("a.png")), case(2, image=Path("a.png"), rows=(9,)), case(3)]
    (note,) = given(tmp_path, twice).notes
    assert note.kind == "same_image" and note.row == 9
    assert note.text == "the cases '1', '2' name one image file, a.png, which so counts 2 times"
    positive = [*twice[:1], case(2, image=Path("a.png"), labels={"Mass": 1, "Nodule": None})]
    assert "put them together under one id" in given(tmp_path, positive).notes[0].text
    allowed = given(tmp_path, twice)
    allowed.cases_per_image = 2
    assert not allowed.notes


def test_classes_that_differ_in_spelling_alone_are_noted(tmp_path: Path) -> None:
    dataset = given(tmp_path, [case(1)])
    dataset.classes = ("Mass", "Nodule", "mass")
    (note,) = dataset.notes
    assert note.kind == "alike_classes" and "'Mass' and 'mass' differ in spelling alone" in note.text


def test_one_id_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="yields the case '1' twice"):
        given(tmp_path, [case(1), case(1)]).cases()


def test_failing_notes_fail_the_audit_and_are_warnings(tmp_path: Path) -> None:
    for kind in FAILING_NOTES:
        notes = [Note(kind, "x", tmp_path, None, f"first {n}") for n in range(3)]
        assert note_warnings(notes) == {kind: f"{tmp_path}: first 0 (and 2 more of this kind)."}
    assert not note_warnings([Note("duplicate", "x", tmp_path, None, "harmless")], REPEATED_NOTES)
    marked = [Note("crowd", "iscrowd", tmp_path, None, "regions marked iscrowd: 2")]
    assert not note_warnings(marked)
    assert note_warnings(marked, REPEATED_NOTES) == {"crowd": f"{tmp_path}: regions marked iscrowd: 2."}
    images = [tmp_path / f"{n}.png" for n in range(5)]
    for image in images:
        image.write_bytes(b"")
    dataset = given(tmp_path, [case(n, image=image, patient_id="nan") for n, image in enumerate(images)])
    found = audit(dataset)
    assert not found.passed and found.warnings == (
        f"{dataset.sources()[0]}: 'nan' is given as the patient of 5 images but names none; each of them counts as one "
        "patient.",
    )
