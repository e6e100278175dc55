"""Files of words: their scores, floors and ceilings against an independent implementation (docs/words.md §6, §7)."""

from __future__ import annotations

import csv
import gzip
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from box_world import command

FIXTURES = Path(__file__).parents[2] / "text"
EXPECTED = json.loads((FIXTURES / "expected_scores.json").read_text())
NAMES = ("oracle_zones", "mirrored", "bilateral", "finding_only")
KEYS = ("dice", "iou", "pointing", "inside", "laterality", "laterality_one_sided")
ZONES = ("zone_precision", "zone_recall", "zone_f1", "zone_exact")
Words = dict[str, dict[str, Any]]


def texts(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(FIXTURES / f"answers_{name}.jsonl.gz", "rt", encoding="utf-8")]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


def evaluate(world: Path, run: Path, *more: object) -> Words:
    """The numbers of the report of a run, by model."""
    data = ["--dataset", "chestxdet10", "--data", f"chestxdet10={world / 'data'}", "--data-option"]
    assert command("eval", *data, f"chestxdet10.patients={FIXTURES / 'patients.csv'}", "--out", run, *more) == 0
    assert command("report", run, "--no-page", "--replicates", "40") == 0
    return read(run)


def read(run: Path) -> Words:
    return {words["model"]: words for words in json.loads((run / "report/report.json").read_text())["words"]}


@pytest.fixture(scope="module")
def world(reference_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "data/test_data").mkdir(parents=True)
    shutil.copy(reference_files / "data/annotations/chestxdet10/test.json", folder / "data")
    for name in NAMES:
        write(folder / f"{name}.jsonl", texts(name))
    return folder


@pytest.fixture(scope="module")
def scored(world: Path) -> Words:
    files = [f"boxes:file_{name}={world / f'{name}.jsonl'}" for name in NAMES]
    floors = ["words:bilateral", "words:prior", f"mirrored:{world / 'oracle_zones.jsonl'}"]
    models = [option for name in (*files, *floors, "baseline:ones") for option in ("--model", name)]
    return evaluate(world, world / "run", *models)


@pytest.fixture(scope="module")
def on_image(world: Path) -> Words:
    models = [option for name in ("words:bilateral", "words:prior") for option in ("--model", name)]
    oracle = ["--model", f"boxes:{world / 'oracle_zones.jsonl'}"]
    return evaluate(world, world / "image", "--thorax", "image", *models, *oracle)


def check(words: dict[str, Any], expected: dict[str, Any], keys: tuple[str, ...] = KEYS, bound: str = "") -> None:
    """The means over classes, and each class, to 1e-9."""
    for key in keys:
        mean = expected[key]["classes"]
        assert words[f"{bound}{key}_percent"] == (None if mean is None else pytest.approx(100 * mean, abs=1e-7)), key
        for row in words["classes"]:
            if row["finding"] in expected[key]["by"]:
                value = expected[key]["by"][row["finding"]]
                assert row[f"{bound}{key}_percent"] == pytest.approx(100 * value, abs=1e-7), (key, row["finding"])


def test_every_file_has_the_scores_of_the_reference(scored: Words) -> None:
    for name in NAMES:
        words, expected = scored[f"words:file_{name}"], EXPECTED["answers"][name]
        check(words, expected, KEYS + ZONES)
        assert words["pairs"] == 966 and words["negatives_asked"] == expected["negatives_asked"]
        states = {key: words[key] for key in ("answered", "unlocated", "denied", "other", "not_read", "missing")}
        assert {key: count for key, count in states.items() if count} == expected["states"]
        assert sum(states.values()) + words["foreign"] + words["empty"] == 966
        assert words["zones_stated"] == (0 if name == "finding_only" else 966)
        for key in ("said_present", "said_present_located"):
            assert words[f"{key}_percent"] / 100 == pytest.approx(expected[key], abs=1e-9)
    said = scored["words:file_finding_only"]
    assert said["said_present_low"] < said["said_present_percent"] < said["said_present_high"]


