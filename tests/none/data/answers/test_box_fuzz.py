"""Mutated lines: a sentence with file and line, or the boxes of a second reader (docs/boxes.md §2)."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
from answer_files import CLASSES, FIXTURES, case, small
from naive_box_lines import naive
from xbench_fast.engines.errors import XBenchError
from xbench_fast.runtime.data.answers.answered import State
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes

SIZE = 1000, 800
LABELS = {"a": {"Effusion": 1, "Mass": 1, "Nodule": 0}, "b": {"Effusion": 0, "Mass": 1, "Nodule": 1}}
LINES = 500 * int(os.environ.get("XBENCH_FUZZ", "1"))
PIECES = [
    b"", b" ", b"0", b"9", b"-", b".", b",", b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b"\\u0000", b"e9", b"E-3",
    b"1e999", b"NaN", b"null", b"true", b"[]", b"[1,2,3,4]", b"(", b")", b"<", b">", b"</box>", b"</think>",
    b"<think>", b"</object>", b"<box>", b"<object>", b"<loc_1>", b"<|box|>", b'\\"bbox_2d\\": ', b"\xff", b"\xc3\xa9",
    b"\xd9\xa0", b"_", b"+", b"\t", b'"text": "x",', b'"scores": [1],', b'"frame": "unit",', b'"order": "xywh",',
    b'"view": [224, 224],', b"Infinity", b'"frame": "pixels",', b'"view": {"min_pixels": 3136, "max_pixels": 99999},',
    b"</REASONING>", b"<|thinking|>", b"<answer>", b"</answer>", b'\\"label\\": \\"<think>\\",',
    b"[[1,2,3,4],[5,6,7]],", b"(1,2),(3,4)", b"<box>", b"Final Answer:",
    b'"boxs"', b"1" * 400, b'"size": [1000, 800],',
]  # fmt: skip


def world() -> Questions:
    cases = [case(name, dict(labels), (SIZE[1], SIZE[0])) for name, labels in LABELS.items()]
    return Questions(cases, CLASSES, ("small",))


def bases() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(header, line): boxes in every frame and order, and a text of every dialect."""
    found = []
    boxes = [[100, 50.5, 300, 400], [10, 20, 999, 790], [100, 50.5, 300, 400]]
    for frame in ("pixels", "unit", "percent", "permille", "999", "resized", "crop", "pad"):
        for order in ("xyxy", "yxyx", "xywh", "cxcywh"):
            mine = [[value / 1000 for value in box] for box in boxes] if frame == "unit" else boxes
            line = {"case": "a", "finding": "Mass", "boxes": mine, "frame": frame, "order": order, "view": [500, 448]}
            found += [({}, line), ({}, {**line, "scores": [0.5, 0.1, 3], "note": "n", "dataset": "small"})]
    for vector in json.loads((FIXTURES / "dialects.json").read_text())["cases"][:14]:
        view = vector.get("view", {})
        header: dict[str, Any] = {"dialect": vector["dialect"], "frame": view.get("frame", "pixels")}
        if "max_pixels" in view:
            header["view"] = {key: view[key] for key in ("min_pixels", "max_pixels")}
        header |= {key: view[key] for key in ("order", "key") if key in view}
        found.append((header, {"case": "b.png", "finding": "Nodule", "text": f"{vector['text']}"}))
    return found + found[-14:] * 3


def mutated(line: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        place = rng.randrange(len(line) + 1)
        stop = min(len(line), place + rng.choice((0, 0, 1, 1, 2, 5, 20)))
        kind = rng.random()
        if kind < 0.5:
            line = line[:place] + rng.choice(PIECES) + line[stop:]
        elif kind < 0.7:
            line = line[:place] + line[stop:]
        elif kind < 0.8:
            line = line[:place]
        elif kind < 0.9:  # a piece of the line once more
            line = line[:place] + line[place : place + rng.randrange(1, 60)] + line[place:]
        else:  # another digit
            digits = [at for at, byte in enumerate(line) if chr(byte).isdigit()]
            if digits:
                at = rng.choice(digits)
                line = line[:at] + str(rng.randrange(10)).encode() + line[at + 1 :]
    return line.replace(b"\n", b" ")


def test_mutated_lines(tmp_path: Path) -> None:
    questions, rng, known = world(), random.Random(16), bases()
    path = tmp_path / "f.jsonl"
    stopped = answered = with_boxes = 0
    for number in range(LINES):
        header, line = known[number % len(known)]
        raw = mutated(json.dumps(line).encode(), rng)
        path.write_bytes(json.dumps({"xbench_boxes": 1, **header}).encode() + b"\n" + raw + b"\n")
        expected = naive(raw, header, LABELS, SIZE)
        try:
            file = read_boxes(path, questions)
        except XBenchError as error:
            said = str(error)
            assert expected is None, (raw, said)
            assert said.startswith(f"{path}, line 2") or (not raw.strip() and said.startswith(f"{path}: ")), said
            assert said.endswith(".") and "\n" not in said, said
            stopped += 1
            continue
        assert expected is not None, (raw, header)
        name, finding, boxes, dropped = expected
        side = file.positives if LABELS[name][finding] else file.negatives
        place = side.pairs.index((name, finding))
        given = side.boxes[slice(*side.offsets[place : place + 2])]
        np.testing.assert_allclose(given, np.reshape(boxes, (-1, 4)), rtol=1e-9, atol=1e-6, err_msg=str(raw))
        assert int(side.illegal[place] + side.outside[place]) == dropped, raw
        assert (side.state[place] == State.ANSWERED) == bool(boxes)
        answered += 1
        with_boxes += bool(boxes)
    assert stopped > LINES / 5 and answered > LINES / 5 and with_boxes > LINES / 10


def test_the_second_reader_reads_the_vectors() -> None:
    for vector in json.loads((FIXTURES / "dialects.json").read_text())["cases"]:
        view = dict(vector.get("view", {}))
        view.pop("resized", None)
        header = {key: view.pop(key) for key in ("frame", "order", "key") if key in view}
        header |= {"dialect": vector["dialect"], **({"view": view} if view else {})}
        line = {"case": "a", "finding": "Mass", "text": vector["text"]}
        width, height = vector["image"]
        found = naive(json.dumps(line).encode(), header, LABELS, (width, height))
        wanted = np.clip(vector["boxes"], 0, [width, height, width, height])
        wanted = wanted[(wanted[:, 0] < wanted[:, 2]) & (wanted[:, 1] < wanted[:, 3])]
        np.testing.assert_allclose(found[2], wanted, rtol=0, atol=1e-6, err_msg=vector["text"])


def test_small_world_has_other_sizes() -> None:
    """The mutated lines are of an image that is not square."""
    assert world().size(0) == SIZE and small().size(0) == (1024, 1024)
