"""`xbench-fast dicom` on a folder with films and with files that are none, run twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import dicom_films
import numpy as np
import pytest
from dicom_films import CANARY
from PIL import Image
from synthetic import make_served

pydicom = pytest.importorskip("pydicom")
for package in ("highdicom", "onnx", "onnxruntime"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """models/, and films/ with three films, a CT, a multi-frame film, a picture, a text and half a file."""
    folder = make_served(tmp_path_factory.mktemp("command"))
    films = folder / "films"
    (films / "more").mkdir(parents=True)
    for name in dicom_films.NAMES:
        # A name without a caret: highdicom would print a warning that quotes it.
        (films / f"{name}.dcm").write_bytes(dicom_films.film(name, PatientName=CANARY))
    (films / "more" / "ct.dcm").write_bytes(dicom_films.film("sc", Modality="CT", SOPInstanceUID="1.2.5"))
    (films / "more" / "frames").write_bytes(dicom_films.film("sc", NumberOfFrames=2, SOPInstanceUID="1.2.6"))
    (films / "more" / "half").write_bytes(dicom_films.film("inverted", SOPInstanceUID="1.2.7")[:40_000])
    (films / "notes.txt").write_text("no image")
    Image.fromarray(np.zeros((40, 40), np.uint8)).save(films / "picture.png")
    return folder


def command(world: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "xbench_fast.runtime.cli", "dicom", "--bundle", "models/blocks-32", "--out", "out"]
    return subprocess.run([*line, *map(str, arguments)], cwd=world, capture_output=True, text=True, check=False)


def test_objects_are_written_kept_and_refused(world: Path) -> None:
    asked = ("--finding", "Mass", "--finding", "Effusion", "--json", "first.json")
    first = command(world, "films", *asked)
    lines = first.stdout.splitlines()
    assert first.returncode == 1 and not first.stderr
    problems = [line for line in lines if " gets no DICOM objects: " in line or " cannot be read: " in line]
    assert sorted(Path(line.split()[0]).name for line in problems) == ["ct.dcm", "frames", "half", "picture.png"]
    assert "3 films: 15 objects written, 0 kept, 0 refused; 4 files without objects" in lines
    summary = json.loads((world / "first.json").read_text())
    assert (summary["films"], summary["written"], summary["without_objects"]) == (3, 15, 4)
    remarks = {Path(item["film"]).stem: "remark" in item for item in summary["results"] if "problem" not in item}
    assert remarks == {"sc": False, "inverted": True, "undated": True}
    files = {path.name: path.read_bytes() for path in (world / "out").iterdir()}
    assert {item["file"] for film in summary["results"] for item in film.get("written", ())} == files.keys()

    second = command(world, "films/sc.dcm", *asked[:-2])
    assert second.returncode == 0 and "1 film: 0 objects written, 5 kept, 0 refused" in second.stdout
    path, content = next((name, data) for name, data in sorted(files.items()) if "-mask-" in name)
    data = pydicom.dcmread(world / "out" / path)
    data.ContentDescription = "of another writer"
    data.save_as(world / "out" / path)
    changed = (world / "out" / path).read_bytes()
    third = command(world, *(f"films/{name}.dcm" for name in dicom_films.NAMES), *asked[:-2])
    assert third.returncode == 1 and "3 films: 0 objects written, 14 kept, 1 refused" in third.stdout
    assert f"out/{path} differs from the object" in third.stdout
    assert (world / "out" / path).read_bytes() == changed != content
    others = {path.name: path.read_bytes() for path in (world / "out").iterdir()} | {path: content}
    assert others == files

    for text in (first, second, third):
        assert CANARY not in text.stdout + text.stderr
    assert CANARY not in (world / "first.json").read_text() and not any(CANARY in name for name in files)


def test_without_a_finding_the_highest_one_is_written(world: Path) -> None:
    done = command(world, "films/sc.dcm", "--out", "highest", "--kind", "map", "--json", "-")
    (film,) = json.loads(done.stdout)["results"]
    assert done.returncode == 0 and len(film["written"]) == 1 and film["written"][0]["kind"] == "map"


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (["absent.dcm"], "absent.dcm does not exist; give a DICOM file or a folder", 2),
        (["films/sc.dcm", "--kind", "masks"], "'masks' is unknown: did you mean 'mask'", 2),
        (["films/sc.dcm", "--finding", "Mas"], "has no finding 'Mas': did you mean 'Mass'", 1),
        (["films/sc.dcm", "--prompt-set", "other"], "no prompt set 'other'", 2),
        (["films/notes.txt"], "films/notes.txt gets no DICOM objects|films/notes.txt cannot be read", 1),
    ],
)
def test_what_cannot_be_done_is_one_sentence(world: Path, arguments: list[str], words: str, status: int) -> None:
    done = command(world, *arguments)
    said = done.stdout + done.stderr
    assert done.returncode == status and "Traceback" not in said
    assert any(word in said for word in words.split("|"))


def test_without_the_extra_the_sentence_names_it(world: Path, monkeypatch: Any) -> None:
    import xbench_fast as xb

    monkeypatch.setitem(sys.modules, "highdicom", None)
    words = r"highdicom, which is not installed; install xbench-fast\[dicom\]"
    with (
        xb.open_engine(world / "models" / "blocks-32", threads=1) as engine,
        pytest.raises(xb.XBenchError, match=words),
    ):
        engine.dicom_objects(world / "films" / "sc.dcm")