@pytest.mark.parametrize("frame", ["thorax", "image"])
def test_floors_and_ceilings_are_those_of_the_reference(frame: str, scored: Words, on_image: Words) -> None:
    expected = EXPECTED["floors_and_ceilings"][f"chestxdet10/{frame}"]
    words = scored if frame == "thorax" else on_image
    for name in ("bilateral", "prior"):
        check(words[f"words:{name}"], expected[name], KEYS + ZONES)
    oracle = words["words:file_oracle_zones" if frame == "thorax" else "words:oracle_zones"]
    assert {row["frame"] for row in oracle["classes"]} == {frame}
    if frame == "thorax":  # whose zones the file names
        check(words["mirrored:oracle_zones"], expected["mirrored"], KEYS + ZONES)
        check(oracle, expected["oracle"], KEYS + ZONES)
    ceiling = expected["ceiling"]
    check(oracle, ceiling, ("dice", "iou", "pointing"), "ceiling_")
    zones = {key: ceiling[f"{key}_zones"] for key in ("dice", "iou")}
    check(oracle, zones, ("dice", "iou"), "ceiling_zones_")
    for bound in ("oracle", "bilateral", "prior"):
        check(oracle, expected[bound], ("dice", "iou", "pointing"), f"{bound}_")
    right, left, both, central = (sum(row) for row in oracle["sides"])
    assert {"R": right, "L": left, "B": both, "C": central} == expected["sides"]


@pytest.mark.parametrize(
    ("dataset", "files"),
    [
        ("rsna", ("rsna/full/stage_2_train_labels.csv", "rsna/full/medklip_test.csv")),
        ("chestxray14", ("nih_cxr14/BBox_List_2017.csv",)),
    ],
)
def test_other_datasets_have_the_bounds_of_the_reference(
    dataset: str, files: tuple[str, ...], shared: Path, tmp_path: Path
) -> None:
    """Without images, whose sizes the readers know."""
    truth, *lists = (shared / "data/annotations" / name for name in files)
    (tmp_path / "data").mkdir()
    shutil.copy(truth, tmp_path / "data")
    where = ["--dataset", dataset, "--data", f"{dataset}={tmp_path / 'data'}", "--out", tmp_path / "run"]
    where += [option for path in lists for option in ("--data-option", f"{dataset}.list={path}")]
    assert command("eval", *where, "--model", "words:bilateral", "--model", "words:prior") == 0
    assert command("report", tmp_path / "run", "--no-page", "--replicates", "0") == 0
    reference = json.loads((shared / "text/expected_scores.json").read_text())
    scores, expected = read(tmp_path / "run"), reference["floors_and_ceilings"][f"{dataset}/thorax"]
    for name in ("bilateral", "prior"):
        check(scores[f"words:{name}"], expected[name], KEYS + ZONES)
    check(scores["words:prior"], expected["ceiling"], ("dice", "iou", "pointing"), "ceiling_")
    check(scores["words:prior"], expected["oracle"], ("dice", "iou", "pointing"), "oracle_")
    sides = dict(zip("RLBC", map(sum, scores["words:prior"]["sides"]), strict=True))
    assert {side: count for side, count in sides.items() if count} == expected["sides"]


def test_no_row_passes_its_ceiling_and_shares_are_ratios(scored: Words) -> None:
    for words in scored.values():
        for key in ("dice", "iou", "pointing"):
            assert words[f"{key}_percent"] <= words[f"ceiling_{key}_percent"] + 1e-9
            share = words[f"{key}_percent"] / words[f"ceiling_{key}_percent"]
            assert words[f"share_of_ceiling_{key}_percent"] == pytest.approx(100 * share)
    oracle = scored["words:file_oracle_zones"]
    assert oracle["share_of_ceiling_dice_percent"] < oracle["share_of_ceiling_dice_high"] < 100
    assert oracle["zone_f1_percent"] == oracle["laterality_one_sided_percent"] == 100


def test_only_a_mirrored_file_seems_to_name_sides_of_the_image(scored: Words) -> None:
    for name, words in scored.items():
        assert ("sides seem to be those of the image" in words["file"]["frame_check"]) == (
            name == "words:file_mirrored"
        )


