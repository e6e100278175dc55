"""What the plan says, what a dry run leaves alone, and what a store takes (docs/ask.md §1, §5)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ask_server import AskServer
from ask_world import OPTIONS, PAIRS, cut, run
from PIL import Image
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.runtime.asking.answer_log import LOG_FILE, AnswerLog
from xbench_fast.runtime.asking.ask_dataset import ask_dataset
from xbench_fast.runtime.asking.ask_options import AskOptions
from xbench_fast.runtime.asking.ask_rules import AskRequest
from xbench_fast.runtime.asking.asked_file import asked_folder, locked
from xbench_fast.runtime.evaluation.progress import Advance, PlainProgress
from xbench_fast.runtime.host.config import DatasetConfig


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> DatasetConfig:
    """Three images, each with the finding of its pair."""
    return cut(tmp_path_factory.mktemp("small"), PAIRS[:3], own=True)


@pytest.fixture(scope="module")
def server() -> Iterator[AskServer]:
    with AskServer(count_tokens=0) as started:
        yield started


def dry(config: DatasetConfig, dialect: str, out: Path, **given: Any) -> tuple[dict[str, Any], str]:
    counts, lines = run(config, "http://127.0.0.1:9/v1", dialect, out, dry_run=True, **given)
    return counts, "\n".join(lines)


def test_a_plan_says_what_a_run_costs_at_most(small: DatasetConfig, tmp_path: Path) -> None:
    given = {"limit": 1, "view": "280x280", "prices": "1000000,10", "max_tokens": 200}
    counts, text = dry(small, "qwen25vl", tmp_path / "o.jsonl", **given)
    tokens = counts["prompt_tokens"]
    assert 100 < tokens < 140 and counts["cost"] == (pytest.approx(tokens), 0.002)
    assert f"cost by --prices: about {tokens} for prompts, at most 0.002 for answers" in text
    _, text = dry(small, "radvlm", tmp_path / "o.jsonl", **given | {"view": None})
    assert "cost by --prices: at most 0.002 for answers" in text
    _, text = dry(small, "radvlm", tmp_path / "o.jsonl", **given | {"view": None, "set": ("max_tokens=100",)})
    assert "at most 100 tokens" in text and "at most 0.001 for answers" in text
    counts, text = dry(small, "qwen25vl", tmp_path / "o.jsonl", **given | {"unset": ("max_tokens",)})
    assert "no limit of tokens; image" in text and f"about {tokens} for prompts, no limit for answers" in text
    assert counts["cost"] == (pytest.approx(tokens), None)


@pytest.mark.parametrize(
    ("dialect", "kind", "words"),
    [("florence2", "llamacpp", "llama-server with --special"), ("qwen2vl", "ollama", "Ollama has no such flag"),
     ("florence2", "openai", "the flag that keeps special tokens"), ("florence2", "vllm", ""), ("json", "ollama", "")],
)  # fmt: skip
def test_a_plan_names_the_flag_that_keeps_tokens(
    small: DatasetConfig, tmp_path: Path, dialect: str, kind: str, words: str
) -> None:
    frame = {"frame": "permille"} if dialect == "json" else {}
    _, text = dry(small, dialect, tmp_path / "o.jsonl", server=kind, **frame)
    assert words in text and ("has special tokens, which no field" in text) is bool(words)


@pytest.mark.parametrize(
    ("given", "warned"),
    [({"frame": "permille"}, False), ({"frame": "unit"}, True), ({"frame": "permille", "order": "yxyx"}, True),
     ({"frame": "permille", "key": "box_2d"}, True)],
)  # fmt: skip
def test_boxes_that_the_prompt_does_not_ask_for(
    small: DatasetConfig, tmp_path: Path, given: dict[str, str], warned: bool
) -> None:
    _, text = dry(small, "json", tmp_path / "o.jsonl", **given)
    assert ("asks for bbox_2d in thousandths with x first" in text) is warned
    (prompt := tmp_path / "prompt.txt").write_text("Where is {words}?")
    _, text = dry(small, "json", tmp_path / "o.jsonl", **given, prompt_file=prompt)
    assert "asks for bbox_2d" not in text


def test_a_dry_run_changes_nothing_and_needs_no_lock(small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    run(small, server.url, "radvlm", out)
    log = asked_folder(out) / LOG_FILE
    with log.open("ab") as stream:
        stream.write(b"half a li")
    before = {path: path.read_bytes() for path in (out, *asked_folder(out).iterdir())}
    with locked(asked_folder(out)):
        counts, text = dry(small, "radvlm", out)
    assert counts["answered_before"] == 3 and counts["bytes"] == 0 and "3 answered before" in text
    assert {path: path.read_bytes() for path in (out, *asked_folder(out).iterdir())} == before
    log.unlink()
    assert dry(small, "radvlm", out)[0]["answered_before"] == 0 and not log.exists()


def test_a_store_takes_another_model_that_is_asked_for(small: DatasetConfig, tmp_path: Path) -> None:
    """But not another one that answers in its place."""
    out = tmp_path / "o.jsonl"
    with AskServer(count_tokens=0) as server:
        first, _ = run(small, server.url, "radvlm", out, model="a")
        second, _ = run(small, server.url, "radvlm", out, model="b")
        assert (second["answers"], second["answered_before"], second["stopped"]) == (3, 0, "")
        assert '"model": "b"' in out.read_text().splitlines()[0]
        server.change(default={"content": "[]", "model": "b-2"})
        other, _ = run(small, server.url, "radvlm", out, model="b", temperature=0.5)
        assert "'b-2' answered, and 'b' before" in other["stopped"] and not other["answers"]
        again, _ = run(small, server.url, "radvlm", out, model="a")
    assert first["answers"] == again["answered_before"] == 3


def test_no_file_of_somebody_else_is_replaced(small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    """Also beside a store without a plan, and where an attempt would be written."""
    out = tmp_path / "o.jsonl"
    AnswerLog(asked_folder(out), "radvlm").close()
    out.write_text("mine")
    with pytest.raises(ConfigError, match="was not written by ask"):
        run(small, server.url, "radvlm", out)
    (tmp_path / "p.2.jsonl").write_text("mine")
    with pytest.raises(ConfigError, match=r"p\.2\.jsonl exists and was not written by ask"):
        run(small, server.url, "radvlm", tmp_path / "p.jsonl", attempts=2)
    run(small, server.url, "radvlm", tmp_path / "p.jsonl")
    with pytest.raises(ConfigError, match=r"p\.2\.jsonl exists and was not written by ask"):
        run(small, server.url, "radvlm", tmp_path / "p.jsonl", attempts=2)
    (tmp_path / "p.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"p\.jsonl exists and was not written by ask"):
        run(small, server.url, "radvlm", tmp_path / "p.jsonl")
    with pytest.raises(ConfigError, match=r"p\.jsonl exists and was not written by ask"):
        run(small, "", "radvlm", tmp_path / "p.jsonl", write=True)
    with pytest.raises(ConfigError, match="leave one of them out"):
        run(small, "", "radvlm", tmp_path / "p.jsonl", write=True, dry_run=True)
    (tmp_path / "p.2.jsonl").unlink()
    run(small, server.url, "radvlm", tmp_path / "q.jsonl", attempts=2)
    run(small, server.url, "radvlm", tmp_path / "q.jsonl")
    assert run(small, server.url, "radvlm", tmp_path / "q.jsonl", attempts=2)[0]["answered_before"] == 6


@pytest.mark.parametrize(
    ("dialect", "given", "sampling", "header"),
    [
        ("radvlm", {}, "temperature 0", {"seed": 0, "temperature": 0}),
        ("radvlm", {"temperature": 0.5, "seed": 3}, "temperature 0.5", {"seed": 3, "temperature": 0.5}),
        ("radvlm", {"set": ("temperature=1", "seed=7")}, "temperature 1", {"seed": 7, "temperature": 1}),
        ("radvlm", {"sampling": "official"}, "temperature 0", {"seed": 0, "temperature": 0}),
        ("deepseekvl2", {"sampling": "official"}, "official sampling (temperature 0.4)",
         {"seed": 0, "temperature": 0.4}),
        ("radvlm", {"server": "openai"}, "no temperature", {}),
        ("radvlm", {"server": "openai", "set": ("temperature=1",)}, "temperature 1", {"temperature": 1}),
        ("radvlm", {"set": ("temperature=null",), "unset": ("seed",)}, "no temperature", {}),
    ],
)  # fmt: skip
def test_plan_and_header_state_what_is_sent(
    small: DatasetConfig, server: AskServer, tmp_path: Path, dialect: str, given: dict[str, Any], sampling: str,
    header: dict[str, Any],
) -> None:  # fmt: skip
    counts, lines = run(small, server.url, dialect, tmp_path / "o.jsonl", limit=1, attempts=2, **given)
    text = (tmp_path / "o.jsonl").read_text().splitlines()[0]
    assert {key: value for key, value in json.loads(text).items() if key in ("seed", "temperature")} == header
    assert f"{dialect}, prompt of the dialect, {sampling}, at most" in lines[1]
    body = json.loads(next(each["body"] for each in reversed(server.seen()) if each["body"]))
    assert body.get("temperature") == header.get("temperature")
    assert any("Several attempts" in line for line in lines) is (sampling == "temperature 0")
    assert ("sampling official" in counts["note"]) is ("official" in sampling)


def test_a_proof_is_of_the_answers_of_a_file(small: DatasetConfig, tmp_path: Path) -> None:
    """Not of the server of the last run: a file with answers of a server that resizes stays unproved."""

    def asked(name: str, **given: Any) -> str:
        counts, lines = run(small, server.url, "qwen25vl", tmp_path / f"{name}.jsonl", **given)
        assert counts["failed"] == 0
        assert ("view as before" in lines[1]) is (counts["requests"] == 0)
        (note,) = [part for part in counts["note"].split("; ") if "proved" in part]
        return note

    with AskServer(resize=0.5) as server:
        assert asked("a", limit=1, view_unproved=True) == "view not proved"
        server.change(resize=1.0)
        assert asked("a") == "view not proved", "one of its answers is from before"
        assert asked("b") == "view proved"
        before = server.counts()["requests"]
        assert asked("b", limit=1) == "view proved" and server.counts()["requests"] == before
        assert asked("b", limit=1, temperature=0.5) == "view proved"
        assert asked("a", temperature=0.5) == "view proved", "none of its answers is from before"


def test_half_a_surrogate_pair_is_no_text(small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    words = tmp_path / "words.json"
    words.write_text(json.dumps({PAIRS[0]["finding"]: "a\ud800"}))
    for given in ({"words": words}, {"set": ('top_k="\\ud800"',)}, {"model": "\udcff"}):
        with pytest.raises(ConfigError, match="no Unicode: it has"):
            run(small, server.url, "radvlm", tmp_path / "o.jsonl", **given)


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    """Ctrl-C leaves a slow request under way, whose answer comes when the number of the file has another owner."""
    log = AnswerLog(tmp_path, "radvlm")
    log.close()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    with pytest.raises(RunError):
        log.append({"key": "ab" * 32, "kind": "answer", "text": ""})
    assert not os.read(other, 10)
    os.close(other)


def test_attempts_differ_in_absent_pairs_too(tmp_path: Path) -> None:
    config = cut(tmp_path / "data", PAIRS[:3])
    script = [{"content": "[]"}, {"content": "[0.1, 0.1, 0.5, 0.5]"}]
    with AskServer(count_tokens=0, script=script) as server:
        absent = {"findings": ("Fracture",), "negatives": "all", "limit": 1, "attempts": 2, "concurrency": 1}
        counts, _ = run(config, server.url, "radvlm", tmp_path / "o.jsonl", **absent)
    assert counts["kinds"]["absent"] == {"answer": 2} and counts["differences"][0]["states"] == 1


@pytest.mark.parametrize("reply", [{"status": 401}, {"status": 400}, {"content": "[]", "model": "other"}])
def test_what_ends_a_run_at_its_first_answer_is_its_only_request(
    small: DatasetConfig, tmp_path: Path, reply: dict[str, Any]
) -> None:
    """Also where other threads wait for the place of the first request."""
    with AskServer(count_tokens=0, script=[reply]) as server:
        for name in ("a", "b", "c"):
            server.change(script=[reply])
            before = server.counts()["requests"]
            counts, _ = run(small, server.url, "radvlm", tmp_path / f"{name}.jsonl", concurrency=8, attempts=4)
            assert counts["stopped"] and server.counts()["requests"] - before == counts["requests"] == 1


def test_an_attempt_without_an_answer_hides_no_reason(small: DatasetConfig, tmp_path: Path) -> None:
    with AskServer(count_tokens=0, script=[{"content": "[]"}, {"status": 401}]) as server:
        counts, _ = run(small, server.url, "radvlm", tmp_path / "o.jsonl", attempts=2, concurrency=1)
    assert "wants another API key" in counts["stopped"] and (counts["answers"], counts["failed"]) == (1, 5)
    assert counts["differences"] == [{"states": None, "mean_iou": None}]
    assert len((tmp_path / "o.2.jsonl").read_text().splitlines()) == 1, "the header alone"


class Counted(PlainProgress):
    """Keeps what each cell was told."""

    def __init__(self) -> None:
        super().__init__(lambda line: None)
        self.cells: list[tuple[int, int, int]] = []

    @contextmanager
    def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Advance]:
        told: list[tuple[int, int]] = []
        yield lambda count, failed=0: told.append((count, failed))
        self.cells.append((total, sum(count for count, _ in told), sum(failed for _, failed in told)))


def test_the_bar_counts_every_pair_that_is_left(tmp_path: Path) -> None:
    """Also pairs of one request, of images that cannot be read, and those whose answers are found on the way."""
    config, out = cut(tmp_path / "data", PAIRS[:4]), tmp_path / "o.jsonl"
    names = [tmp_path / "data" / f"{pair['case']}.png" for pair in PAIRS[:4]]
    names[1].write_bytes(names[0].read_bytes())
    names[2].write_bytes(b"no image")
    progress = Counted()
    request = partial(AskRequest, out, dialect="radvlm", dataset="fixture")
    options = AskOptions(negatives="all", concurrency=1)
    with AskServer(count_tokens=0, script=[{"content": "[]"}, {"status": 400}]) as server:
        counts = ask_dataset(request(server.url, options=options), config, progress)
        server.change(script=[])
        os.utime(names[3])
        ask_dataset(request(server.url, options=options), config, progress)
    assert progress.cells[0] == (counts["pairs"], counts["pairs"], 1)
    assert progress.cells[1][0] == progress.cells[1][1] < counts["pairs"] and progress.cells[1][2] == 0


@pytest.mark.parametrize(("images", "status"), [(100, 0), (99, 1)])
def test_one_unreadable_image_of_a_hundred_is_no_failure(images: int, status: int, tmp_path: Path) -> None:
    """Its pair is skipped; above 1 % of the images it is."""
    from xbench_fast.runtime.cli import main

    folder, boxes = tmp_path / "data", []
    folder.mkdir()
    for number in range(images):
        Image.new("L", (40, 40), number).save(folder / f"{number}.png")
        boxes.append({"id": number, "image_id": number, "category_id": 1, "bbox": [1, 1, 9, 9], "iscrowd": 0})
    files = [{"id": number, "file_name": f"{number}.png", "width": 40, "height": 40} for number in range(images)]
    data = {"images": files, "categories": [{"id": 1, "name": "Mass"}], "annotations": boxes}
    (folder / "coco.json").write_text(json.dumps(data))
    (folder / "7.png").write_bytes(b"no image")
    out, told = tmp_path / "o.jsonl", tmp_path / "told.json"
    options = [text for key, value in OPTIONS.items() for text in ("--data-option", f"fixture.{key}={value}")]
    with AskServer(count_tokens=0, instant=True) as server:
        line = [
            "ask", "--endpoint", server.url, "--dialect", "radvlm", "--dataset", "fixture", "--out", out, "--data",
            f"fixture={folder}", "--data-option", "fixture.reader=coco", *options, "--json", told,
        ]  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main([*map(str, line)])
    assert ended.value.code == status
    counts = json.loads(told.read_text())
    assert (counts["failed"], counts["skipped"], counts["answers"]) == (1, 1, images - 1)


def test_a_rejection_after_an_answer_ends_nothing(
    small: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it comes before the answer has been written."""
    write = AnswerLog.append

    def slow(log: AnswerLog, record: Any) -> None:
        if record.get("kind") == "answer":
            time.sleep(0.15)
        write(log, record)

    monkeypatch.setattr(AnswerLog, "append", slow)
    with AskServer(count_tokens=0, script=[{"content": "[]"}, {"status": 400}]) as server:
        counts, _ = run(small, server.url, "radvlm", tmp_path / "o.jsonl", concurrency=3)
    assert counts["this_run"] == {"answer": 2, "rejected": 1} and not counts["stopped"]
