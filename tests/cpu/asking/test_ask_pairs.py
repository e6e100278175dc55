"""`ask` end to end against a server of its own process, by the 40 pairs of tests/ask (docs/ask.md)."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from ask_server import AskServer
from ask_world import ASK, PAIRS, cut, run
from xbench_fast import evaluate, report
from xbench_fast.runtime.asking.sent_images import read_sent

EXPECTED = json.loads((ASK / "expected.json").read_text())
FAST = {"concurrency": 4}


def answers(folder: Path) -> dict[str, dict[str, Any]]:
    """pixels -> words -> the reply of the pair, for the images as each dialect sends them."""
    import base64
    import hashlib
    import io

    from PIL import Image

    known: dict[str, dict[str, Any]] = defaultdict(dict)
    for pair in PAIRS:
        name = pair["prepare"] + ("+grid" if pair["dialect"] == "grid" else "")
        sent = read_sent(folder / f"{pair['case']}.png", name, "png")
        assert list(sent.size) == pair["sent_size"], pair["id"]
        data = base64.b64decode(sent.url.partition(b"base64,")[2])
        with Image.open(io.BytesIO(data)) as image:
            pixels = hashlib.sha256(image.tobytes()).hexdigest()
        choice = pair["response"]["choices"][0]
        known[pixels][pair["finding"].lower()] = {
            "content": choice["message"]["content"],
            "finish": choice["finish_reason"],
        }
    return known


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """The folder, what was asked of each dialect, and the requests that the server got."""
    folder = tmp_path_factory.mktemp("pairs")
    cut(folder / "all")
    counts: dict[str, Any] = {}
    with AskServer(answers=answers(folder / "all"), count_tokens=0) as server:
        for dialect in dict.fromkeys(pair["dialect"] for pair in PAIRS):
            own = [pair for pair in PAIRS if pair["dialect"] == dialect]
            config = cut(folder / dialect, own, own=True)
            absent = json.loads((folder / dialect / "coco.json").read_text())
            frame = {"frame": "permille"} if dialect == "json" else {}
            findings = tuple(dict.fromkeys(pair["finding"] for pair in own))
            out = folder / f"{dialect}.jsonl"
            assert absent["images"]
            counts[dialect], _ = run(
                config, server.url, dialect, out, model=own[0]["request"]["model"], negatives="all",
                findings=findings, **frame, **FAST,
            )  # fmt: skip
        seen = server.seen()
    return folder, counts, seen


def test_every_request_is_the_pairs_word_for_word(
    asked: tuple[Path, dict[str, Any], list[dict[str, Any]]],
) -> None:
    bodies = []
    for request in asked[2]:
        if request["path"].endswith("/completions"):
            body = json.loads(request["body"])
            for message in body["messages"]:
                for part in message["content"] if isinstance(message["content"], list) else ():
                    if part["type"] == "image_url":
                        part["image_url"]["url"] = part["image_url"]["url"].partition("base64,")[0] + "base64,<IMAGE>"
            bodies.append(body)
    for pair in PAIRS:
        assert pair["request"] in bodies, pair["id"]


def test_every_line_is_the_pairs(asked: tuple[Path, dict[str, Any], list[dict[str, Any]]]) -> None:
    for pair in PAIRS:
        header, *lines = map(json.loads, (asked[0] / f"{pair['dialect']}.jsonl").read_text().splitlines())
        own = {key: value for key, value in pair["line"].items() if key not in ("case", "frame", "key", "order")}
        found = [{k: v for k, v in line.items() if k != "case"} for line in lines]
        assert own in found, pair["id"]
        assert header["dialect"] == pair["dialect"] and "view not proved" in header["note"]
        assert header.get("frame") == pair["line"].get("frame")


def merged(folder: Path) -> Path:
    """The asked lines of the pairs in one file, each with its dialect, as `hand.jsonl` has them."""
    hand = [json.loads(line) for line in (ASK / "hand.jsonl").read_text().splitlines()]
    ids = {
        image["id"]: image["file_name"].removesuffix(".png")
        for image in json.loads((ASK / "coco.json").read_text())["images"]
    }
    lines = [json.dumps(hand[0])]
    for pair in PAIRS:
        _, *own = map(json.loads, (folder / f"{pair['dialect']}.jsonl").read_text().splitlines())
        (line,) = [
            each for each in own if ids.get(int(each["case"])) == pair["case"] and each["finding"] == pair["finding"]
        ]
        frame = {"frame": pair["line"]["frame"]} if "frame" in pair["line"] else {}
        lines.append(json.dumps({**line, "dialect": pair["dialect"], **frame}))
    out = folder / "merged" / "answers.jsonl"
    out.parent.mkdir(exist_ok=True)
    out.write_text("\n".join(lines) + "\n")
    return out


def reported(folder: Path, file: Path, name: str) -> dict[str, str]:
    """Tables, CSV and JSON of eval and report, without the file's place and hash."""
    done = evaluate(
        f"boxes:one={file}", "fixture", folder / "all", out=folder / name / "run", missing="leave-out", progress=False,
        data_options={"fixture": {"reader": "coco", "images": ".", "annotations": "coco.json"}},
    )  # fmt: skip
    report(done, folder / name / "report", replicates=100)
    texts = {}
    for path in sorted((folder / name / "report").rglob("*")):
        if path.suffix in (".csv", ".txt", ".md") and "provenance" not in path.name:
            texts[path.name] = re.sub(r"\d{4}-\d\d-\d\dT[\d:+]+|(?<![\d.])[0-9a-f]{12}\b", "*", path.read_text())
    return texts


def test_the_report_is_that_of_the_same_answers_by_hand(
    asked: tuple[Path, dict[str, Any], list[dict[str, Any]]],
) -> None:
    folder = asked[0]
    hand = folder / "hand" / "answers.jsonl"
    hand.parent.mkdir()
    hand.write_text((ASK / "hand.jsonl").read_text())
    of_asked, of_hand = reported(folder, merged(folder), "of_asked"), reported(folder, hand, "of_hand")
    assert of_asked.keys() == of_hand.keys() and len(of_hand) > 3
    for name, text in of_hand.items():
        assert of_asked[name] == text, name
    numbers = EXPECTED["percent_with_missing_leave_out"]
    assert any("boxes.csv" in name for name in of_hand)
    (row,), (table,) = (list(csv.DictReader(of_hand[name].splitlines())) for name in ("boxes.csv", "table1.csv"))
    found = [table[f"{name}_percent"] for name in ("pointing", "dice_fixed", "iou_fixed")]
    assert [round(float(value), 2) for value in found] == [numbers[name] for name in ("pointing", "dice", "iou")]
    assert row["pairs"] == str(numbers["n_pairs"]) and row["refused"] == "1"
    assert row["silent"] == str(EXPECTED["positive"]["silent"] + EXPECTED["positive"]["refused"])
