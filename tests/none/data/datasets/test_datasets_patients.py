"""The reader option `patients` (docs/datasets.md §0.1), and what tables say where images stand for patients."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from stored_counts import add_cell, random_rows
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
from xbench_fast.runtime.data.datasets.dataset import PATIENTS, Case, Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.siim import Siim
from xbench_fast.runtime.host.config import load_config
from xbench_fast.runtime.reporting.comparison.comparison import compare_runs
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.cell_key import cases_digest, dataset_digest
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.loaded_dataset import load_dataset
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import Resampling

REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """ChestX-Det10's form: three images, the first two of one patient."""
    entries = [{"file_name": f"{n}.png", "syms": ["Mass"], "boxes": [[1, 1, 500, 500]]} for n in (1, 2, 3)]
    (tmp_path / "test.json").write_text(json.dumps(entries))
    (tmp_path / "test_data").mkdir()
    return tmp_path


def patients(cases: object) -> list[str | None]:
    return [case.patient_id for case in cases]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "split,file_name,nih_image_index\ntest,1.png,0007_000.png\ntest,2.png,0007_013.png\ntrain,9.png,1_0.png\n"
        "test,3.png,0008_000.png\n",
        "Image Index,image\n0007_000.png,1\n0007_1.png,2\n0008_0.png,3\n",
        "patient_id,case_id,nih_image_index\n0007,1,5_0.png\n0007,2,6_0.png\n0008,3,7_0.png\n",
    ],
    ids=["NIH by file name", "NIH by stem", "named by case"],
)
def test_a_csv_names_the_patients(data: Path, text: str) -> None:
    (data / "who.csv").write_text(text)
    plain, named = ChestXDet10(data), ChestXDet10(data, patients="who.csv")
    assert patients(plain.cases()) == [None] * 3 and patients(named.cases()) == ["0007", "0007", "0008"]
    assert [replace(case, patient_id=None) for case in named.cases()] == list(plain.cases())
    assert cases_digest(named.cases(), data) != cases_digest(plain.cases(), data), "rows depend on it"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "image,patient_id\n1.png,a\n",
            r"who\.csv names no patient for 2 of 3 images of the dataset 'chestxdet10', the first is 2\.png; add them",
        ),
        ("image,patient_id\n1.png,a\n1.png,b\n", r"row 3: '1\.png' belongs to the patient 'b', but to 'a' before"),
        ("image,patient_id\n,0007\n", r"row 2: image is empty"),
        ("image,patient_id\n1.png,a,b\n", r"row 2: 3 cells, the header has 2"),
        ("image,who\n1.png,a\n", r"row 1: the header needs one of image, file_name, .* it has image, who"),
        ("patient_id\na\n", r"row 1: the header needs one of image"),
        ("", r"row 1: the header needs .* it has nothing"),
        ("[" + 99 * "0.25 " + "]", r"it has \[(0\.25 ){39}0\.25\.\.\.\.$"),
    ],
)
def test_a_csv_that_cannot_serve_is_one_sentence(data: Path, text: str, sentence: str) -> None:
    (data / "who.csv").write_text(text)
    with pytest.raises(DataError, match=sentence):
        ChestXDet10(data, patients="who.csv").cases()
    with pytest.raises(DataError, match=r"other\.csv does not exist"):
        ChestXDet10(data, patients="other.csv").cases()


def test_readers_whose_files_name_no_patient_have_the_option() -> None:
    have = {name for name in DATASETS.names() if PATIENTS.items() <= DATASETS.load(name).option_help.items()}
    own = {"coco", "csv", "cvat", "dicom", "labelme", "masks", "nifti", "voc", "yolo"}
    assert have == {"chestxdet10", "rsna", "siim", "vindr", "vindr_kaggle", *own}
    with pytest.raises(ConfigError, match="'mscxr' has no option 'patients'"):
        DATASETS.load("mscxr")(Path(), patients="a.csv")


def test_the_file_replaces_the_patients_of_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    images = [{"id": n, "file_name": f"{n}.png", "patient_id": "own"} for n in (1, 2)]
    document = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "Mass"}]}
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    (tmp_path / "who.csv").write_text("image,patient_id\n1.png,a\n2.png,b\n")
    assert patients(Coco(tmp_path, patients="who.csv").cases()) == ["a", "b"]