def test_words_stand_beside_others_in_shared_columns_alone(world: Path, scored: Words) -> None:
    report = json.loads((world / "run/report/report.json").read_text())
    assert "boxes" not in report and not (world / "run/report/boxes.csv").exists()
    cells = {cell["model"]: cell["grounding"]["macro"] for cell in report["cells"]}
    assert cells["words:file_mirrored"]["dice_fixed"] * 100 == pytest.approx(
        scored["words:file_mirrored"]["dice_percent"]
    )
    assert cells["words:file_mirrored"]["dice_best"] is None
    text = (world / "run/report/tables.md").read_text()
    assert text.count("frame thorax; a zone score below 100 is no proof of a wrong zone") > 2
    titles = ("Table 1", "ChestX-Det10: words")
    first, of_words = (text.split(f"## {title}")[1].split("\n## ")[0] for title in titles)
    assert not [line for line in first.splitlines() if line.startswith("| words") and "**" in line]
    assert [line for line in of_words.splitlines() if "oracle" in line and "**" in line]


def test_a_report_needs_neither_file_nor_dataset(world: Path, scored: Words, tmp_path: Path) -> None:
    shutil.copytree(world / "run", tmp_path / "run", ignore=shutil.ignore_patterns("report", "prepared"))
    (world / "data").rename(world / "gone")
    files = [file.rename(file.with_suffix(".gone")) for file in world.glob("*.jsonl")]
    try:
        assert command("report", tmp_path / "run", "--no-page", "--replicates", "40") == 0
    finally:
        (world / "gone").rename(world / "data")
        for file in files:
            file.rename(file.with_suffix(".jsonl"))
    assert (tmp_path / "run/report/words.csv").read_bytes() == (world / "run/report/words.csv").read_bytes()
    assert read(tmp_path / "run").keys() == scored.keys()
    with (world / "run/report/words.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 7 * 11 and [row["finding"] for row in rows[:11]][-1] == ""


def swapped(line: dict[str, Any]) -> dict[str, Any]:
    text = line.get("text", "").replace("left", "LEFT").replace("right", "left").replace("LEFT", "right")
    return {**line, "text": text} if "text" in line else line


def boxes_of(run: Path, model: str) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    file = json.loads((run / "run.json").read_text())["cells"][f"{model}--chestxdet10"]["file"]
    yield from (row for row in pq.read_table(run / file).to_pylist() if row["answer"] and row["answer"]["region"])


def test_the_same_places_as_boxes_score_the_same(world: Path, scored: Words, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"xbench_boxes": 1, "frame": "pixels"}]
    for row in boxes_of(world / "run", "words:file_mirrored"):
        flat = row["answer"]["boxes"]
        boxes = [flat[at : at + 4] for at in range(0, len(flat), 4)]
        lines.append({"case": row["case_id"], "finding": row["finding"], "boxes": boxes})
    data = ["--dataset", "chestxdet10", "--data", f"chestxdet10={world / 'data'}", "--out", tmp_path / "run"]
    assert command("eval", *data, "--model", f"boxes:{write(tmp_path / 'b.jsonl', lines)}") == 0
    assert command("report", tmp_path / "run", "--no-page", "--replicates", "0") == 0
    report = json.loads((tmp_path / "run/report/report.json").read_text())
    (cell,), (boxes,) = report["cells"], report["boxes"]
    words = scored["words:file_mirrored"]
    for key, value in (("dice", "dice_fixed"), ("iou", "iou_fixed"), ("pointing", "pointing")):
        assert 100 * cell["grounding"]["macro"][value] == pytest.approx(words[f"{key}_percent"], abs=1e-9)
    assert boxes["inside_percent"] == pytest.approx(words["inside_percent"], abs=1e-9)


def test_both_lungs_of_the_image_are_the_baseline_of_ones(world: Path, on_image: Words, scored: Words) -> None:
    cells = json.loads((world / "run/report/report.json").read_text())["cells"]
    (ones,) = [cell["grounding"]["macro"] for cell in cells if cell["model"] == "baseline:ones"]
    bilateral = on_image["words:bilateral"]
    assert bilateral["dice_percent"] == pytest.approx(100 * ones["dice_fixed"], abs=1e-9)
    assert bilateral["iou_percent"] == pytest.approx(100 * ones["iou_fixed"], abs=1e-9)


