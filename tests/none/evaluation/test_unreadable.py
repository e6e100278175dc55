"""What could not be read is named with its reason, and a cell that is mostly unreadable fails the command."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import xbench_fast as xb
from evaluation_world import World
from PIL import Image
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.host.config import DatasetConfig


def png(mode: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8), 9, np.uint8)).convert(mode).save(stream, "PNG")
    return stream.getvalue()


def npy(values: np.ndarray) -> bytes:  # type: ignore[type-arg]
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


BAD = {
    "RGB.png": (png("RGB"), "its pixels are of the kind 'RGB'; a map is grey, not coloured."),
    "palette.png": (png("P"), "its pixels are of the kind 'P'; a map is grey, not coloured."),
    "shape.npy": (npy(np.zeros((8, 8, 3))), "its array has the shape (8, 8, 3), a map has two dimensions."),
    "type.npy": (npy(np.array([["a", "b"], ["c", "d"]])), "a map holds real numbers."),
    "damage.png": (png("L")[:50], "cannot be read: it is damaged"),
    "damage.npy": (npy(np.zeros((8, 8)))[:-9], "cannot be read: it is damaged"),
    "text.npy": (b"text", "it is damaged or no file of this kind"),
}


def maps(root: Path, folder: Path, bad: tuple[bytes, str], *, good: int, suffix: str) -> Path:
    """A map of every region; all but the first `good` cases have one with the content `bad`."""
    document = json.loads((root / "annotations.json").read_text())
    cases = list(dict.fromkeys(item["image_id"] for item in document["annotations"]))
    for item in document["annotations"]:
        place = folder / item["image_id"]
        place.mkdir(parents=True, exist_ok=True)
        name = ("Mass", "Effusion")[item["category_id"] - 1]
        if cases.index(item["image_id"]) < good:
            (place / f"{name}.npy").write_bytes(npy(np.arange(64.0).reshape(8, 8)))
        else:
            (place / f"{name}{suffix}").write_bytes(bad[0])
    return folder


def without_sizes(root: Path) -> Path:
    """A dataset whose annotations state no sizes, so that a baseline lacks missing images too."""
    document = json.loads((root / "annotations.json").read_text())
    for item in document["images"]:
        del item["height"], item["width"]
    (root / "annotations.json").write_text(json.dumps(document))
    return root


def status(*arguments: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code


@pytest.mark.parametrize("kind", BAD)
def test_the_reason_stands_in_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """Ten of 20 cases have regions: with five of them unreadable the command succeeds, with six it does not."""
    root, suffix = make_dataset(tmp_path / "data"), kind[kind.index(".") :]
    for good, code in ((5, 0), (4, 1)):
        folder, out = maps(root, tmp_path / f"m{good}", BAD[kind], good=good, suffix=suffix), tmp_path / f"run{good}"
        eval_ = ("eval", "--model", f"maps:{folder}", "--dataset", "coco", "--data", f"coco={root}", "--out", out)
        assert status(*eval_) == code
        told = capsys.readouterr()
        line = told.out.replace("\n", " ")
        lost = 10 - good
        assert f"0 saliency maps missing, {lost} unreadable; the first unreadable one: case00" in line
        assert BAD[kind][1] in line and "images are" not in line and "--decode" not in line
        error = f"Error: maps:m{good} on coco: {lost} of 10 cases with a region have unreadable saliency maps"
        assert (error in told.err) == bool(code) and (BAD[kind][1].rstrip(".") in told.err) == bool(code)
        if kind != "RGB.png":
            continue
        assert status(*eval_) == code, "a second time, when the result is reused"
        assert (error in capsys.readouterr().err) == bool(code)
        with pytest.raises(RunError, match="6 of 10 cases") if code else pytest.MonkeyPatch.context():
            xb.evaluate(f"maps:{folder}", "coco", root, out=out, progress=False)
        status("report", out, "--no-page", "--quiet")
        assert f"{lost} of 20 cases have no readable saliency map" in (out / "report/tables.md").read_text()


def test_a_missing_map_is_named_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_dataset(tmp_path / "data")
    folder = maps(root, tmp_path / "m", BAD["RGB.png"], good=20, suffix=".png")
    for case in ("case0003", "case0004", "case0006", "case0008", "case0009", "case0015"):
        shutil.rmtree(folder / case)
    model = ("--model", f"maps:{folder}", "--dataset", "coco", "--data", f"coco={root}")
    assert status("eval", *model, "--out", tmp_path / "run") == 1
    told = capsys.readouterr()
    line = told.out.replace("\n", " ")
    assert "6 saliency maps missing, 0 unreadable; the first missing one: case0003: there is no map of 'Mass'" in line
    assert (
        "6 of 10 saliency maps of the cases with a region (60%) are missing, so its numbers stand for the other 4: "
        in (told.err)
    )
    assert status("eval", *model, "--data-option", "coco.part=true", "--out", tmp_path / "run") == 0
    maps(root, tmp_path / "m", BAD["RGB.png"], good=20, suffix=".png")
    for case in ("case0003", "case0004", "case0006", "case0008"):
        shutil.rmtree(folder / case)
    assert status("eval", *model, "--out", tmp_path / "run") == 0


@pytest.mark.parametrize(("bad", "missing", "fails"), [(10, 0, False), (11, 0, True), (8, 5, True), (0, 9, False)])
def test_images_count_where_they_exist(tmp_path: Path, bad: int, missing: int, fails: bool) -> None:
    root = make_dataset(tmp_path / "data", missing=tuple(range(20 - missing, 20)))
    for index in range(bad):
        (root / f"images/case{index:04d}.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    world = World(tmp_path)
    outcome = world.run([make_bundle(tmp_path / "blocks-32").path], [DatasetConfig("coco", root, "coco")])
    assert (outcome.computed, outcome.failed) == (1, [])
    line = next(line for line in world.lines if "cases/s" in line)
    assert f"{missing} images missing, {bad} unreadable" in line
    assert "(xbench-fast datasets check coco --decode names them)" in line
    assert ("case0000.png cannot be read" in line) == bool(bad)
    told = [sentence for _, _, sentence in outcome.mostly_lost]
    assert bool(told) == fails and all(
        text.startswith(f"{bad} of {20 - missing} images are unreadable") for text in told
    )


OPTION = "part = true in [datasets.coco] of the configuration file or --data-option coco.part=true."


@pytest.mark.parametrize(
    ("bad", "missing", "sentence"),
    [
        (0, 10, "10 of 20 images (50%) are missing, so its numbers stand for the other 10: case0010: "),
        (0, 19, "19 of 20 images (95%) are missing, so its numbers stand for the other 1: case0001: "),
        (
            6,
            5,
            "5 of 20 images (25%) are missing and 6 are unreadable, so its numbers stand for the other 9: case0015: ",
        ),
    ],
)
def test_missing_images_end_with_an_error_unless_a_part_is_meant(
    tmp_path: Path, bad: int, missing: int, sentence: str
) -> None:
    """The cells are kept: with `part` the same rows are reused, and without it the error stands again."""
    root = make_dataset(tmp_path / "data", missing=tuple(range(20 - missing, 20)))
    for index in range(bad):
        (root / f"images/case{index:04d}.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    bundle, config = make_bundle(tmp_path / "blocks-32").path, DatasetConfig("coco", root, "coco")
    whole = World(tmp_path).run([bundle], [config])
    assert (whole.computed, whole.failed) == (1, [])
    ((_, _, told),) = whole.mostly_lost
    assert told.startswith(sentence) and told.endswith(OPTION)
    part = World(tmp_path).run([bundle], [config.with_option("part", True)])
    assert (part.computed, part.reused, part.mostly_lost) == (0, 1, [])
    assert World(tmp_path).run([bundle], [config]).mostly_lost == whole.mostly_lost


@pytest.mark.parametrize(("missing", "option", "expected"), [(12, "", 1), (12, "coco.part=true", 0), (4, "", 0)])
def test_merged_shards_end_as_one_piece_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: int, option: str, expected: int
) -> None:
    root = without_sizes(make_dataset(tmp_path / "data", missing=tuple(range(20 - missing, 20))))
    how = ["--data", f"coco={root}", "--model", "baseline:center", *(["--data-option", option] if option else [])]
    out = ["--out", str(tmp_path / "run")]
    assert status("eval", *how, "--out", str(tmp_path / "piece")) == expected
    for shard in ("1/2", "2/2"):
        status("eval", *how, *out, "--chunk", "4", "--shard", shard)
    capsys.readouterr()
    shards = [str(tmp_path / f"run/shard-{index}-of-2") for index in (1, 2)]
    for _ in ("merged", "merged before"):
        assert status("merge", *shards, *out) == expected
        told = capsys.readouterr()
        assert ("are missing, so its numbers stand for" in told.err) == bool(expected)
        assert "images missing, 0 unreadable" in told.out + told.err


def test_merged_shards_of_a_file_of_boxes_end_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, file = make_dataset(tmp_path / "data"), tmp_path / "answers.jsonl"
    lines = [{"xbench_boxes": 1, "frame": "pixels"}, {"case": "case0000", "finding": "Mass", "boxes": []}]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    how = ["--data", f"coco={root}", "--model", f"boxes:{file}", "--out", str(tmp_path / "run")]
    for shard in ("1/2", "2/2"):
        assert status("eval", *how, "--chunk", "4", "--shard", shard) == 1
    capsys.readouterr()
    shards = [str(tmp_path / f"run/shard-{index}-of-2") for index in (1, 2)]
    assert status("merge", *shards, "--out", str(tmp_path / "run")) == 1
    assert "have no line and are scored as silent" in capsys.readouterr().err


def test_a_part_can_still_be_mostly_unreadable(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "data", missing=tuple(range(10, 20)))
    for index in range(6):
        (root / f"images/case{index:04d}.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    config = DatasetConfig("coco", root, "coco", part=True)
    outcome = World(tmp_path).run([make_bundle(tmp_path / "blocks-32").path], [config])
    ((_, _, told),) = outcome.mostly_lost
    assert told.startswith("6 of 10 images are unreadable")


def test_the_command_ends_with_1_from_half_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = without_sizes(make_dataset(tmp_path / "data", missing=tuple(range(12))))
    made = ("eval", "--model", "baseline:center", "--dataset", "mine", "--out", tmp_path / "run", "--config")
    config = tmp_path / "xbench.toml"
    for line, code in (("", 1), ("part = true", 0), ("part = false", 1), ('part = "yes"', 2)):
        config.write_text(f'[datasets.mine]\nreader = "coco"\nroot = "{root}"\n{line}\n')
        assert status(*made, config) == code, line
    told = capsys.readouterr().err
    assert told.count("6 of 10 images (60%) are missing, so its numbers stand for the other 4") == 2
    assert "datasets.mine" in told.splitlines()[-1] and "part" in told.splitlines()[-1]
    assert status(*made, config, "--data-option", "mine.part=yes") == 2