def test_rows_of_one_image_share_its_patient(tmp_path: Path) -> None:
    (tmp_path / "train-rle.csv").write_text("ImageId,EncodedPixels\n1.2.a,-1\n1.2.b,0 5\n1.2.b,9 5\n")
    (tmp_path / "stage_2_images").mkdir()
    (tmp_path / "who.csv").write_text("ImageId,patient\n1.2.a,p\n1.2.b,q\n")
    cases = Siim(tmp_path, unit="row", patients="who.csv").cases()
    assert len(cases) == 3 and sorted(map(str, patients(cases))) == ["p", "q", "q"]


def test_the_demo_names_its_patients(shared: Path) -> None:
    config = load_config(REPOSITORY / "demo/xbench.toml").datasets["chestxdet10"]
    loaded = load_dataset(config)
    with (shared / "data/annotations/chestxdet10/file_name_to_nih.csv").open(newline="") as stream:
        known = {row["file_name"]: row["nih_image_index"].partition("_")[0] for row in csv.DictReader(stream)}
    assert patients(loaded.cases) == [known[case.image.name] for case in loaded.cases]
    drawn = [case for case in loaded.cases if case.regions]
    assert (len(set(patients(loaded.cases))), len(set(patients(drawn)))) == (39, 30)
    assert sum(len(case.regions) for case in drawn) == 52
    without = replace(config, options={"frame": 512})
    assert dataset_digest(loaded.dataset, loaded.cases, config) != load_dataset(without).digest


def test_the_official_test_images_are_of_429_patients(shared: Path) -> None:
    root = shared / "data/annotations/chestxdet10"
    cases = ChestXDet10(root, patients="file_name_to_nih.csv").cases()
    assert (len(cases), len(set(patients(cases)))) == (542, 429)


class Own(Dataset):
    """A reader that somebody else wrote, with the option."""

    name, title, classes, option_help = "own", "Own", ("a",), PATIENTS

    def sources(self) -> tuple[Path, ...]:
        return ()

    def read(self, notes: object) -> list[Case]:
        return [Case("x", self.root / "x.png", {"a": 0}, {}, "all")]


def test_a_reader_of_somebody_else_takes_the_option(tmp_path: Path) -> None:
    (tmp_path / "who.csv").write_text("image,patient_id\nx.png,a\n")
    assert patients(Own(tmp_path, patients="who.csv").cases()) == ["a"]
    assert patients(Own(tmp_path).cases()) == [None]


def test_tables_say_where_images_stand_for_patients(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        for model, seed in (("kad", 1), ("clip", 2)):
            add_cell(made, model, "one", [replace(row, patient_id=None) for row in random_rows(seed)])
            add_cell(made, model, "two", random_rows(seed))
    for dataset, said in (("one", True), ("two", False)):
        run, drawn = load_run(tmp_path / "run"), Resampling(replicates=20)
        compared = compare_runs(run, run, ("kad", "clip"), [dataset], drawn)
        studied = load_material(tmp_path / "run", datasets=[dataset], sampling=drawn)
        for lines in (compared.stamps, studied.stamps):
            assert any(line.startswith(f"The {dataset}: no patient IDs") for line in lines) == said
    found = make_report(tmp_path / "run", Choices(replicates=20))
    write_report(found, page=False)
    data = json.loads((tmp_path / "run/report/report.json").read_text())
    assert {(cell["dataset"], cell["patients"], cell["unnamed"]) for cell in data["cells"]} == {
        ("one", 30, 30),
        ("two", 15, 0),
    }
    told = {
        table.title: any(note.startswith("The one: no patient IDs") for note in table.notes) for table in found.tables
    }
    assert not any(said for title, said in told.items() if "The two" in title)
    others = {title for title, said in told.items() if not said and "The two" not in title}
    assert told["Coverage"] and told["Table 1: grounding"] and told["Recognition"], told
    assert told["Differences between models: The one"] and told["Differences between models: mean of datasets"]
    assert others <= {"Correlation of recognition and grounding", "Provenance"}, others