def test_mirrored_texts_and_boxes_mirror_zones_and_sides(world: Path, scored: Words, tmp_path: Path) -> None:
    (tmp_path / "data/test_data").mkdir(parents=True)
    entries = json.loads((world / "data/test.json").read_text())
    for entry in entries:
        entry["boxes"] = [[1024 - x2, y1, 1024 - x1, y2] for x1, y1, x2, y2 in entry["boxes"]]
    (tmp_path / "data/test.json").write_text(json.dumps(entries))
    file = write(tmp_path / "m.jsonl", [swapped(line) for line in texts("oracle_zones")])
    evaluate(tmp_path, tmp_path / "run", "--model", f"boxes:{file}")
    other = {0: 0, 1: 2, 2: 1, 3: 3}
    before = list(boxes_of(world / "run", "words:file_oracle_zones"))
    after = list(boxes_of(tmp_path / "run", "words:m"))
    moved = []
    for old, new in zip(before, after, strict=True):
        a, b = old["answer"]["words"], new["answer"]["words"]
        for key in ("stated", "true"):
            assert b[key] == (a[key] >> 3) | (a[key] & 7) << 3, (old["case_id"], key)
            assert b[f"{key}_sides"] == other[a[f"{key}_sides"]]
        dice = [2 * row["overlap"][50] / (row["area"][50] + row["region_area"]) for row in (old, new)]
        moved.append(dice[0] - dice[1])
    assert len(moved) == 966 and max(map(abs, moved)) <= 0.015
    assert abs(math.fsum(moved)) / 966 <= 0.00014


def small(folder: Path, lines: list[dict[str, Any]], *more: object, model: str = "mine") -> dict[str, Any]:
    """The numbers of words about three films of ChestX-Det10: Effusion on one, on two, and a film without it."""
    data = folder / "data"
    if not data.exists():
        (data / "test_data").mkdir(parents=True)
        films = {
            "a": (["Effusion"], [[100, 500, 400, 800]]),
            "b": (["Effusion"], [[600, 600, 800, 800]]),
            "c": ([], []),
        }
        entries = [{"file_name": f"{name}.png", "syms": s, "boxes": b} for name, (s, b) in films.items()]
        (data / "test.json").write_text(json.dumps(entries))
    file = write(folder / f"{model}.jsonl", [{"xbench_boxes": 1, "dialect": "text"}, *lines])
    run = folder / f"run{len(list(folder.glob('run*')))}"
    where = ["--dataset", "chestxdet10", "--data", f"chestxdet10={data}", "--out", run]
    assert command("eval", *where, "--model", f"boxes:{file}", *more) == 0
    assert command("report", run, "--no-page", "--replicates", "0") == 0
    (words,) = read(run).values()
    return words


def line(case: str, text: str, finding: str = "Effusion") -> dict[str, Any]:
    return {"case": case, "finding": finding, "text": text}


def test_what_is_said_of_absent_findings(tmp_path: Path) -> None:
    said = [line("a", "Right effusion."), line("b", "Effusion.")]
    for text, present, located in [
        ("No effusion.", 0, 0), ("Effusion.", 100, 0), ("Left effusion.", 100, 100), ("Cardiomegaly.", 0, 0),
    ]:  # fmt: skip
        words = small(tmp_path, [*said, line("c", text)])
        assert (words["said_present_percent"], words["said_present_located_percent"]) == (present, located)
        assert (words["sensitivity_percent"], words["answered"], words["unlocated"]) == (100, 1, 1)
        assert words["dice_percent"] == words["classes"][0]["dice_percent"] or words["dice_percent"] > 0


