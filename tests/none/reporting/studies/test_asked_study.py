"""The study of asked models on logs written by hand: counts, tokens, latency and cost, and stores that do not fit."""

from __future__ import annotations

import csv
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from printed_whole import check_whole
from stored_counts import add_cell, random_rows
from study_world import answer, study
from xbench_fast.runtime.asking.ask_plan import PLAN_FILE, AskPlan, image_name, write_plan
from xbench_fast.runtime.asking.asked_file import store_of
from xbench_fast.runtime.asking.asked_pairs import AskedImage, AskedQuestion
from xbench_fast.runtime.asking.chat_body import RequestRules
from xbench_fast.runtime.reporting.studies.asked.asked_study import study_asked
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.run_directory import RunDirectory

HEADER = {"model": "tiny", "dataset": "one", "dialect": "qwen3vl", "attempts": 2}
RULES = RequestRules("qwen3vl", "tiny", preparation="smart32")
MASS, EDEMA = AskedQuestion("mass", True, "Mass"), AskedQuestion("edema", False, "Edema")
SAME = AskedQuestion("mass", False, "Nodule")  # one request answers this pair and that of Mass
IMAGES = tuple(
    AskedImage(case, Path(f"{case}.png"), questions)
    for case, questions in (("a", (MASS, EDEMA, SAME)), ("b", (MASS, EDEMA)), ("c", (MASS,)))
)
PLAN = AskPlan("one", RULES, HEADER, 2, IMAGES)
TOKENS = ("prompt_tokens", "completion_tokens")
PIXELS = {"a": "0a" * 32, "b": "0b" * 32}  # the image of c was never read

# image, words, attempt, kind, text, finish, tokens of the prompt and of the answer, milliseconds
SAID = [
    ("a", "mass", 1, "answer", "[]", "stop", (100, 10), 50.0),
    ("a", "mass", 1, "answer", "later", "stop", (900, 900), 9000.0),  # the first answer counts
    ("b", "mass", 1, "refused", "No.", "content_filter", (101, 4), 70.0),
    ("a", "edema", 1, "truncated", "[[", "length", (102, 512), 900.0),
    ("b", "edema", 1, "empty", "", "stop", None, 20.0),
    ("a", "mass", 2, "answer", "[1]", "stop", (7, 3), 11.0),
    ("b", "mass", 2, "failed", None, None, None, 5.0),  # no answer
]
LINES = {  # of each attempt
    1: [
        ("a", "Mass", "[]", "stop"),
        ("a", "Edema", "[[", "length"),
        ("a", "Nodule", "[]", "stop"),
        ("b", "Mass", "No.", "content_filter"),
        ("b", "Edema", "", "stop"),
    ],
    2: [("a", "Mass", "[1]", "stop"), ("a", "Nodule", "[1]", "stop")],
}
NONE = {"answered": 0, "empty": 0, "refused": 0, "truncated": 0, "without_answer": 0}
PRESENT = {
    **NONE, "asked": 3, "answered": 1, "refused": 1, "without_answer": 1,
    "prompt_tokens": 201, "prompt_tokens_mean": 100.5, "completion_tokens": 14, "completion_tokens_mean": 7,
    "counted": 2, "latency_median": 60, "latency_p95": 69, "latency_max": 70,
    "cost": (2.5 * 201 + 10 * 14) / 1e6,
}  # fmt: skip
ABSENT = {
    **NONE, "asked": 3, "answered": 1, "empty": 1, "truncated": 1,
    "prompt_tokens": 102, "prompt_tokens_mean": 102, "completion_tokens": 512, "completion_tokens_mean": 512,
    "counted": 1, "latency_median": 460, "latency_p95": 20 + 0.95 * 880, "latency_max": 900,
    "cost": (2.5 * 102 + 10 * 512) / 1e6,
}  # fmt: skip


