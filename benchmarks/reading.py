"""Reading radiographs: this version against commit e968916, in CPU time, for PNG and every common kind of DICOM.

    python benchmarks/reading.py --png FOLDER --dicom FOLDER [--images 12] [--rounds 7] [--json FILE]

DICOM files are read as they are, and their stored values coded again as uncompressed, RLE, lossless JPEG, JPEG-LS and
JPEG 2000, of 8 bits and of 12 (each value times 16, with noise in the lower four bits). Both versions run in processes
that stay, one after the other within each round, so that a busy machine slows both. Each round
divides the CPU time of the earlier version by that of this one. A ratio is the median over the rounds; this version is
faster where it is above 1. The pixels of both must be equal. Read the ratios only.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import numpy as np
from host_loop import ROOT, make_tree

BEFORE = "e968916"
CODED = {
    "uncompressed": "1.2.840.10008.1.2.1",
    "RLE": "1.2.840.10008.1.2.5",
    "lossless JPEG": "1.2.840.10008.1.2.4.70",
    "JPEG-LS": "1.2.840.10008.1.2.4.80",
    "JPEG 2000": "1.2.840.10008.1.2.4.90",
}


def coded(stored: Any, bits: int, name: str) -> bytes:
    """A DICOM file of these stored values in the transfer syntax `name`."""
    import imagecodecs
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID, RLELossless

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.1")
    meta.MediaStorageSOPInstanceUID = UID("2.25.1")
    meta.TransferSyntaxUID = UID(CODED["uncompressed" if name == "RLE" else name])
    dataset = FileDataset("coded", {}, file_meta=meta, preamble=bytes(128))
    dataset.SOPClassUID, dataset.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    dataset.Rows, dataset.Columns = stored.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation, dataset.PixelRepresentation = 1, "MONOCHROME2", 0
    dataset.BitsAllocated = 8 * stored.itemsize
    dataset.BitsStored, dataset.HighBit = bits, bits - 1
    if name == "lossless JPEG":
        frame = imagecodecs.ljpeg_encode(stored, bitspersample=bits)
    elif name == "JPEG-LS":
        frame = imagecodecs.jpegls_encode(stored)
    elif name == "JPEG 2000":
        frame = imagecodecs.jpeg2k_encode(stored, level=0, codecformat="j2k", reversible=True, bitspersample=bits)
    else:
        frame = None
    dataset.PixelData = stored.tobytes() if frame is None else encapsulate([bytes(frame)])
    dataset["PixelData"].VR = "OW" if frame is None and stored.itemsize == 2 else "OB"
    if name == "RLE":
        dataset.compress(RLELossless, generate_instance_uid=False)
    buffer = io.BytesIO()
    pydicom.dcmwrite(buffer, dataset, enforce_file_format=True)
    return buffer.getvalue()


def make_files(png: list[Path], dicom: list[Path], folder: Path) -> dict[str, list[str]]:
    """Kind -> the files of that kind."""
    from xbench_fast.runtime.data.images.dicom.dicom_grey import read_stored

    rng = np.random.default_rng(0)
    files = {"PNG": [str(path) for path in png], "DICOM as it is": [str(path) for path in dicom]}
    for number, path in enumerate(dicom):
        eight = read_stored(path.read_bytes()).astype(np.uint8)
        twelve = eight.astype(np.uint16) * 16 + rng.integers(0, 16, eight.shape, dtype=np.uint16)
        for stored, bits in ((eight, 8), (twelve, 12)):
            for name in CODED:
                file = folder / f"{number}-{bits}-{name}.dcm"
                file.write_bytes(coded(stored, bits, name))
                files.setdefault(f"DICOM {name}, {bits} bits", []).append(str(file))
    return {kind: paths for kind, paths in files.items() if paths}


def serve() -> None:
    """Reads kinds of files for as long as it is asked: CPU seconds, and a digest of the pixels."""
    from xbench_fast.runtime.data.images.decode import read_grey

    for line in sys.stdin:
        paths = [Path(text) for text in json.loads(line)]
        start = time.process_time()
        pixels = [read_grey(path) for path in paths]
        seconds = time.process_time() - start
        digest = hashlib.sha256(b"".join(one.tobytes() for one in pixels)).hexdigest()
        print(json.dumps([seconds, digest]), flush=True)


def started(tree: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "path")}
    command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen[str], paths: list[str]) -> tuple[float, str]:
    send, receive = process.stdin, process.stdout
    assert send is not None and receive is not None
    send.write(json.dumps(paths) + "\n")
    send.flush()
    return tuple(json.loads(_line(receive)))


def _line(stream: IO[str]) -> str:
    line = stream.readline()
    if not line:
        raise SystemExit("one of the versions ended; its message is above")
    return line


def compare(files: dict[str, list[str]], processes: list[subprocess.Popen[str]], rounds: int) -> dict[str, Any]:
    from xbench_fast.runtime.benching.timing import median_ratio

    figures = {}
    for kind, paths in files.items():
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds + 1):
            order = (0, 1) if number % 2 else (1, 0)
            answers = {side: ask(processes[side], paths) for side in order}
            if answers[0][1] != answers[1][1]:
                raise SystemExit(f"the two versions read other pixels from {kind}")
            if number:  # the first round is a warm-up for files and imports
                for side in order:
                    seconds[side].append(answers[side][0])
        ratios = sorted(old / new for old, new in zip(*seconds, strict=True))
        figures[kind] = {
            "images": len(paths),
            "times_less_cpu": round(median_ratio(*seconds), 3),
            "least": round(ratios[0], 3),
            "greatest": round(ratios[-1], 3),
        }
        print(f"{kind:<28}{figures[kind]['times_less_cpu']:6.2f} x  ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--png", type=Path, help="folder of PNG radiographs")
    parser.add_argument("--dicom", type=Path, help="folder of DICOM radiographs")
    parser.add_argument("--images", type=int, default=12, help="files of each kind [12]")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    png = sorted(options.png.rglob("*.png"))[: options.images] if options.png else []
    dicom = sorted(options.dicom.rglob("*.dcm"))[: options.images] if options.dicom else []
    if not png and not dicom:
        parser.error("no image was found; give --png FOLDER or --dicom FOLDER")
    load = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source").mkdir()
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", BEFORE], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(folder / "source")], input=archive.stdout, check=True)
        trees = make_tree(folder / BEFORE, folder / "source"), make_tree(folder / "now", ROOT)
        processes = [started(tree) for tree in trees]
        try:
            figures = compare(make_files(png, dicom, folder), processes, options.rounds)
        finally:
            for process in processes:
                process.kill()
    if options.json:
        from xbench_fast.runtime.benching.benchmark_record import write_record

        facts = {"before": BEFORE, "rounds": options.rounds, "load_average_before": load}
        write_record(options.json, {**facts, "kinds": figures})


if __name__ == "__main__":
    main()
