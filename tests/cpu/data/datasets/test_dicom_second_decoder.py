"""pydicom's own test files against GDCM, which this project does not use: stored values equal, or a reason.

Slow job: XBENCH_DICOM=1, with GDCM for the system's Python (Debian: python3-gdcm) and the package pydicom-data (34 MB)
installed. XBENCH_DICOM=PYTHON names another interpreter that has GDCM.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.dicom.open_dicom import open_data_set
from xbench_fast.runtime.data.images.dicom.pixel_frames import mask_frames

pytestmark = pytest.mark.skipif(
    "XBENCH_DICOM" not in os.environ, reason="set XBENCH_DICOM=1 to compare pydicom's test files with GDCM"
)

# Files that only GDCM reads, or that it reads to other values, and why.
EXPLAINED = {
    "MR_small_padded.dcm": "its pixels have 128 bytes more than the header says",
    "MR_truncated.dcm": "its pixels are cut; GDCM fills them",
    "badVR.dcm": "its NumberOfFrames is 1A",
    "JPEG2000-embedded-sequence-delimiter.dcm": "its stream has another width than its header; GDCM shows nothing",
    "emri_small_jpeg_2k_lossless_too_short.dcm": "its pixels are cut",
    "J2K_pixelrep_mismatch.dcm": "signed values of 13 bits in an unsigned stream, whose sign GDCM leaves out",
}

# What is refused by a rule of docs/datasets.md §0.2.
RULES = ("its data set is deflated as a whole", "its BitsAllocated is 32", "its BitsAllocated is 64")

GDCM = """
import gdcm, json, sys
gdcm.Trace.WarningOff(), gdcm.Trace.ErrorOff()
for number, line in enumerate(sys.stdin):
    print(json.dumps({"begun": number}), flush=True)
    reader = gdcm.ImageReader()
    reader.SetFileName(line[:-1])
    if reader.Read():
        image = reader.GetImage()
        form = image.GetPixelFormat()
        with open(sys.argv[1] + "/%d-%d" % (int(sys.argv[2]), number), "wb") as out:
            out.write(image.GetBuffer().encode("utf-8", "surrogateescape"))
        found = {"number": number, "bits": form.GetBitsAllocated(), "signed": form.GetPixelRepresentation()}
        print(json.dumps(found), flush=True)
"""


def by_gdcm(paths: list[Path], folder: Path) -> dict[Path, NDArray[Any]]:
    """The values of the files that GDCM reads, in one row each. It ends at some files; it goes on after them."""
    python = os.environ["XBENCH_DICOM"]
    command = ["/usr/bin/python3" if python == "1" else python, "-c", GDCM, str(folder)]
    found: dict[Path, NDArray[Any]] = {}
    first = 0
    while first < len(paths):
        lines = "".join(f"{path}\n" for path in paths[first:])
        done = subprocess.run([*command, str(first)], input=lines, capture_output=True, text=True, check=False)
        if "No module named 'gdcm'" in done.stderr:
            pytest.fail("XBENCH_DICOM is set and there is no GDCM (Debian: apt-get install python3-gdcm)")
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for answer in answers:
            if "number" in answer:
                raw = np.fromfile(folder / f"{first}-{answer['number']}", np.uint8)
                bits = answer["bits"]
                values = (
                    np.unpackbits(raw, bitorder="little") if bits == 1 else raw[: len(raw) // (bits // 8) * (bits // 8)]
                )
                kind = "u1" if bits == 1 else f"{'i' if answer['signed'] else 'u'}{bits // 8}"
                found[paths[first + answer["number"]]] = values.view(kind)
        first += 1 + max((answer["begun"] for answer in answers if "begun" in answer), default=0)
    return found


def test_values_are_those_of_a_second_decoder(tmp_path: Path) -> None:
    more = importlib.util.find_spec("data_store")
    if more is None or not more.submodule_search_locations:
        pytest.fail("XBENCH_DICOM is set and pydicom-data is not installed (pip install pydicom-data)")
    import pydicom

    roots = [Path(pydicom.__file__).parent / "data/test_files", *map(Path, more.submodule_search_locations)]
    paths = sorted(path for root in roots for path in root.rglob("*") if path.is_file())
    theirs = by_gdcm(paths, tmp_path)
    counts: Counter[str] = Counter()
    wrong = []
    for path in paths:
        try:
            with path.open("rb") as stream:
                dataset = open_data_set(stream)
            if dataset.integer("SamplesPerPixel", 1) != 1:
                counts["colour, not compared"] += 1
                continue
            ours: NDArray[Any] | None = mask_frames(dataset, dataset.integer("NumberOfFrames", 1))
            said, syntax = "", dataset.syntax
        except ImageError as error:
            ours, said, syntax = None, str(error), ""
        other = theirs.get(path)
        if ours is None or other is None:
            kind = "neither reads" if ours is None and other is None else "GDCM only" if ours is None else "ours only"
        elif other.size >= ours.size and np.array_equal(other[: ours.size], ours.ravel()):
            kind = "equal"
            counts[f"equal in {syntax}"] += 1
        else:
            kind = "differ"
        counts[kind] += 1
        if kind in ("GDCM only", "differ") and path.name not in EXPLAINED and not said.startswith(RULES):
            wrong.append(f"{path.name}: {kind} {said}")
    print(dict(sorted(counts.items())))
    assert not wrong, wrong
    assert counts["equal"] >= 60