def logged(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def asked_file(out: Path, attempt: int = 1, counted: tuple[str, ...] = TOKENS) -> dict[str, Any]:
    """Writes store and file of an attempt; what run.json keeps of the file."""
    folder = out.parent / f"{out.name}.asked"
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(folder, PLAN)
    lines = [logged({"xbench_ask": 1, "dialect": "qwen3vl"})]
    for image in IMAGES[:2]:
        size = {"size": [64, 64], "original": [64, 64], "bytes": 1, "mtime_ns": 1}
        about = {"image": image_name(image), "preparation": "smart32", "pixels": PIXELS[image.case], **size}
        lines.append(logged(about))
    for case, words, number, kind, text, finish, tokens, time in SAID:
        key = RULES.key(words, PIXELS[case], attempt=number)
        record: dict[str, Any] = {"key": key, "kind": kind, "text": text, "finish": finish, "latency_ms": time}
        if text is None:
            del record["text"]
        usage = dict(zip(TOKENS, tokens, strict=True)) if tokens else {}
        lines.append(logged({**record, "usage": {name: usage[name] for name in usage if name in counted}}))
    lines.insert(4, b"00000000 {}\n")
    (folder / "log.jsonl").write_bytes(b"".join(lines) + b"0123 torn")
    file = out if attempt == 1 else out.with_name(f"{out.stem}.{attempt}.jsonl")
    told = [{"xbench_boxes": 1, **HEADER}]
    told += [dict(zip(("case", "finding", "text", "finish"), line, strict=True)) for line in LINES[attempt]]
    file.write_text("\n".join(map(json.dumps, told)) + "\n")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"file": str(file), "sha256": sha256, "provenance": {"dataset": "one"}, "frames": {"qwen3vl": 5}}


def made(path: Path, **models: Mapping[str, Any] | None) -> Path:
    """A run of these models, each of a file of boxes or, with None, of maps."""
    with RunDirectory(path) as run:
        run.begin({})
        for name, boxes in models.items():
            details = {} if boxes is None else {"weights": "boxes", "boxes": boxes}
            add_cell(run, name, "one", random_rows(3), **details)
    return path


def state(folder: Path) -> list[tuple[str, bytes, int]]:
    return [(path.name, path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]


def numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in PRESENT}


def test_counts_tokens_latency_and_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = asked_file(tmp_path / "f.jsonl")
    before = state(tmp_path / "f.jsonl.asked")
    run = made(tmp_path / "run", f=boxes, maps=None, own={"file": str(tmp_path / "own.jsonl"), "sha256": ""})
    said = " ".join(study(capsys, "asked", run, "--prices", "2.5,10", "--replicates", 40).split())
    assert state(tmp_path / "f.jsonl.asked") == before, "the store is only read"
    record = answer(run, "asked")
    present, absent = record["asked"]
    lead = {"model": "f", "dataset": "one", "asked_model": "tiny", "dialect": "qwen3vl", "attempt": 1}
    assert lead.items() <= present.items() and lead.items() <= absent.items()
    assert (present["truth"], absent["truth"]) == ("present", "absent")
    assert numbers(present) == pytest.approx(PRESENT) and numbers(absent) == pytest.approx(ABSENT)
    assert "no file of theirs has a log of xbench-fast ask beside it: maps, own." in said
    assert "cost: 2.5 for a million tokens of prompts, 10 for a million of answers" in said
    assert record["settings"]["prices"] == [2.5, 10] and [each["model"] for each in record["results"]] == ["f"]
    with (run / "studies/asked/asked.csv").open(newline="") as stream:
        assert [row["refused"] for row in csv.DictReader(stream)] == ["1", "0"]
    for table in study_asked(load_material(run), (2.5, 10.0)).tables:
        for width in (80, 120):
            check_whole(table, width)


def test_without_prices_and_without_counted_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path / "run", f=asked_file(tmp_path / "f.jsonl", counted=()))
    text = study(capsys, "asked", run, "--replicates", 40)
    assert "cost" not in text
    row = answer(run, "asked")["asked"][0]
    assert row["prompt_tokens"] is row["completion_tokens_mean"] is row["cost"] is None and row["counted"] == 0
    assert (row["asked"], row["latency_median"]) == (3, 60)
    for counted, known in ((), None), (TOKENS[:1], 201):
        asked_file(tmp_path / "f.jsonl", counted=counted)
        study(capsys, "asked", run, "--replicates", 40, "--prices", "1,1")
        row = answer(run, "asked")["asked"][0]
        assert row["prompt_tokens"] == known and row["cost"] is None, "unknown and not free"


