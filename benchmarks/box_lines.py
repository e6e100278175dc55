"""What a file of boxes costs from the command line: `eval`, then `report` with 1,000 replicates and every scorer.

    python benchmarks/box_lines.py [--lines 25000 100000 400000] [--keep DIR] [--json FILE]

The dataset and the answers are those of `boxes.py`, as a COCO file with sizes and without images and as JSON Lines with
scores: two answers an image, ten classes, two images a patient. Every command is a process of its own; wall-clock and
processor seconds and the peak of its memory are those of the whole process. This process stays small, since the peak of
a process is at least that of the one that started it. The memory of `eval` is mostly the dataset's: the last row is of
the fewest lines for the most images, and says what more lines take on one dataset.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any


def write_files(folder, lines):
    """The COCO file and the file of boxes."""
    from boxes import CLASSES, SIDE, workload

    answers = workload(lines)
    truth, given = answers.truth, answers.given
    assert given.scores is not None
    scores = given.scores.round(4).tolist()
    images = [
        {"id": f"c{n:06d}", "file_name": f"c{n:06d}.png", "width": SIDE, "height": SIDE, "patient_id": f"p{n // 2}"}
        for n in range(answers.cases)
    ]
    boxes = truth.boxes.tolist()
    annotations = [
        {"image_id": f"c{case:06d}", "category_id": finding, "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for case, finding, ends in zip(
            answers.case_of.tolist(), answers.class_of.tolist(), pairwise(truth.offsets.tolist()), strict=True
        )
        for x1, y1, x2, y2 in boxes[slice(*ends)]
    ]
    categories = [{"id": number, "name": name} for number, name in enumerate(answers.names)]
    assert len(categories) == CLASSES
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(document), encoding="utf-8")
    boxes = given.boxes.round(2).tolist()
    with (folder / "made-up.jsonl").open("w", encoding="utf-8") as file:
        file.write(json.dumps({"xbench_boxes": 1, "model": "made-up", "frame": "pixels"}) + "\n")
        for case, finding, (first, end) in zip(
            answers.case_of.tolist(), answers.class_of.tolist(), pairwise(given.offsets.tolist()), strict=True
        ):
            line = {"case": f"c{case:06d}", "finding": answers.names[finding], "boxes": boxes[first:end]}
            file.write(json.dumps({**line, "scores": scores[first:end]}) + "\n")


def measured(arguments, folder):
    """Wall and CPU seconds of a command, and the peak of its memory."""
    start, command = time.perf_counter(), [sys.executable, "-m", "xbench_fast.runtime.cli", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}.")
    wall, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return {"wall_s": round(wall, 1), "cpu_s": round(cpu, 1), "peak_mb": round(usage.ru_maxrss * 1024 / 1e6)}


def evaluated(name, folder, *more):
    arguments = ["eval", "--model", f"boxes:{name}.jsonl", "--dataset", "coco", "--data", "coco=.", "--out", "run"]
    return measured([*arguments, *more], folder)


def one_dataset(folder, few, many, figures):
    """`eval` of the first `few` lines beside that of all `many`, on the same images."""
    with (folder / "made-up.jsonl").open("rb") as whole, (folder / "few.jsonl").open("wb") as part:
        part.writelines(islice(whole, 1 + few))
    found = evaluated("few", folder, "--missing", "leave-out")
    more = figures["lines"][str(many)]["eval"]["peak_mb"] - found["peak_mb"]
    told = {"images": many // 2, "lines": few, "eval": found, "bytes_per_line": round(1e6 * more / (many - few))}
    print(f"{few:>9,} lines for {many // 2:,} images: {found}; {told['bytes_per_line']} bytes for each line more")
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[25_000, 100_000, 400_000])
    parser.add_argument("--keep", type=Path, help="leave files and runs here")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_files(options.keep, *options.lines)
        return
    figures: dict[str, Any] = {"load_average_before": round(os.getloadavg()[0], 2), "replicates": 1000, "lines": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for lines in options.lines:
            folder = (options.keep or Path(scratch)) / str(lines)
            folder.mkdir(parents=True)
            own = [sys.executable, str(Path(__file__).resolve()), "--write", "--keep", str(folder.resolve())]
            subprocess.run([*own, "--lines", str(lines)], check=True)
            found = {"eval": evaluated("made-up", folder), "report": measured(["report"], folder)}
            both = {key: round(sum(part[key] for part in found.values()), 1) for key in ("wall_s", "cpu_s")}
            found["together"] = {**both, "peak_mb": max(part["peak_mb"] for part in found.values())}
            figures["lines"][str(lines)] = found
            for name, part in found.items():
                print(f"{lines:>9,} lines, {name:<9} " + ", ".join(f"{key} {part[key]}" for key in part), flush=True)
        few, many = min(options.lines), max(options.lines)
        if few < many:
            figures["of_one_dataset"] = one_dataset((options.keep or Path(scratch)) / str(many), few, many, figures)
    if options.json:
        from xbench_fast.runtime.benching.benchmark_record import write_record

        write_record(options.json, figures)


if __name__ == "__main__":
    main()
