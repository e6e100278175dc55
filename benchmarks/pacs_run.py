"""What `pacs` costs its machine: time and memory over many films, and what a second run asks.

    python benchmarks/pacs_run.py --bundle DIR [--films 1000] [--side 1024] [--json FILE]

Every film is a study of its own in an archive in a process of its own, which does nothing but read and write files.
Each run is a process too: one that stores all, the same again, which finds every film in its log, and one with an
empty log, which finds every object in the archive and compares it. The private memory is that after a tenth of the
films and at the end. The archive takes the same cores, so films a second are a ratio and no limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

STUDY, SERIES, FILM = (f"1.2.826.0.{number}.1000000" for number in (1, 2, 3))  # the last part is the film's number
SERVER = f"""
import http.server, json, re, sys
from urllib.parse import parse_qsl, urlsplit
folder, films = sys.argv[1], int(sys.argv[2])
film, known = open(folder + "/film.dcm", "rb").read(), {{}}
uids = {(STUDY, SERIES, FILM)!r}
def value(text):
    return {{"vr": "UI", "Value": [text]}}
def entry(number, count):
    return dict(zip(("0020000D", "0020000E", "00080018"), [value(uid[:-6] + number) for uid in uids[:count]]))
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    def log_message(self, *rest):
        pass
    def answer(self, body, kind="application/dicom+json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        parts = urlsplit(self.path)
        query, path = dict(parse_qsl(parts.query)), parts.path
        start = int(query.get("offset", 0))
        if path == "/series":
            every = range(start, min(films, start + int(query["limit"]))) if query["Modality"] == "CR" else ()
            self.answer(json.dumps([entry("%06d" % number, 2) for number in every]).encode())
        elif path.endswith("/series"):
            self.answer(json.dumps([] if start else [entry(path.split("/")[2][-6:], 2)]).encode())
        elif "SOPInstanceUID" in query:
            place = known.get(query["SOPInstanceUID"])
            self.answer(json.dumps([] if place is None else [place]).encode())
        elif path.endswith("/instances"):
            more = {{"00280010": {{"vr": "US", "Value": [8]}}}}
            self.answer(json.dumps([] if start else [entry(path.split("/")[2][-6:], 3) | more]).encode())
        else:
            uid = path.rpartition("/")[2]
            if uid in known:
                self.answer(open(folder + "/" + uid, "rb").read(), "application/dicom")
            else:
                content = film
                for name in uids:
                    content = content.replace(name.encode(), (name[:-6] + uid[-6:]).encode())
                self.answer(content, "application/dicom")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        line = b"--" + re.search("boundary=([0-9a-f]+)", self.headers["Content-Type"])[1].encode()
        stored = []
        for part in body.split(line)[1:-1]:
            content = part.partition(b"\\r\\n\\r\\n")[2][:-2]
            uid, study, series = (
                re.search(tag + rb"UI..([0-9.]+)", content, re.DOTALL)[1].decode()
                for tag in (rb"\\x08\\x00\\x18\\x00", rb"\\x20\\x00\\x0d\\x00", rb"\\x20\\x00\\x0e\\x00")
            )
            open(folder + "/" + uid, "wb").write(content)
            known[uid] = {{"0020000D": value(study), "0020000E": value(series), "00080018": value(uid)}}
            stored.append({{"00081155": value(uid)}})
        self.answer(json.dumps({{"00081199": {{"vr": "SQ", "Value": stored}}}}).encode())
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def write_film(path: Path, side: int) -> None:
    """A film of smooth shadows with a little noise, of 12 bits."""
    from PIL import Image
    from pydicom.dataset import Dataset, FileMetaDataset

    draw = np.random.default_rng(1)
    shadows = Image.fromarray(draw.integers(0, 256, (16, 16), np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    data = Dataset()
    data.StudyInstanceUID, data.SeriesInstanceUID, data.SOPInstanceUID = STUDY, SERIES, FILM
    data.SOPClassUID, data.Modality, data.PatientName = "1.2.840.10008.5.1.4.1.1.1", "CR", "Film"
    data.Rows = data.Columns = side
    data.PixelSpacing = [0.2, 0.2]
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 12, 11
    data.PixelData = (np.asarray(shadows, np.uint16) * 16 + draw.integers(0, 16, (side, side), np.uint16)).tobytes()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
    data.save_as(path, enforce_file_format=True)


def memory() -> float:
    """Private memory of this process in MB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


class Watched:
    """Progress that looks at the memory when a tenth of the films is done."""

    def __init__(self) -> None:
        self.at_tenth = 0.0

    def say(self, line: str) -> None:
        print(line, file=sys.stderr)

    @contextmanager
    def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Any]:
        done = 0

        def advance(count: int, failed: int = 0) -> None:
            nonlocal done
            done += count
            if not self.at_tenth and done >= total / 10:
                self.at_tenth = memory()

        yield advance


def call(url: str, bundle: Path, out: Path) -> dict[str, Any]:
    """One run in this process: counts, seconds, and memory in MB."""
    from xbench_fast.engines.base import CPU_BATCH
    from xbench_fast.runtime.cli.archive.film_options import film_model
    from xbench_fast.runtime.serving.archive.film_maker import ModelMaker
    from xbench_fast.runtime.serving.archive.pacs_options import PacsOptions
    from xbench_fast.runtime.serving.archive.run_transfer import connect, transfer

    watched = Watched()
    wall, cpu = time.perf_counter(), time.process_time()
    asked: dict[str, Any] = {"findings": (), "prompt_set": None, "tau": 0.5, "kinds": ()}
    with film_model(bundle, **asked, engine="onnxruntime-cpu", gpu=None, threads=None) as (model, request):
        done = transfer(connect(url, None, PacsOptions()), ModelMaker(model, request, CPU_BATCH), out, watched)
    assert not done.problems, done.problems[:3]
    return {
        "films": done.films, "before": done.before, "stored": done.stored, "kept": done.kept,
        "wall_s": round(time.perf_counter() - wall, 1), "cpu_s": round(time.process_time() - cpu, 1),
        "mb_at_tenth": round(watched.at_tenth, 1), "mb": round(memory(), 1),
    }  # fmt: skip


def in_a_process(url: str, bundle: Path, out: Path) -> dict[str, Any]:
    line = [sys.executable, __file__, "--call", url, str(bundle), str(out)]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def measure(bundle: Path, films: int, side: int) -> dict[str, Any]:
    """All figures of the committed result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_film(folder / "film.dcm", side)
        line = [sys.executable, "-c", SERVER, str(folder), str(films)]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            try:
                found: dict[str, Any] = {
                    "load_average_before": round(os.getloadavg()[0], 2),
                    "bundle": bundle.name,
                    "films": films,
                    "side": side,
                }
                found["whole_run"] = in_a_process(url, bundle, folder / "log")
                found["same_run_again"] = in_a_process(url, bundle, folder / "log")
                found["with_an_empty_log"] = in_a_process(url, bundle, folder / "empty")
            finally:
                server.kill()
    return found


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--films", type=int, default=1000)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--call", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.call:
        url, bundle, out = options.call
        print(json.dumps(call(url, Path(bundle), Path(out))))
        return
    if options.bundle is None:
        parser.error("--bundle is missing")
    found = measure(options.bundle.resolve(), options.films, options.side)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
