"""`pacs` on a real archive: what is stored, stored once, and stored after a kill (docs/pacs.md)."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dicom_films
import numpy as np
import pytest
from dicom_films import CANARY
from orthanc_process import Orthanc
from xbench_fast.runtime.cli.app import _run

pydicom = pytest.importorskip("pydicom")

KILLS = int(os.environ.get("XBENCH_PACS_KILLS", "2"))
"""Kills of a run; by hand 20."""


class Command:
    """`pacs` on an archive with its log in `folder`. printed: of the last call."""

    def __init__(self, orthanc: Orthanc, bundle: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self._line = ["pacs", "--from", orthanc.url, "--bundle", str(bundle), "--threads", "1"]
        self._folder, self._capfd, self.printed = folder, capfd, ""

    def __call__(self, *arguments: object, out: str = "log") -> tuple[int, dict[str, Any]]:
        """The exit status and the JSON, of a call in this process."""
        file = self._folder / "summary.json"
        status = _run([*self._line, "--out", str(self._folder / out), "--json", str(file), *map(str, arguments)])
        self.printed = "".join(self._capfd.readouterr())
        return status, json.loads(file.read_text())

    def process(self, *arguments: object) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "xbench_fast.runtime.cli", *self._line, "--out", str(self._folder / "log")]
        return subprocess.Popen([*line, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def pacs(orthanc: Orthanc, bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(orthanc, bundle, tmp_path, capfd)


def test_answers_are_stored_once(orthanc: Orthanc, pacs: Command, tmp_path: Path) -> None:
    for name in dicom_films.NAMES:
        orthanc.upload(dicom_films.film(name))
    orthanc.upload(dicom_films.film("sc", Modality="CT", SOPInstanceUID="1.2.5", SeriesInstanceUID="1.2.55"))
    before = orthanc.files()
    said = ""
    status, counts = pacs("--dry-run", "--finding", "Mass", out="dry")
    assert status == 0 and counts["stored"] == 9 and orthanc.files() == before, pacs.printed
    assert pacs.printed.count("overlay of Mass, mask of Mass, report") == 3
    said += pacs.printed
    status, counts = pacs("--finding", "Mass")
    assert (status, counts["stored"], counts["films"], counts["studies"]) == (0, 9, 3, 3), pacs.printed
    after = orthanc.files()
    assert before.items() <= after.items() and len(after) == len(before) + 9
    said += pacs.printed
    _, counts = pacs("--finding", "Mass")
    assert (counts["stored"], counts["before"], counts["films"]) == (0, 3, 0)  # the log knows them
    _, counts = pacs("--finding", "Mass", out="other")
    assert (counts["stored"], counts["kept"]) == (0, 9)  # the archive has them
    assert orthanc.files() == after
    said += "".join(path.read_text() + path.name for path in tmp_path.rglob("*") if path.is_file())
    assert CANARY not in said and "1.2.826" not in said and "?" not in said


def test_what_is_no_film_is_a_sentence_each(orthanc: Orthanc, pacs: Command) -> None:
    """A study with a CT beside the films, several frames, no spacing, a private syntax, documents, and a CT alone."""
    no_pixels = dict.fromkeys((*dicom_films.PIXELS, "PixelData"))
    document = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.104.1", "EncapsulatedDocument": b"%PDF"} | no_pixels
    private = pydicom.dcmread(io.BytesIO(dicom_films.film("sc", SOPInstanceUID="1.2.6", SeriesInstanceUID="1.2.66")))
    private.file_meta.TransferSyntaxUID = "1.2.826.0.1.3680043.10.1.1"
    stream = io.BytesIO()
    private.save_as(stream, implicit_vr=False, little_endian=True)
    orthanc.upload(stream.getvalue())
    changes: list[dict[str, Any]] = [
        {}, {"PixelSpacing": None}, {"NumberOfFrames": 2, "PixelData": bytes(2 * 300 * 260)}, document,
        document | {"Modality": "DOC"}, {"Modality": "SR", "SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.11"} | no_pixels,
        {"Modality": "CT"}, {"Modality": "CT", "StudyInstanceUID": "1.2.9", "SOPInstanceUID": "1.2.5.9"},
    ]  # fmt: skip
    for number, change in enumerate(changes):
        uids = {"SOPInstanceUID": f"1.2.5.{number}", "SeriesInstanceUID": f"1.2.55.{number}"}
        orthanc.upload(dicom_films.film("sc", **uids | change))
    status, counts = pacs("--finding", "Mass")
    assert (status, counts["films"], counts["done"], counts["stored"]) == (1, 5, 2, 6), pacs.printed
    for words in ("says that it has several frames", "lacks the tag Rows", "transfer syntax"):
        assert sum(words in line for line in counts["problems"]) == 1
    for words in ("no pixel spacing", "Modality is DOC (1 i", "Modality is SR (1 i", "Modality is CT (1 i"):
        assert sum(words in line for line in counts["remarks"]) == 1
    assert (counts["problem_count"], counts["remark_count"]) == (3, 4)
    status, counts = pacs("--study", "1.2.9")
    assert (status, counts["problem_count"], counts["remark_count"]) == (1, 1, 1), pacs.printed
    assert CANARY not in pacs.printed


def test_masks_come_back_as_the_model_drew_them(orthanc: Orthanc, bundle: Path, pacs: Command, tmp_path: Path) -> None:
    """Against the command `dicom` on the same films: the same objects, pixel for pixel."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in dicom_films.NAMES:
        (folder / f"{name}.dcm").write_bytes(dicom_films.film(name))
        orthanc.upload(dicom_films.film(name))
    line = ["dicom", str(folder), "--bundle", str(bundle), "--out", str(tmp_path / "out"), "--threads", "1"]
    assert _run(line) == 0
    pacs()
    stored = {uid: pydicom.dcmread(io.BytesIO(content)) for uid, content in orthanc.files().items()}
    files = [pydicom.dcmread(path) for path in (tmp_path / "out").glob("*.dcm")]
    assert len(files) == 9 and len(stored) == 12
    for made in files:
        if "PixelData" in made:
            assert np.array_equal(made.pixel_array, stored[made.SOPInstanceUID].pixel_array)


