"""A whole report: 7 models on 7 datasets, 12,601 cases a model, from stored rows to tables, figures and the page.

    python benchmarks/report_run.py [--keep DIR] [--json FILE]

The script first writes, untimed, a run of simulated rows: datasets with the paper's numbers of cases, classes and pairs
per class, counts, logits, 14 x 14 maps and regions. There are no radiographs, so the gallery holds maps and contours
only. It then times the steps of `xbench-fast report`, in their order, after one small run that loads the compiled code:
wall and CPU seconds, and the size of every kind of file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.evaluation.decoded_case import DecodedCase
from xbench_fast.runtime.evaluation.drawn import CaseColumns, DrawnPairs
from xbench_fast.runtime.evaluation.queries import Logits
from xbench_fast.runtime.evaluation.scoring import Scored, rows_table
from xbench_fast.runtime.reporting.provenance import provenance
from xbench_fast.runtime.reporting.report import Report, draw_report, report_tables, write_report
from xbench_fast.runtime.results.comparing.model_differences import find_differences
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results, split_by_protocol
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.schema import result_schema
from xbench_fast.runtime.results.storage import KEY_FIELD

SIDE, CELLS = 224, 14
MODELS = ("clip", "biomedclip", "medklip", "kad", "mavl", "carzero", "devide")
VINDR = {
    "Aortic enlargement": 220, "Atelectasis": 86, "Calcification": 194, "Cardiomegaly": 309, "Clavicle fracture": 2,
    "Consolidation": 96, "Emphysema": 3, "Enlarged PA": 8, "ILD": 221, "Infiltration": 58, "Lung Opacity": 84,
    "Lung cavity": 9, "Lung cyst": 2, "Mediastinal shift": 20, "Nodule/Mass": 176, "Other lesion": 94,
    "Pleural effusion": 111, "Pleural thickening": 169, "Pneumothorax": 18, "Pulmonary fibrosis": 217,
    "Rib fracture": 11,
}  # fmt: skip
CHEXLOCALIZE = {
    "Airspace Opacity": 277, "Atelectasis": 174, "Cardiomegaly": 172, "Consolidation": 29, "Edema": 77,
    "Enlarged Cardiomediastinum": 293, "Fracture": 6, "Lung Lesion": 14, "Pleural Effusion": 117, "Pleural Other": 0,
    "Pneumonia": 10, "Pneumothorax": 11, "Support Devices": 309,
}  # fmt: skip
DET10 = {
    "Atelectasis": 48, "Calcification": 38, "Consolidation": 289, "Effusion": 252, "Emphysema": 39, "Fibrosis": 82,
    "Fracture": 76, "Mass": 30, "Nodule": 77, "Pneumothorax": 35,
}  # fmt: skip
CXR14 = {
    "Atelectasis": 180, "Cardiomegaly": 146, "Effusion": 153, "Infiltrate": 123, "Mass": 85, "Nodule": 79,
    "Pneumonia": 120, "Pneumothorax": 98,
}  # fmt: skip
DATASETS = {
    "covid_rural": ("COVID-19 Rural", 45, {"COVID-19": 32}),
    "rsna": ("RSNA Pneumonia", 5337, {"pneumonia": 1218}),
    "siim": ("SIIM-ACR", 2317, {"Pneumothorax": 647}),
    "chestxdet10": ("ChestX-Det10", 542, DET10),
    "chexlocalize": ("CheXlocalize", 499, CHEXLOCALIZE),
    "vindr": ("VinDr-CXR", 2981, VINDR),
    "chestxray14": ("ChestX-ray14", 880, CXR14),
}


def regions(pairs, rng):
    """Rectangles as masks, bool [pairs, 224, 224]."""
    height, width = (rng.integers(8, 120, pairs) for _ in range(2))
    top, left = rng.integers(0, SIDE - height), rng.integers(0, SIDE - width)
    row, column = np.arange(SIDE)[None, :, None], np.arange(SIDE)[None, None, :]
    inside = (row >= top[:, None, None]) & (row < (top + height)[:, None, None])
    return inside & (column >= left[:, None, None]) & (column < (left + width)[:, None, None])


def maps(inside, strength, rng):
    """14 x 14 maps that show the region with `strength`, and the counts of their sweep."""
    from xbench_fast.metrics_gpu.sweep.sweep import sweep

    share = inside.reshape(len(inside), CELLS, SIDE // CELLS, CELLS, SIDE // CELLS).mean(axis=(2, 4))
    low = (strength * share + rng.random(share.shape)).astype(np.float32)
    return low, sweep(low, inside)


def simulate(cases, positives, model, dataset):
    """The cases of one cell, and what its model says of them; labels and regions depend on the dataset alone."""
    fixed, own = np.random.default_rng(len(dataset)), np.random.default_rng([MODELS.index(model), len(dataset)])
    strength, skill = 0.15 * MODELS.index(model), 0.3 + 0.25 * MODELS.index(model)
    held = {name: set(fixed.choice(cases, count, replace=False).tolist()) for name, count in positives.items()}
    pairs = [(case, name) for case in range(cases) for name in positives if case in held[name]]
    inside = regions(len(pairs), fixed)
    place = {pair: number for number, pair in enumerate(pairs)}
    low, counts = maps(inside, strength, own)
    logits = own.standard_normal((cases, len(positives))).astype(np.float32)
    columns = list(positives)
    labels = np.array([[case in held[name] for name in columns] for case in range(cases)])
    drawn = [
        DecodedCase(
            Case(
                f"{dataset}-{case}",
                Path(),
                dict(zip(columns, row, strict=True)),
                {},
                "all",
                f"patient {int(case / 1.2)}",
            ),
            "ok",
            masks={name: inside[place[case, name]] for name in columns if (case, name) in place},
        )
        for case, row in enumerate(labels.astype(int).tolist())
    ]
    said = Logits((logits + skill * labels).astype(np.float32), logits, np.ones(len(columns), np.bool_))
    return CaseColumns.of(drawn, columns), Scored(DrawnPairs.of(drawn, columns), counts, said, low)


def write_run(path, models, datasets):
    """A finished run directory; returns its cases per model and pairs per model."""
    with RunDirectory(path) as run:
        run.begin({"datasets": {name: {"reader": name} for name in datasets}, "bundles": list(models)})
        for model in models:
            for name, (title, cases, positives) in datasets.items():
                key = f"{model}{name}".ljust(64, "0")
                files = run.files(model, name, key)
                drawn, scored = simulate(cases, positives, model, name)
                files.write_part(0, rows_table([drawn], [scored], list(positives), model, name, {KEY_FIELD: key}))
                files.merge(1, result_schema({KEY_FIELD: key}))
                run.set_cell(
                    model,
                    name,
                    "done",
                    key=key,
                    file=files.final.relative_to(path).as_posix(),
                    ingredients={"engine": "simulated fp32", "limit": None, "dataset": [name, "0" * 64]},
                    weights="published",
                    model_family=model,
                    reader=name,
                    protocol="default",
                    grid=[CELLS, CELLS],
                    title=title,
                    findings=list(positives),
                )
    return sum(d[1] for d in datasets.values()), sum(sum(d[2].values()) for d in datasets.values())


def timed_report(path):
    """Seconds of each stage (wall, CPU) of the report of `path`."""
    stages, marks = {}, [time.perf_counter(), time.process_time()]

    def stage(name):
        now = [time.perf_counter(), time.process_time()]
        stages[name] = [round(after - before, 2) for after, before in zip(now, marks, strict=True)]
        marks[:] = now

    run = load_run(path)
    results = make_results(run)
    stage("read, numbers and 1,000 resamples")
    blocks = tuple((part, find_differences(part)) for part in split_by_protocol(results))
    stage("differences between models")
    tables = tuple(report_tables(run, results, blocks))
    report = Report(run, results, blocks, tables, provenance(results, run.data))
    stage("tables")
    write_report(report, page=False)
    stage("write Markdown, LaTeX, CSV and JSON")
    said: list[str] = []
    draw_report(report, path / "report", said.append)
    stage("figures, gallery and page")
    return stages, said


def sizes(folder):
    """Bytes of the report's files by file extension."""
    found: dict[str, int] = {}
    for file in folder.rglob("*"):
        if file.is_file():
            found[file.suffix[1:]] = found.get(file.suffix[1:], 0) + file.stat().st_size
    return found


