"""`xbench-fast eval` as a user runs it: a subprocess, a real ONNX model, ONNX Runtime on the CPU."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score
from synthetic import make_bundle, make_dataset, model, prompt_set, reference_sweep, save_graph
from xbench_fast.metrics_gpu.compiled import COMPILING

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CASES = 320
COMMAND = [sys.executable, "-m", "xbench_fast.runtime.cli"]


def command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    wide = {**os.environ, "COLUMNS": "200"}
    line = [*COMMAND, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, env=wide, **options)


def arguments(folder: Path, out: str, *more: object) -> list[str]:
    paths = ["--bundles", folder / "models", "--data", f"coco={folder / 'data'}", "--out", folder / out]
    return ["eval", "--all", *map(str, paths), "--threads", "2", "--batch", "4", "--chunk", "8", *map(str, more)]


def result(out: Path, name: str = "blocks-32--coco") -> Any:
    run = json.loads((out / "run.json").read_text())
    return pq.read_table(out / run["cells"][name]["file"]).replace_schema_metadata()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("eval")
    graph = save_graph(made / "blocks.onnx")
    (made / "models").mkdir()
    make_bundle(made / "models" / "blocks-32", graph=graph)
    make_dataset(made / "data", CASES)
    return made


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    """An uninterrupted run over all cases."""
    done = command(*arguments(folder, "whole"))
    assert done.returncode == 0, done.stderr
    assert "1 cell finished" in done.stdout and f"{CASES} cases" in done.stdout
    compiling = COMPILING.partition("%s")[0]  # the first test that evaluates finds no compiled loops
    assert "\x1b" not in done.stdout and all(line.startswith(compiling) for line in done.stderr.splitlines())
    return folder / "whole"


def test_counts_equal_those_of_whole_maps(folder: Path, whole: Path) -> None:
    rows = result(whole).to_pylist()
    assert len(rows) == 2 * CASES
    document = json.loads((folder / "data" / "annotations.json").read_text())
    boxes = {(a["image_id"], a["category_id"]): a["bbox"] for a in document["annotations"]}
    i, j = np.arange(224) * 40 // 224, np.arange(224) * 56 // 224
    for row in rows[:60]:
        picture = Image.open(folder / "data" / "images" / f"{row['case_id']}.png")
        small = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR))
        logits, saliency = model(small[None, None], prompt_set().features)
        query = ("Mass", "Effusion").index(row["finding"])
        assert row["logit"] == logits[0, query]
        box = boxes.get((row["case_id"], query + 1))
        assert row["label"] == int(box is not None)
        if box is None:
            assert row["area"] is None
            continue
        x, y, w, h = box
        mask = ((i >= y) & (i < y + h))[:, None] & ((j >= x) & (j < x + w))[None, :]
        counts = reference_sweep(saliency[0, query : query + 1], mask[None])
        assert (row["area"], row["overlap"]) == (counts.area[0].tolist(), counts.overlap[0].tolist())
        assert (row["argmax"], row["hit"]) == (counts.argmax[0], counts.hit[0])


def test_the_report_says_what_the_rows_say(whole: Path) -> None:
    shown = command("report", whole)
    assert shown.returncode == 0, shown.stderr
    rows = result(whole).to_pandas()
    data = json.loads((whole / "report" / "report.json").read_text())
    points, dices = [], []
    for scores in data["cells"][0]["grounding"]["classes"]:
        pairs = rows[(rows.finding == scores["name"]) & (rows.region_area > 0)]
        area, overlap = np.stack(pairs.area.to_list()), np.stack(pairs.overlap.to_list())
        region = pairs.region_area.to_numpy()[:, None]
        dice = np.mean(2 * overlap / (area + region), axis=0)
        assert scores["n"] == len(pairs) and scores["best_tau"] == np.flatnonzero(dice == dice.max())[0] / 100
        points.append(pairs.hit.to_numpy(bool).mean())
        dices.append(dice.max())
    markdown = (whole / "report" / "tables.md").read_text()
    for number in (np.mean(points), np.mean(dices)):
        assert f" {100 * number:.2f} " in shown.stdout and f"| {100 * number:.2f}<br>" in markdown
    for scores in data["cells"][0]["recognition"]["classes"]:
        known = rows[rows.finding == scores["name"]]
        assert scores["auc"] == pytest.approx(roc_auc_score(known.label, known.logit))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(60_000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    pytest.fail("the evaluation did not get anywhere")


def start(folder: Path, out: str, parts: int) -> subprocess.Popen[str]:
    """Starts an evaluation and comes back when it has `parts` finished chunks."""
    process = subprocess.Popen(
        [*COMMAND, *arguments(folder, out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: len(list((folder / out).glob("cells/*.parts/[0-9]*.parquet"))) >= parts, process)
    return process


@pytest.mark.parametrize("parts", [1, 15, 30])
def test_a_killed_run_resumes_row_for_row(folder: Path, whole: Path, parts: int) -> None:
    out = f"killed{parts}"
    process = start(folder, out, parts)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    finished = len(list((folder / out).glob("cells/*.parts/[0-9]*.parquet")))
    assert parts <= finished and not list((folder / out).glob("cells/*.parquet"))
    done = command(*arguments(folder, out))
    assert done.returncode == 0, done.stderr
    taken = re.search(r"\((\d+) taken over from before\)", done.stdout)
    assert taken is not None and int(taken[1]) >= 8 * (finished - 1)
    assert result(folder / out).equals(result(whole))
    again = command(*arguments(folder, out))
    assert again.returncode == 0 and "finished before, reused" in again.stdout
    assert not list((folder / out).glob("cells/*.parts")) and not list((folder / out).glob("cells/.*"))


def test_ctrl_c_keeps_finished_work(folder: Path, whole: Path) -> None:
    process = start(folder, "stopped", 5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(errors.strip().splitlines()) == 1 and errors.startswith("Interrupted; finished work is kept in")
    done = command(*arguments(folder, "stopped"))
    assert done.returncode == 0 and "taken over from before" in done.stdout
    assert result(folder / "stopped").equals(result(whole))


def test_a_disk_that_refuses_is_one_sentence(folder: Path, whole: Path) -> None:
    """A limit on the size of files stands in for a full disk: part files fit, the merged file does not."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = command(*arguments(folder, "full", "--no-cache"), preexec_fn=limit)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("Error: ") and "the disk is full" in done.stderr
    assert len(list((folder / "full").glob("cells/*.parts/[0-9]*.parquet"))) == CASES // 8
    done = command(*arguments(folder, "full", "--no-cache"))
    assert done.returncode == 0 and f"{CASES} taken over from before" in done.stdout
    assert result(folder / "full").equals(result(whole))


