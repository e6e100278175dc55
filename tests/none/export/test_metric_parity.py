"""What an export says about metrics in lower precision: the numbers, and the user's images and boxes behind them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.export.cli.models_in_config import read_models
from xbench_fast.export.cli.radiographs import EvaluationMetrics, open_radiographs
from xbench_fast.export.parity.low_precision import PrecisionTrial
from xbench_fast.export.parity.metric_changes import Tally, TrialImage, outcome, probe_cases
from xbench_fast.export.parity.trial_data import TrialData, parted
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.data.images.resizing import to_model

PIXELS = np.zeros((1, 8, 8), np.uint8)
SIDE = 224
METRICS = EvaluationMetrics()


def open_data(text: str, config: Path | None = None, *options: str) -> TrialData:
    (found,) = open_radiographs([text], read_models(config), options)
    assert found is not None
    return found


def region(top: int, left: int, bottom: int, right: int) -> Any:
    mask = np.zeros((SIDE, SIDE), bool)
    mask[top:bottom, left:right] = True
    return mask


def add(tally: Tally, case: TrialImage, before: Any, after: Any) -> None:
    """Adds a case by its (logits, maps) of both graphs."""
    tally.add(case, outcome(case, *before, METRICS), outcome(case, *after, METRICS))


def spot(row: int, column: int) -> Any:
    """A 7 x 7 map, each cell 32 pixels wide, with one bright cell."""
    values = np.zeros((1, 7, 7), np.float32)
    values[0, row, column] = 1
    return values


def test_a_moved_maximum_flips_and_is_the_worst_case() -> None:
    tally = Tally(("Mass",), METRICS)
    here, logits = region(0, 0, 64, 64), np.zeros(1, np.float32)
    add(tally, TrialImage("a", PIXELS, {0: here}, {0: True}), (logits, spot(1, 1)), (logits, spot(1, 1)))
    add(tally, TrialImage("b", PIXELS, {0: here}, {0: True}), (logits, spot(1, 1)), (logits, spot(5, 5)))
    found = tally.summary()
    assert (found["pairs"], found["hits"], found["hits_flipped"]) == (2, [2, 1], 1)
    (worst,) = found["worst"]
    assert worst["image"] == "b" and worst["hit"] == [True, False] and worst["finding"] == "Mass"
    enlarged = np.asarray(Image.fromarray(spot(1, 1)[0]).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    bright = {tuple(place) for place in np.argwhere(enlarged >= enlarged.max() / 2)}
    wanted = 2 * len(bright & {tuple(place) for place in np.argwhere(here)}) / (len(bright) + 64 * 64)
    assert worst["dice"] == [pytest.approx(wanted), 0.0] and found["dice_change"] == pytest.approx(wanted)
    assert found["auc"] is None and found["auc_change"] is None


def test_auc_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(3)
    before, after = random.normal(size=(2, 12, 3)).astype(np.float32)
    after[2, 0] = after[3, 0]  # a tie
    labels = random.random((12, 3)) < 0.5
    labels[:, 2] = True  # no negative image: no AUC
    tally, maps = Tally(("A", "B", "C"), METRICS), np.zeros((3, 7, 7), np.float32)
    for row in range(12):
        case = TrialImage(str(row), PIXELS, {}, dict(enumerate(labels[row].tolist())))
        add(tally, case, (before[row], maps), (after[row], maps))
    wanted = np.array([[roc_auc_score(labels[:, n], table[:, n]) for table in (before, after)] for n in range(2)])
    found = tally.summary()
    assert found["auc"] == pytest.approx(wanted.mean(0).tolist())
    assert found["auc_change"] == pytest.approx(np.abs(wanted[:, 0] - wanted[:, 1]).max())
    assert (found["pairs"], found["hits"], found["dice"], found["worst"]) == (0, None, None, [])


def test_equal_outputs_change_nothing_and_probe_cases_have_both_labels() -> None:
    cases = probe_cases(16, 3)
    tally, random = Tally(("A", "B", "C"), METRICS), np.random.default_rng(0)
    for case in cases:
        assert case.pixels.shape == (1, 16, 16) and all(mask.any() for mask in case.regions.values())
        same = random.normal(size=3).astype(np.float32), random.random((3, 4, 4), dtype=np.float32)
        add(tally, case, same, same)
    found = tally.summary()
    assert (found["images"], found["pairs"], found["hits_flipped"], found["worst"]) == (10, 30, 0, [])
    assert found["dice_change"] == found["auc_change"] == 0.0


def random_case(number: int, random: Any, patient: str) -> TrialImage:
    mask = region(*random.integers(0, 100, 2), *random.integers(120, 224, 2))
    return TrialImage(
        f"{number}", PIXELS, {number % 2: mask}, {0: number % 3 == 0, 1: number % 4 == 0}, patient=patient
    )


def test_intervals_of_a_change_are_paired_and_by_patient() -> None:
    """A naive bootstrap over patients gives the interval of the change of the mean over findings."""
    random = np.random.default_rng(5)
    tally, rows = Tally(("A", "B"), METRICS), []
    for number in range(60):
        case = random_case(number, random, f"p{number // 2}")
        pair = [(random.normal(size=2).astype(np.float32), random.random((2, 7, 7), dtype=np.float32)) for _ in "ab"]
        add(tally, case, *pair)
        one, two = (outcome(case, *each, METRICS) for each in pair)
        rows.append((number // 2, number % 2, two.dice[number % 2] - one.dice[number % 2]))
    found = tally.summary()["changes"]["dice"]
    table = np.array(rows)

    def mean(drawn: Any) -> float:
        chosen = np.concatenate([table[table[:, 0] == patient] for patient in drawn])
        return float(np.mean([chosen[chosen[:, 1] == finding, 2].mean() for finding in (0, 1)]))

    assert found["change"] == pytest.approx(mean(range(30))) and found["patients"] == 30
    other = np.random.default_rng(1)
    low, high = np.percentile([mean(other.integers(0, 30, 30)) for _ in range(2000)], [2.5, 97.5])
    assert (found["low"], found["high"]) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))
    assert found["high"] - found["low"] > 0.02


def test_an_unknown_label_counts_for_no_auc() -> None:
    tally, maps = Tally(("A",), METRICS), np.zeros((1, 7, 7), np.float32)
    for row, label in enumerate([{0: True}, {0: False}, {}, {0: True}, {0: False}]):
        score = np.float32([row]), maps
        add(tally, TrialImage(str(row), PIXELS, {}, label), score, score)
    assert tally.summary()["auc"] == [pytest.approx(roc_auc_score([1, 0, 1, 0], [0, 1, 3, 4]))] * 2


# The user's images


def names(data: TrialData) -> list[str]:
    return [case.name for case in data.cases]


def no_pixels(path: Path, geometry: Geometry) -> Any:
    raise AssertionError("nothing is read")


def folder(path: Path, *rows: str, header: str = "image,class,x_min,y_min,x_max,y_max") -> Path:
    (path / "images").mkdir()
    (path / "annotations.csv").write_text("\n".join([header, *rows]) + "\n")
    for name, size in (("a.png", (40, 20)), ("b.png", (20, 40))):
        values = np.random.default_rng(ord(name[0])).integers(0, 256, size[::-1], dtype=np.uint8)
        Image.fromarray(values).save(path / "images" / name)
    return path


def test_regions_and_pixels_are_those_of_an_evaluation(tmp_path: Path) -> None:
    place = folder(tmp_path, "a.png,Mass,0,0,20,10", "a.png,Mass,30,10,40,20", "a.png,Nodule,,,,", "b.png,,,,,")
    data = open_data(str(place))
    assert data.classes == ("Mass", "Nodule") and data.description == "the user's images" and len(data.sha256) == 64
    sets = {"other": ["Mass"], "more": ["Mass", "Nodule", "Edema", "Rod"], "both": ["Edema", "Nodule", "Mass"]}
    assert data.choose(sets) == "both"
    for geometry in (Geometry("squash", 112, 112, "bilinear"), Geometry("pad_crop", 32, 40, "area")):
        one, two = data.images(geometry, sets["both"])
        assert [one.name, two.name] == ["annotations.csv row 2", "annotations.csv row 5"]
        assert (one.labels, two.labels) == ({1: True, 2: True}, {1: False, 2: False}) and not two.regions
        np.testing.assert_array_equal(one.pixels[0], to_model(read_grey(place / "images" / "a.png"), geometry))
        wanted = region(0, 0, 112, 112) | region(112, 168, 224, 224)
        np.testing.assert_array_equal(one.regions[2], wanted)
    assert one.frame == (-0.3, 0.1, 1.3, 0.9) and one.patient != two.patient


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    data = open_data(str(folder(tmp_path, "a.png,Blob,0,0,1,1", "b.png,Blob,0,0,1,1", "c.png,Blob,0,0,1,1")))
    with pytest.raises(ConfigError, match="has the classes Blob, and no prompt set asks"):
        data.choose({"rsna": ["Pneumonia"]})
    geometry = Geometry("squash", 8, 8, "bilinear")
    assert len(list(data.images(geometry, ["Blob"]))) == 2 and data.left_out == {"unreadable": 1}
    (tmp_path / "images" / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"Most images of .* cannot be read, .*: "):
        list(data.images(geometry, ["Blob"]))
    (tmp_path / "xbench.toml").write_text('[datasets.mine]\nreader = "csv"\nroot = "."\n')
    with pytest.raises(ConfigError, match=r"mime is neither a folder nor a dataset .*did you mean 'mine'"):
        open_data("mime", tmp_path / "xbench.toml")
    (tmp_path / "empty" / ".thumbnails").mkdir(parents=True)
    for hidden in (".thumbnails/a.png", "._a.png"):
        (tmp_path / "empty" / hidden).touch()
    with pytest.raises(DataError, match=r"has no image .* and no annotations"):
        open_data(str(tmp_path / "empty"))


def test_datasets_are_named_as_eval_names_them(tmp_path: Path) -> None:
    place = folder(tmp_path, "a.png,Mass,0,0,20,10", "b.png,,,,,")
    (tmp_path / "xbench.toml").write_text('[datasets.mine]\nreader = "csv"\nroot = "."\n')
    by_name, by_path = open_data("mine", tmp_path / "xbench.toml"), open_data(f"csv={place}")
    assert by_name.description == "the dataset 'mine'" and by_path.description == "the dataset 'csv'"
    assert names(by_name) == names(by_path) == ["annotations.csv row 2", "annotations.csv row 3"]
    plain = open_data(str(place / "images"))
    assert plain.classes == () and names(plain) == ["a.png", "b.png"]


# Calibration apart from the verdict

GEOMETRY = Geometry("squash", 16, 16, "bilinear")


def many(path: Path, count: int, *, patients: int) -> TrialData:
    """Images of `count` different pixels, of so many patients in turn."""
    (path / "images").mkdir(parents=True)
    rows = ["image,class,x,y,width,height,patient_id"]
    for number in range(count):
        values = np.random.default_rng(number).integers(0, 256, (20, 20), dtype=np.uint8)
        Image.fromarray(values).save(path / "images" / f"{number}.png")
        rows.append(f"{number}.png,Mass,1,1,9,9,p{number % patients}")
    (path / "annotations.csv").write_text("\n".join(rows) + "\n")
    return open_data(str(path))


def test_one_dataset_is_parted_by_patients(tmp_path: Path) -> None:
    data = many(tmp_path / "d", 24, patients=12)
    chosen, rest = parted(data, None, 128, GEOMETRY)
    assert len(chosen.cases) + len(rest.cases) == 24 and 4 <= len(chosen.cases) <= 12
    assert not set(chosen.patients) & set(rest.patients)
    twin = open_data(f"csv={tmp_path / 'd'}")
    assert names(parted(data, twin, 128, GEOMETRY)[1]) == names(rest)
    assert len(list(rest.images(GEOMETRY, ["Mass"]))) == len(rest.cases) and not rest.left_out


def test_an_image_under_another_name_or_format_is_not_measured_when_it_calibrates(tmp_path: Path) -> None:
    data = many(tmp_path / "d", 8, patients=8)
    (tmp_path / "c").mkdir()
    for number in (2, 5):
        Image.open(tmp_path / "d" / "images" / f"{number}.png").save(
            tmp_path / "c" / f"other-{number}.png", optimize=True
        )
    chosen, rest = parted(open_data(str(tmp_path / "c")), data, 128, GEOMETRY)
    assert len(chosen.cases) == 2 and len(rest.cases) == 8
    seen = [case.name for case in rest.images(GEOMETRY, ["Mass"])]
    assert len(seen) == 6 and rest.left_out == {"calibrated": 2}
    assert not {"annotations.csv row 4", "annotations.csv row 7"} & set(seen)


def test_a_verdict_needs_annotated_images_of_its_own(tmp_path: Path) -> None:
    data = many(tmp_path / "d", 6, patients=1)
    plain = open_data(str(tmp_path / "d" / "images"))
    with pytest.raises(ConfigError, match="has no annotations, and a lower precision is judged by pointing"):
        parted(plain, None, 128, GEOMETRY)
    with pytest.raises(ConfigError, match="no image that is not calibrated on"):
        parted(data, None, 128, GEOMETRY)
    with pytest.raises(ConfigError, match="no image that is not calibrated on"):
        parted(plain, data, 128, GEOMETRY)


# The verdict


def change(value: float, low: float | None, high: float | None, patients: int = 50) -> dict[str, Any]:
    return {"change": value, "low": low, "high": high, "patients": patients}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"pointing": change(0.001, -0.0199, 0.0199)}, ""),
        ({"pointing": change(0.001, -0.0201, 0.01)}, "pointing changes by .0.10 points .95 % interval -2.01 to .1.00"),
        ({"pointing": change(0.001, -0.001, 0.0201)}, "allows 2 points either way"),
        ({"pointing": change(0, -0.01, 0.01), "auc": change(-0.02, -0.05, 0.01)}, "auc changes by -2.00"),
        ({"pointing": None, "dice": None, "auc": change(0, 0, 0)}, ""),
        ({"dice": change(0.03, None, None)}, "dice changes by .3.00 points on 9 images"),
        ({"dice": change(0, None, None)}, ""),
        ({"dice": change(0, 0, 0, patients=3)}, "comes from 3 patients, too few for an interval"),
        ({"pointing": None, "auc": None}, "neither a region nor a finding with both labels"),
    ],
)
def test_the_whole_interval_of_every_change_counts(entries: dict[str, Any], words: str) -> None:
    trial = PrecisionTrial(None, None, Path(), Path(), "int8", 1, METRICS)  # type: ignore[arg-type]
    found, data = {"images": 9, "changes": entries}, TrialData("mine", "here", (), no_pixels)
    reason = trial.refusal(found, 2.0, data)
    assert re.search(words, reason) if words else reason == ""
    assert trial.refusal(found, 2.0, None) == "", "probe pictures decide nothing"


def test_other_images_of_a_calibrated_patient_are_not_measured(tmp_path: Path) -> None:
    data = many(tmp_path / "d", 24, patients=12)
    chosen, rest = parted(data.only(range(12)), data, 128, GEOMETRY)
    assert len(chosen.cases) == 3 and len(rest.cases) == 18
    assert not set(chosen.patients) & set(rest.patients)


# Options of datasets, as eval has them


def test_a_dataset_takes_its_options(tmp_path: Path) -> None:
    """Given by NAME=PATH, by its name in the configuration, or as a folder, which is the dataset csv."""
    place = folder(tmp_path, "a.png,Mass,0,0,40,20", "b.png,,,,,")
    (place / "patients.csv").write_text("image,patient\na.png,p1\nb.png,p1\n")
    (tmp_path / "xbench.toml").write_text('[datasets.mine]\nreader = "csv"\nroot = "."\n')
    toml = tmp_path / "xbench.toml"
    for text, name in ((f"own={place}", "own"), ("mine", "mine"), (str(place), "csv")):
        options = [f"{name}.patients=patients.csv", *([f"{name}.reader=csv"] if name == "own" else [])]
        assert open_data(text, toml, *options).patients == ["patient p1", "patient p1"]
        if name != "own":
            assert open_data(text, toml).patients == ["a.png", "b.png"]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("mine.patients", r"^--data-option mine\.patients is not of the form NAME\.KEY=VALUE\.$"),
        ("mime.title=x", r"^--data-option mime\.title: neither --parity-data nor --calibration .*did you mean 'mine'"),
        ("mine.titel=x", "has no option 'titel': did you mean 'title'"),
    ],
)
def test_a_mistyped_option_is_one_sentence(tmp_path: Path, option: str, words: str) -> None:
    place = folder(tmp_path, "a.png,Mass,0,0,40,20")
    (tmp_path / "xbench.toml").write_text('[datasets.mine]\nreader = "csv"\nroot = "."\n')
    with pytest.raises(ConfigError, match=words):
        open_data("mine", tmp_path / "xbench.toml", option)
    assert place.is_dir()


def test_own_code_of_an_unnamed_file_is_told_and_stays_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `eval`: a reader in a Python file of ./xbench.toml is named before it runs, one from elsewhere refused."""
    (tmp_path / "data").mkdir()
    place = folder(tmp_path / "data", "a.png,Mass,0,0,40,20")
    (tmp_path / "mine.py").write_text(
        "from xbench_fast.runtime.data.datasets.formats.csv_boxes import CsvBoxes as Mine\n"
    )
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    table = f'[datasets.mine]\nreader = "mine.py:Mine"\nroot = "{place}"\n'
    (tmp_path / "xbench.toml").write_text(table)
    said: list[str] = []
    open_radiographs(["mine"], read_models(), say=said.append)
    assert len(said) == 1 and "mine.py" in said[0]
    (tmp_path / "here" / "xbench.toml").write_text(table.replace("mine.py", "../mine.py"))
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigError, match="--config"):
        open_data("mine")