@pytest.mark.parametrize("name", ["f.jsonl", "f"])
def test_a_later_attempt_has_its_own_counts(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path / "run", second=asked_file(tmp_path / name, 2))
    study(capsys, "asked", run, "--replicates", 40)
    present, absent = answer(run, "asked")["asked"]
    assert present["attempt"] == 2
    assert [present[key] for key in ("asked", "answered", "without_answer", "prompt_tokens")] == [3, 1, 2, 7]
    assert [absent[key] for key in ("asked", "answered", "without_answer", "prompt_tokens")] == [3, 1, 2, None]


def test_the_store_of_a_file(tmp_path: Path) -> None:
    for name in ("f.jsonl", "x.3.jsonl"):
        (tmp_path / f"{name}.asked").mkdir()
    found = {name: store_of(tmp_path / name) for name in ("f.jsonl", "f.2.jsonl", "x.3.jsonl")}
    assert [each and each[1] for each in found.values()] == [1, 2, 1]
    others = ("g.jsonl", "f.1.jsonl", "f.02.jsonl", "f.2.json", "f.x.jsonl", ".2.jsonl", "f.²3.jsonl")
    assert [store_of(tmp_path / name) for name in others] == [None] * len(others)


def damaged(folder: Path, how: str) -> None:
    plan = json.loads((folder / PLAN_FILE).read_text())
    if how == "one more answer":
        record = {"key": RULES.key("edema", PIXELS["a"], attempt=1), "kind": "answer", "text": "other"}
        lines = (folder / "log.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "log.jsonl").write_bytes(b"".join([*lines[:3], logged(record), *lines[3:]]))
    elif how in ("plan.json", "log.jsonl"):
        (folder / how).unlink()
    else:
        plan |= {"dataset": "other"} if how == "dataset" else {}
        plan["rules"] |= {"dialect": how} if how in ("json", "unknown") else {}
        plan["images"][0][2][0][0] = 5 if how == "words" else "mass"
        (folder / PLAN_FILE).write_text(json.dumps(plan))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("one more answer", "do not give the file that was evaluated; run xbench-fast ask --write"),
        ("dataset", "has answers about the dataset other, not one; evaluate"),
        ("json", "has answers in the dialect json, not qwen3vl; evaluate"),
        ("frames", "has answers in the dialect qwen3vl, not json; evaluate"),
        ("unknown", "cannot be read as a plan (KeyError)"),
        ("words", "cannot be read as a plan (AttributeError)"),
        ("plan.json", "has no plan; ask again"),
        ("log.jsonl", "cannot be read: No such file or directory"),
    ],
)
def test_a_store_that_does_not_fit_is_left_out(
    how: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = asked_file(tmp_path / "bad.jsonl"), asked_file(tmp_path / "good.jsonl")
    damaged(tmp_path / "bad.jsonl.asked", how)
    bad["frames"] = {"json permille": 5} if how == "frames" else bad["frames"]
    run = made(tmp_path / "run", bad=bad, good=good)
    study(capsys, "asked", run, "--replicates", 40)
    record = answer(run, "asked")
    assert {row["model"] for row in record["asked"]} == {"good"}
    (remark,) = [fact for fact in record["facts"] if "left out" in fact]
    assert remark.startswith("bad on The one: left out, ") and said in remark
    assert "1 of 2 finished cells are of files with a log of xbench-fast ask" in record["facts"]


def test_controls_and_runs_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = asked_file(tmp_path / "f.jsonl")
    run = made(
        tmp_path / "run", f=boxes, moved={**boxes, "moved": True}, mirrored={**boxes, "mirrored": True}, maps=None
    )
    said = " ".join(study(capsys, "asked", run, "--replicates", 40).split())
    assert "their answers are those of another result: moved, mirrored." in said
    assert {row["model"] for row in answer(run, "asked")["asked"]} == {"f"}
    assert "f: boxes from a file" in said, "what is said of tables names their models alone"
    for name in ("moved", "maps"):
        said = study(capsys, "asked", run, "--model", name, code=1)
        assert said.count("\n") == 1 and "no result of a file with a log of xbench-fast ask beside it; evaluate" in said
    assert "--prices 3 is not two numbers" in study(capsys, "asked", run, "--prices", "3", code=2)