def test_memory_does_not_grow_with_the_cases(folder: Path) -> None:
    code = (
        "import resource, sys\n"
        "from xbench_fast.runtime.cli import main\n"
        "try: main()\n"
        "finally: print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    peaks = []
    for limit in (40, CASES):
        line = [sys.executable, "-c", code, *arguments(folder, f"memory{limit}", "--limit", limit)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=True)
        found = re.search(r"peak (\d+)", done.stderr)
        assert found is not None
        peaks.append(int(found[1]))
    # Were everything kept, 280 more cases of 8 kB pictures, masks and counts would be well above 20 MB.
    assert peaks[1] - peaks[0] < 15_000, peaks


def test_a_damaged_bundle_fails_alone(folder: Path, tmp_path: Path, whole: Path) -> None:
    (tmp_path / "models").mkdir()
    graph = folder / "blocks.onnx"
    make_bundle(tmp_path / "models" / "blocks-32", graph=graph)
    damaged = make_bundle(tmp_path / "models" / "a-damaged", graph=graph).path
    (damaged / "image.onnx").write_bytes((damaged / "image.onnx").read_bytes()[:-1] + b"?")
    line = arguments(folder, "damaged")
    line[line.index("--bundles") + 1] = str(tmp_path / "models")
    done = command(*line)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: a-damaged on coco:") and "sha256" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert result(folder / "damaged").equals(result(whole))
    listed = command("models", "--bundles", tmp_path / "models")
    assert listed.returncode == 1 and "blocks-32" in listed.stdout
    assert "damaged: " in listed.stdout


def test_the_engine_that_was_asked_for_must_exist(folder: Path) -> None:
    done = command(*arguments(folder, "engine", "--engine", "onnxruntime-cpux"))
    assert done.returncode == 2 and "did you mean 'onnxruntime-cpu'" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert not (folder / "engine").exists()


def test_a_config_file_says_it_all(folder: Path, tmp_path: Path, whole: Path) -> None:
    (tmp_path / "xbench.toml").write_text(
        f"bundles = ['{folder / 'models'}']\ncache = 'prepared'\n"
        f"[datasets.films]\nroot = '{folder / 'data'}'\nreader = 'coco'\n"
        f"[datasets.absent]\nroot = 'nowhere'\nreader = 'coco'\n"
        "[eval]\nout = 'results'\nbatch = 4\nthreads = 2\n"
    )
    done = command("eval", "--all", "--chunk", "8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "blocks-32 on absent: skipped" in done.stdout
    rows, expected = result(tmp_path / "results", "blocks-32--films"), result(whole)
    assert rows.drop_columns(["dataset"]).equals(expected.drop_columns(["dataset"]))
    assert (tmp_path / "prepared").is_dir()
    named = command("eval", "--dataset", "absent", cwd=tmp_path)
    assert named.returncode == 1 and "nowhere" in named.stderr


def test_when_everything_is_skipped_the_user_must_act(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "xbench.toml").write_text(
        f"bundles = ['{folder / 'models'}']\n"
        f"[datasets.films]\nroot = '{folder / 'data'}'\nreader = 'coco'\nname = 'films'\n"
    )
    done = command("eval", "--all", cwd=tmp_path)
    assert done.returncode == 1 and "nothing was evaluated" in done.stderr
    assert "blocks-32 on films: skipped, the bundle has no prompt set 'films' (it has: " in done.stdout
