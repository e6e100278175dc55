"""`pacs` on a real archive: what is stored, stored once, and stored after a kill (docs/pacs.md)."""

from __future__ import annotations

import io
import json
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

pydicom = pytest.importorskip("pydicom")

COMMAND = [sys.executable, "-m", "xbench_fast.runtime.cli", "pacs"]


def start(orthanc: Orthanc, bundle: Path, folder: Path, *arguments: object) -> subprocess.Popen[str]:
    line = [*COMMAND, "--from", orthanc.url, "--bundle", bundle, "--out", "log", "--threads", "1", *arguments]
    return subprocess.Popen(
        list(map(str, line)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def pacs(orthanc: Orthanc, bundle: Path, folder: Path, *arguments: object) -> tuple[int, str, dict[str, Any]]:
    """The exit status, what was printed, and the JSON."""
    process = start(orthanc, bundle, folder, "--json", "summary.json", *arguments)
    printed, _ = process.communicate(timeout=300)
    return process.returncode, printed, json.loads((folder / "summary.json").read_text())


def test_answers_are_stored_once(orthanc: Orthanc, bundle: Path, tmp_path: Path) -> None:
    for name in dicom_films.NAMES:
        orthanc.upload(dicom_films.film(name))
    orthanc.upload(dicom_films.film("sc", Modality="CT", SOPInstanceUID="1.2.5", SeriesInstanceUID="1.2.55"))
    before = orthanc.files()
    status, printed, counts = pacs(orthanc, bundle, tmp_path, "--dry-run", "--finding", "Mass", "--out", "dry")
    assert status == 0 and counts["stored"] == 9 and orthanc.files() == before, printed
    assert printed.count("overlay of Mass, mask of Mass, report") == 3
    status, printed, counts = pacs(orthanc, bundle, tmp_path, "--finding", "Mass")
    assert (status, counts["stored"], counts["films"], counts["studies"]) == (0, 9, 3, 3), printed
    after = orthanc.files()
    assert before.items() <= after.items() and len(after) == len(before) + 9
    _, _, counts = pacs(orthanc, bundle, tmp_path, "--finding", "Mass")
    assert (counts["stored"], counts["before"], counts["films"]) == (0, 3, 0)  # the log knows them
    _, _, counts = pacs(orthanc, bundle, tmp_path, "--finding", "Mass", "--out", "other")
    assert (counts["stored"], counts["kept"]) == (0, 9)  # the archive has them
    assert orthanc.files() == after
    written = "".join(path.read_text() + path.name for path in tmp_path.rglob("*") if path.is_file())
    assert CANARY not in written + printed and "1.2.826" not in written + printed and "?" not in printed


def test_masks_come_back_as_the_model_drew_them(orthanc: Orthanc, bundle: Path, tmp_path: Path) -> None:
    """Against the command `dicom` on the same films: the same objects, pixel for pixel."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in dicom_films.NAMES:
        (folder / f"{name}.dcm").write_bytes(dicom_films.film(name))
        orthanc.upload(dicom_films.film(name))
    line = ["dicom", "films", "--bundle", str(bundle), "--out", "out", "--threads", "1"]
    subprocess.run([*COMMAND[:-1], *line], cwd=tmp_path, check=True, capture_output=True)
    pacs(orthanc, bundle, tmp_path)
    stored = {uid: pydicom.dcmread(io.BytesIO(content)) for uid, content in orthanc.files().items()}
    files = [pydicom.dcmread(path) for path in (tmp_path / "out").glob("*.dcm")]
    assert len(files) == 9 and len(stored) == 12
    for made in files:
        if "PixelData" in made:
            assert np.array_equal(made.pixel_array, stored[made.SOPInstanceUID].pixel_array)


def test_an_object_that_differs_is_refused(orthanc: Orthanc, bundle: Path, tmp_path: Path) -> None:
    orthanc.upload(dicom_films.film("sc"))
    pacs(orthanc, bundle, tmp_path)
    (report,) = [
        data for content in orthanc.files().values()
        if (data := pydicom.dcmread(io.BytesIO(content))).Modality == "SR"
    ]  # fmt: skip
    orthanc.clear()
    orthanc.upload(dicom_films.film("sc"))
    report.SeriesDescription = "another"
    stream = io.BytesIO()
    report.save_as(stream)
    orthanc.upload(stream.getvalue())
    status, printed, counts = pacs(orthanc, bundle, tmp_path, "--out", "again")
    assert (status, counts["refused"], counts["stored"]) == (1, 1, 0), printed
    assert "1 objects in the archive that differ" in printed and len(orthanc.files()) == 2


def test_a_killed_run_continues(orthanc: Orthanc, bundle: Path, tmp_path: Path) -> None:
    count = 24
    for number in range(count):
        uids = {"SOPInstanceUID": f"1.2.9.{number}", "StudyInstanceUID": f"1.2.8.{number}"}
        orthanc.upload(dicom_films.film("sc", **uids, SeriesInstanceUID=f"1.2.7.{number}"))
    for _ in range(2):
        process = start(orthanc, bundle, tmp_path, "--finding", "Mass")
        held = orthanc.ask("/statistics")["CountInstances"]
        while process.poll() is None and orthanc.ask("/statistics")["CountInstances"] < held + 4:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    status, printed, counts = pacs(orthanc, bundle, tmp_path, "--finding", "Mass")
    assert status == 0 and counts["before"] + counts["films"] == count, printed
    assert len(orthanc.files()) == 4 * count
    assert orthanc.ask("/statistics")["CountSeries"] == 4 * count