def test_tables_of_boxes_have_dashes_for_words(tmp_path: Path) -> None:
    small(tmp_path, [line("a", "Right effusion.")])
    (answers := tmp_path / "b.jsonl").write_text('{"case": "a", "finding": "Effusion", "boxes": [], "frame": "pixels"}')
    where = ["--dataset", "chestxdet10", "--data", f"chestxdet10={tmp_path / 'data'}", "--out", tmp_path / "both"]
    models = ["--model", f"boxes:{tmp_path / 'mine.jsonl'}", "--model", f"boxes:{answers}"]
    assert command("eval", *where, *models) == 0
    assert command("report", tmp_path / "both", "--no-page", "--replicates", "0") == 0
    text = (tmp_path / "both/report/tables.md").read_text()
    matched, published = (text.split(f"## ChestX-Det10: {name}")[1].split("\n## ")[0] for name in ("matched", "publ"))
    (row,) = [row for row in matched.splitlines() if row.startswith("| words:mine")]
    assert set(row.split(" | ")[1:]) == {"-", "- |"} and "words:mine: words; a zone is no box" in matched
    assert "| words:mine |" in published and "words; a zone is no box" in published
    said = read(tmp_path / "both")["words:mine"]
    dice, iou, point = (f"{said[f'ceiling_{key}_percent']:.2f}" for key in ("dice", "iou", "pointing"))
    limit = f"words:mine on ChestX-Det10: words reach at most Dice {dice}, IoU {iou} and Point {point} (ceiling"
    assert limit in text.split("## Differences between models: ChestX-Det10")[1]
    models = ("--model", "words:mine", "--model", "boxes:b", "--replicates", "0", "--markdown", tmp_path / "c.md")
    assert command("compare", tmp_path / "both", *models, "--json", tmp_path / "c.json") == 0
    (sentence,) = json.loads((tmp_path / "c.json").read_text())["limits"]
    assert sentence.startswith(limit) and sentence in (tmp_path / "c.md").read_text()


def test_uncertain_words_count_as_asked(tmp_path: Path) -> None:
    said = [line("a", "Possible effusion in the right lower zone."), line("b", "Possible effusion at the left base.")]
    present, absent = (small(tmp_path, said, *more) for more in ((), ("--uncertain", "absent")))
    assert (present["answered"], present["uncertain"], present["zone_exact_percent"]) == (2, 2, 50)
    assert (absent["answered"], absent["denied"], absent["dice_percent"], absent["sensitivity_percent"]) == (0, 2, 0, 0)


def test_sentences_in_another_order_change_only_pointing(tmp_path: Path) -> None:
    one, other = "Small right effusion.", "Effusion at the left base."
    first, second = (
        small(tmp_path, [line("a", a), line("b", b)]) for a, b in ((f"{one} {other}",) * 2, (f"{other} {one}",) * 2)
    )
    keys = [key for key in first if key.endswith("_percent") and "pointing" not in key and key != "classes"]
    assert {key: first[key] for key in keys} == {key: second[key] for key in keys}
    assert (first["pointing_percent"], second["pointing_percent"]) == (0, 50) and first["size_words"] == 2


def test_masks_of_the_lungs_move_the_places_of_a_run(tmp_path: Path) -> None:
    from PIL import Image

    said = [line("a", "Effusion in the right lower zone."), line("b", "Effusion in the left lower zone.")]
    fixed = small(tmp_path, said)
    for name, shift in (("same", 0), ("moved", 10)):
        (tmp_path / name).mkdir()
        for case in "ab":
            for side, start in (("right", 14), ("left", 50)):
                mask = Image.new("L", (100, 100))
                mask.paste(255, (start + shift, 12, start + 36 + shift, 82))
                mask.save(tmp_path / name / f"{case}_{side}.png")
    same, moved = (small(tmp_path, said, "--lungs", tmp_path / name) for name in ("same", "moved"))
    keys = [key for key in fixed if key.endswith("_percent")]
    assert {key: same[key] for key in keys} == {key: fixed[key] for key in keys} and same["frame_fixed"] == 0
    assert moved["dice_percent"] != fixed["dice_percent"] and same["file"]["words"]["frame"] == "lungs"
    (tmp_path / "moved/b_left.png").unlink()
    assert small(tmp_path, said, "--lungs", tmp_path / "moved")["frame_fixed"] == 1
    text = max(tmp_path.glob("run*")).joinpath("report/tables.md").read_text()
    assert "frame lungs, of 1 pairs without usable masks the fixed one" in text


