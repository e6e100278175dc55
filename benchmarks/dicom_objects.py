"""What the DICOM objects of a film cost, against the inference that they show.

    python benchmarks/dicom_objects.py [--model kad:224 ...] [--json FILE]

Models at full size with stand-in weights, and made-up films of 1024 x 1024, one at a time: the engine runs a film on
`--threads` cores, as the server does, then its objects are made: the default kinds (overlay, mask and report) of one
finding, without reading the film and writing the files. Time of the clock and of the CPU; the ratios are of the medians
over all films and rounds. A film alone costs an engine on the CPU as much as two in a batch, which is given too.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from from_checkout import use_checkout
from prompt_sets import make_bundle


def film(place: int, side: int) -> bytes:
    """A made-up film as a DICOM file: smooth shapes with noise, as radiographs have."""
    from PIL import Image
    from pydicom.dataset import Dataset, FileMetaDataset

    draw = np.random.default_rng(place)
    shapes = Image.fromarray(draw.integers(0, 4000, (9, 9), np.uint16).astype(np.float32))
    smooth = np.asarray(shapes.resize((side, side), Image.Resampling.BICUBIC))
    data = Dataset()
    data.SOPClassUID, data.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1", f"2.25.{place + 1}"
    data.StudyInstanceUID, data.SeriesInstanceUID, data.Modality = "2.25.901", "2.25.902", "CR"
    data.Rows = data.Columns = side
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 12, 11
    data.PixelData = np.clip(smooth + draw.normal(0, 12, smooth.shape), 0, 4095).astype("<u2").tobytes()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID
    stream = io.BytesIO()
    data.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def spent(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of the clock and of the CPU, and the result."""
    start, used = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - used, result


def measure(bundle: Path, films: list[bytes], threads: int, rounds: int) -> dict[str, Any]:
    """The figures of one model, in milliseconds a film."""
    from xbench_fast.engines.base import EngineOptions
    from xbench_fast.engines.bundle import Bundle
    from xbench_fast.engines.select import open_engine
    from xbench_fast.runtime.serving.inference import film_batches
    from xbench_fast.runtime.serving.inference.served_models import ServedModel
    from xbench_fast.runtime.serving.protocol.requests import Request

    opened = Bundle.load(bundle)
    times: dict[str, list[tuple[float, float]]] = {"inference": [], "objects": [], "inference_in_batch": []}
    with open_engine(opened, "onnxruntime-cpu", threads=threads, options=EngineOptions()) as engine:
        model = ServedModel(opened, engine)
        request = Request(model.name, highest_only=True)
        prepared = [film_batches.read_film(data, "a film", model.geometry) for data in films]
        pixels = np.stack([item.prepared.pixels for item in prepared])[:, None]
        features = model.select(request).prompts.features
        run = engine.run
        scores = [run(pixels[at : at + 1], features) for at in range(len(films))]  # also warms up
        list(film_batches.answer_films(model, request, prepared[:1]))
        made: list[Any] = []

        def made_of(item: Any) -> list[Any]:
            return list(film_batches.answer_films(model, request, [item]))

        for _ in range(rounds):
            for at, item in enumerate(prepared):
                one = pixels[at : at + 1]
                wall, cpu, _ = spent(partial(run, one, features))
                times["inference"].append((wall, cpu))
                engine.run = lambda *_, at=at: scores[at]  # type: ignore[method-assign]
                wall, cpu, objects = spent(partial(made_of, item))
                engine.run = run  # type: ignore[method-assign]
                times["objects"].append((wall, cpu))
                made += objects
            wall, cpu, _ = spent(lambda: run(pixels, features))
            times["inference_in_batch"].append((wall / len(films), cpu / len(films)))
    found: dict[str, Any] = {"model": model.name}
    for name, rows in times.items():
        for at, unit in enumerate(("ms", "cpu_ms")):
            found[f"{name}_{unit}"] = round(1e3 * statistics.median(row[at] for row in rows), 1)
    found["ratio"] = round(found["objects_ms"] / found["inference_ms"], 2)
    found["ratio_of_cpu"] = round(found["objects_cpu_ms"] / found["inference_cpu_ms"], 2)
    sizes = {kind: [len(item.content) for one in made for item in one if item.kind == kind] for kind in _KINDS}
    found["bytes"] = {kind: round(statistics.mean(values)) for kind, values in sizes.items()}
    return found


_KINDS = ("overlay", "mask", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", default=["kad:224", "clip:vit-b-16"], metavar="MODEL:VARIANT")
    parser.add_argument("--films", type=int, default=8, help="of a batch [8]")
    parser.add_argument("--side", type=int, default=1024, help="of the films, in pixels [1024]")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--threads", type=int, default=2, help="of the engine [2]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_checkout()
    from xbench_fast.runtime.benching.benchmark_record import write_record

    load = round(os.getloadavg()[0], 2)
    films = [film(place, options.side) for place in range(options.films)]
    rows = []
    for name in options.model:
        with tempfile.TemporaryDirectory(prefix="xbench-objects-") as folder:
            model, variant = name.split(":")
            bundle = make_bundle(model, variant, 1, Path(folder))
            rows.append(measure(bundle, films, options.threads, options.rounds))
        print(rows[-1], flush=True)
    if options.json is not None:
        what = "DICOM objects of a film (overlay, mask, report; one finding) against its inference"
        shape = {"films": options.films, "side": options.side, "rounds": options.rounds, "threads": options.threads}
        write_record(options.json, {"what": what, **shape, "load_average_before": load, "models": rows})


if __name__ == "__main__":
    main()