def run_options(description):
    """A parser of the options that say which run is made, and where figures go."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="all by default")
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS), help="all by default")
    parser.add_argument("--keep", type=Path, help="leave the run here (reused if it exists)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser


def main():
    parser = run_options(__doc__.splitlines()[0])
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    datasets = {name: DATASETS[name] for name in options.datasets}
    with tempfile.TemporaryDirectory() as scratch:
        small = Path(scratch) / "small"
        write_run(small, MODELS[:2], {"covid_rural": DATASETS["covid_rural"]})
        timed_report(small)
        path = options.keep or Path(scratch) / "run"
        if not (path / "run.json").is_file():
            write_run(path, options.models, datasets)
        shutil.rmtree(path / "report", ignore_errors=True)
        stages, said = timed_report(path)
        bytes_of = sizes(path / "report")
    cases = sum(cases for _, cases, _ in datasets.values())
    pairs = sum(sum(positives.values()) for _, _, positives in datasets.values())
    wall, cpu = (round(sum(stage[i] for stage in stages.values()), 2) for i in range(2))
    print(
        f"{len(options.models)} models x {len(datasets)} datasets, {cases} cases and {pairs} pairs a model, "
        "seconds (CPU)"
    )
    for name, (seconds, own) in stages.items():
        print(f"  {name:<38}{seconds:8.2f} ({own:.2f})")
    print(f"  {'together':<38}{wall:8.2f} ({cpu:.2f})")
    print(f"  page {bytes_of.get('html', 0) / 1e6:.1f} MB")
    for line in said:
        print(f"  {line}")
    if options.json:
        document: dict[str, object] = {
            "models": len(options.models),
            "datasets": len(datasets),
            "cases_per_model": cases,
            "pairs_per_model": pairs,
        }
        document |= {"replicates": 1000, "stages_s": {name: s for name, (s, _) in stages.items()}}
        document |= {"stages_cpu_s": {name: c for name, (_, c) in stages.items()}, "together_s": wall}
        document |= {"together_cpu_s": cpu, "bytes": bytes_of, "not_made": said}
        document |= {"load_average_before": load}  # of other processes: above 0 the wall seconds are too high
        write_record(options.json, document)


if __name__ == "__main__":
    main()