def test_texts_that_are_not_english_end_with_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path, [line("a", "Effusion."), line("b", "Effusion.")])
    file = write(
        tmp_path / "f.jsonl", [{"xbench_boxes": 1, "dialect": "text"}, *(line(c, "Kein Erguss.") for c in "ab")]
    )
    where = ["--dataset", "chestxdet10", "--data", f"chestxdet10={tmp_path / 'data'}", "--out", tmp_path / "other"]
    assert command("eval", *where, "--model", f"boxes:{file}") == 1
    said = (
        "2 of 2 answers (100.0%) could not be read; the first is line 2: 'Kein Erguss.'; the texts are most likely not"
    )
    assert said in capsys.readouterr().err


def test_lateral_images_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "films.py").write_text(
        "from pathlib import Path\n"
        "from xbench_fast.runtime.data.datasets.dataset import Case, Dataset\n"
        "from xbench_fast.runtime.data.datasets.region_boxes import Boxes\n"
        "class Films(Dataset):\n"
        "    name = title = 'films'\n"
        "    classes = ('Effusion',)\n"
        "    def read(self, notes):\n"
        "        return [Case(n, self.root / f'{n}.png', {'Effusion': int(n != 'c')},\n"
        "            {'Effusion': Boxes(((100, 500, 400, 800),))} if n != 'c' else {}, 'test', size=(1024, 1024),\n"
        "            attributes={'view': 'LL' if n != 'a' else 'PA'}) for n in 'abc']\n"
        "    def sources(self):\n"
        "        return []\n"
    )
    (tmp_path / "empty").mkdir()
    file = write(
        tmp_path / "m.jsonl", [{"xbench_boxes": 1, "dialect": "text"}, *(line(c, "Right effusion.") for c in "abc")]
    )
    data = ["--dataset", "films", "--data", f"films={tmp_path / 'empty'}"]
    data += ["--data-option", f"films.reader={tmp_path / 'films.py'}:Films"]
    assert command("eval", *data, "--model", f"boxes:{file}", "--out", tmp_path / "run") == 0
    assert command("report", tmp_path / "run", "--no-page", "--replicates", "0") == 0
    (words,) = read(tmp_path / "run").values()
    assert (words["pairs"], words["not_frontal"], words["negatives_asked"], words["answered"]) == (1, 2, 0, 1)


def test_a_data_frame_has_the_numbers_of_words(world: Path, scored: Words) -> None:
    import xbench_fast as xb

    table = xb.load_run(world / "run").table("words", replicates=0)
    rows = table[(table.model == "words:file_oracle_zones") & (table.finding == "")].set_index("metric")
    assert (rows.n["sensitivity"], rows.n["said_present"]) == (966, 421)
    rows = rows.value
    words = scored["words:file_oracle_zones"]
    for key in ("dice", "ceiling_zones_iou", "laterality_one_sided", "share_of_ceiling_dice", "sensitivity"):
        assert 100 * rows[key] == pytest.approx(words[f"{key}_percent"])


def test_the_check_of_a_file_says_what_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path, [line("a", "Right effusion.")], "--missing", "leave-out")
    said = [line("a", "The image is of good quality."), line("b", "Cardiomegaly."), line("c", "Kein Erguss.")]
    file = write(tmp_path / "f.jsonl", [{"xbench_boxes": 1, "dialect": "text"}, *said])
    capsys.readouterr()
    where = ["--dataset", "chestxdet10", "--data", f"chestxdet10={tmp_path / 'data'}"]
    assert command("boxes", "check", file, *where, "--json", tmp_path / "c.json") == 1
    words = json.loads((tmp_path / "c.json").read_text())["words"]
    assert words["texts"] == {
        "not_read": ["line 2: 'The image is of good quality.'"], "other": ["line 3: 'Cardiomegaly.'"],
    }  # fmt: skip
    assert (words["positive"]["not_read"], words["positive"]["other"], words["negative"]["foreign"]) == (1, 1, 1)
    assert "not read: line 2: 'The image is of good quality.'" in capsys.readouterr().out