def test_an_object_that_differs_is_refused(orthanc: Orthanc, pacs: Command) -> None:
    orthanc.upload(dicom_films.film("sc"))
    pacs()
    files = map(pydicom.dcmread, map(io.BytesIO, orthanc.files().values()))
    (report,) = [data for data in files if data.Modality == "SR"]
    orthanc.clear()
    orthanc.upload(dicom_films.film("sc"))
    report.SeriesDescription = "another"
    stream = io.BytesIO()
    report.save_as(stream)
    orthanc.upload(stream.getvalue())
    status, counts = pacs(out="again")
    assert (status, counts["refused"], counts["stored"]) == (1, 1, 0), pacs.printed
    assert "1 object in the archive that differ" in pacs.printed and len(orthanc.files()) == 2


def test_a_killed_run_continues(orthanc: Orthanc, pacs: Command) -> None:
    count, draw = 12 * KILLS, random.Random(1)
    for number in range(count):
        uids = {"SOPInstanceUID": f"1.2.9.{number}", "StudyInstanceUID": f"1.2.8.{number}"}
        orthanc.upload(dicom_films.film("sc", **uids, SeriesInstanceUID=f"1.2.7.{number}"))

    def held() -> int:
        return int(orthanc.ask("/statistics")["CountInstances"])

    killed = 0
    for _ in range(KILLS):
        process, begun = pacs.process("--finding", "Mass"), held()
        least = draw.randint(1, 9)
        while process.poll() is None and held() < begun + least:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    status, counts = pacs("--finding", "Mass")
    assert status == 0 and counts["before"] + counts["films"] == count, pacs.printed
    assert killed == KILLS and counts["films"]
    assert len(orthanc.files()) == 4 * count
    assert orthanc.ask("/statistics")["CountSeries"] == 4 * count
