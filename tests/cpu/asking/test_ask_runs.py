"""Runs of `ask` against servers that fail, are slow, resize or are killed at (docs/ask.md §5, §6)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ask_server import AskServer
from ask_world import ASK, OPTIONS, PAIRS, cut, run
from xbench_fast import ask
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.runtime.asking.answer_log import LOG_FILE, AnswerLog
from xbench_fast.runtime.asking.asked_file import asked_folder, locked
from xbench_fast.runtime.asking.runner import Waiting
from xbench_fast.runtime.host.config import DatasetConfig

HTTP = json.loads((ASK / "http.json").read_text())["cases"]
SMALL = PAIRS[:3]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> DatasetConfig:
    """Three images, each with the finding of its pair."""
    return cut(tmp_path_factory.mktemp("small"), SMALL, own=True)


@pytest.fixture(scope="module")
def server() -> Any:
    with AskServer(count_tokens=0) as started:
        yield started


class Pauses(list[float]):
    """A clock that does not wait; the pauses that a run would have made."""

    def waiting(self, **given: Any) -> Waiting:
        return Waiting(**{"concurrency": 1, "factor": lambda: 0.5, "pause": self.append, **given})


def records(out: Path) -> list[dict[str, Any]]:
    log = AnswerLog(
        asked_folder(out),
        json.loads((asked_folder(out) / LOG_FILE).read_bytes().split(b" ", 1)[1].split(b"\n")[0])["dialect"],
    )
    found = [record for _, record in log.records() if "kind" in record]
    log.close()
    return found


@pytest.mark.parametrize("case", HTTP, ids=lambda case: case["name"])
def test_each_case_of_http(case: dict[str, Any], small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    script = [reply for reply in case["server"] for _ in range(99 if reply.get("repeat") else 1)]
    server.change(script=script, default={"content": "[]"})
    pauses, out = Pauses(), tmp_path / "o.jsonl"
    timeout = 1.0 if case["name"] == "never answers" else 30.0
    counts, lines = run(small, server.url, "radvlm", out, pauses.waiting(), limit=1, timeout=timeout)
    kinds = {kind: count for kind, count in counts["this_run"].items() if count}
    assert kinds == {case["kind"]: 1}
    assert counts["requests"] == case["tries"]
    assert len(pauses) == case["tries"] - 1
    for waited, least in zip(pauses, case["waits_at_least_s"], strict=False):
        assert waited >= least
    if case["kind"] in ("stop", "other_model"):
        assert counts["stopped"] and not counts["answers"]
    text = json.dumps(counts) + "".join(lines) + (asked_folder(out) / LOG_FILE).read_text()
    assert "AAAA" not in text, "no image of an error is kept"
    kept = case["kind"] in ("answer", "truncated", "refused", "empty")
    assert counts["answers"] == kept and counts["failed"] == 1 - kept
    if kept:
        (line,) = [json.loads(text) for text in out.read_text().splitlines()[1:]]
        expected = {"truncated": "length", "empty": "stop"}.get(case["kind"], line["finish"])
        assert line["finish"] == expected
        assert records(out)[0]["tries"] == case["tries"]
    if case["name"] == "refusal field":
        assert line["text"] == "I can't help with that." and line["finish"] == "refusal"
    if case["name"] == "all thought":
        assert records(out)[0]["reasoning"] and line["text"] == ""


def test_twenty_failures_in_a_row_end_a_run(tmp_path: Path) -> None:
    config = cut(tmp_path / "data", PAIRS[:22], own=True)
    with AskServer(count_tokens=0, script=[{"status": 500}] * 200) as server:
        counts, _ = run(config, server.url, "radvlm", tmp_path / "o.jsonl", Pauses().waiting(retries=2))
        assert "20 requests in a row failed" in counts["stopped"]
        assert server.counts()["requests"] == 40
        server.change(script=[])
        again, _ = run(config, server.url, "radvlm", tmp_path / "o.jsonl", Pauses().waiting())
    assert again["answers"] == again["pairs"] == 22 and not again["stopped"]


def test_no_request_follows_a_stop_and_the_limit_holds(small: DatasetConfig, tmp_path: Path) -> None:
    config = cut(tmp_path / "data", PAIRS[:20], own=True)
    script = [{"content": "[]"}] * 9 + [{"status": 401}]
    with AskServer(count_tokens=0, script=script, default={"content": "[]", "sleep": 0.5}) as server:
        counts, _ = run(config, server.url, "radvlm", tmp_path / "o.jsonl", Waiting(concurrency=4))
        asked = server.counts()
        assert "--key-env" in counts["stopped"] and asked["most"] <= 4 and asked["requests"] <= 13
        time.sleep(0.2)
        assert server.counts()["requests"] == asked["requests"]


def test_bytes_do_not_depend_on_concurrency_or_delays(tmp_path: Path) -> None:
    config = cut(tmp_path / "data", PAIRS[:5])
    files = []
    with AskServer(delay=0.05, fail=0.2) as server:
        for concurrency in (1, 8, 32):
            out = tmp_path / f"{concurrency}.jsonl"
            waiting = Waiting(concurrency, 30, factor=lambda: 0.01)
            counts, _ = run(config, server.url, "qwen25vl", out, waiting, negatives="match")
            assert counts["answers"] == counts["pairs"] > 8 and server.counts()["most"] <= concurrency
            files.append(out.read_bytes())
    assert files[0] == files[1] == files[2] and b"view proved" in files[0]


def test_a_server_that_resizes_is_found_before_any_patient(small: DatasetConfig, tmp_path: Path) -> None:
    with AskServer(resize=0.5) as server:
        with pytest.raises(RunError, match=r"The server resizes: \d+ image tokens instead of \d+, as of \d+ x \d+"):
            run(small, server.url, "qwen25vl", tmp_path / "o.jsonl")
        assert server.counts()["requests"] == 2
        for request in server.seen():
            if request["body"]:
                assert "iVBOR" in request["body"] and len(request["body"]) < 20_000, "a grey image"
        counts, lines = run(small, server.url, "qwen25vl", tmp_path / "o.jsonl", view_unproved=True)
    assert counts["answers"] == 3 and "view not proved" in counts["note"]
    assert any(line.startswith("view not proved: the server resizes") for line in lines)


def test_the_size_of_a_resized_square_is_named() -> None:
    from xbench_fast.runtime.asking.chat_body import RequestRules
    from xbench_fast.runtime.asking.outcomes import ReplyOutcome
    from xbench_fast.runtime.asking.view_proof import prove_view

    counts = iter([100, 324])

    def reply(body: bytes) -> ReplyOutcome:
        assert json.loads(body)["max_tokens"] == 1
        return ReplyOutcome("truncated", {"text": "", "usage": {"prompt_tokens": 30 + next(counts)}})

    with pytest.raises(RunError, match="324 image tokens instead of 1225, as of 504 x 504"):
        prove_view(reply, RequestRules("qwen25vl", "m"), [(980, 980)], unproved=False)


@pytest.mark.parametrize(
    ("dialect", "tokens", "proved"), [("medgemma15", -1, True), ("medgemma15", 28, False), ("qwen25vl", 0, False)]
)
def test_what_the_counts_prove(small: DatasetConfig, tmp_path: Path, dialect: str, tokens: int, proved: bool) -> None:
    with AskServer(count_tokens=tokens) as server:
        counts, _ = run(small, server.url, dialect, tmp_path / "o.jsonl", view_unproved=True, limit=1)
    assert ("; view proved" in counts["note"]) is proved


def test_a_dialect_of_tokens_without_tokens(tmp_path: Path) -> None:
    config = cut(tmp_path / "data", PAIRS[:12], own=True)
    stripped = {"content": "consolidation"}
    with AskServer(owned_by="llamacpp", default=stripped, count_tokens=0) as server:
        counts, _ = run(config, server.url, "florence2", tmp_path / "a.jsonl", Waiting(concurrency=1))
        assert "start llama-server with --special" in counts["stopped"] and counts["answers"] == 8
        more, _ = run(config, server.url, "florence2", tmp_path / "b.jsonl", Waiting(go_on=True), negatives="none")
        assert more["answers"] == 12 and any("tokens_missing" in text for text in more["warnings"])
    with AskServer(owned_by="vllm", default=stripped, count_tokens=0) as server:
        kept, _ = run(config, server.url, "florence2", tmp_path / "c.jsonl")
        assert kept["answers"] == 12 and any("tokens_missing" in text for text in kept["warnings"])
        body = json.loads(server.seen()[-1]["body"])
        assert body["skip_special_tokens"] is False


def test_two_at_once(small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    with locked(asked_folder(out)), pytest.raises(RunError, match="Another ask is writing"):
        run(small, server.url, "radvlm", out)


def test_attempts_have_files_and_seeds_of_their_own(small: DatasetConfig, tmp_path: Path) -> None:
    with AskServer(count_tokens=-1) as server:  # 276 and 5 tokens
        options = {"attempts": 2, "seed": 5, "prices": "1000,100000"}
        counts, lines = run(small, server.url, "radvlm", tmp_path / "o.jsonl", **options)
        seeds = sorted(json.loads(each["body"])["seed"] for each in server.seen() if each["body"])
    assert seeds == [5, 5, 5, 6, 6, 6] and counts["answers"] == 6
    assert [Path(name).name for name in counts["files"]] == ["o.jsonl", "o.2.jsonl"]
    assert all(Path(name).is_file() for name in counts["files"])
    assert counts["kinds"]["present"] == {"answer": 6}
    assert counts["tokens"] == {"prompt_tokens": 6 * 276, "completion_tokens": 6 * 5}
    assert counts["cost"] == 4.656 and "tokens: 1656 of prompts, 30 of answers, cost 4.656" in lines
    assert counts["differences"] == [{"states": 0, "mean_iou": None}]
    assert any(line.startswith("Several attempts at temperature 0") for line in lines)


def test_what_was_answered_is_asked_no_more(small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    server.change(script=[])
    out = tmp_path / "o.jsonl"
    first, _ = run(small, server.url, "radvlm", out)
    before, content = server.counts()["requests"], out.read_bytes()
    again, lines = run(small, server.url, "radvlm", out)
    assert server.counts()["requests"] == before and again["answered_before"] == first["pairs"] == 3
    assert out.read_bytes() == content and any("3 answered before" in line for line in lines)
    more, _ = run(small, server.url, "radvlm", out, temperature=0.5)
    assert server.counts()["requests"] == before + 3 and more["answered_before"] == 0
    out.unlink()
    written, lines = run(small, "", "radvlm", out, write=True, prices="1000000,0")
    assert written["answers"] == 3 and written["failed"] == 0 and b'"temperature": 0.5' in out.read_bytes()
    assert written["latency_ms"]["max"] > 0 and written["kinds"]["present"] == {"answer": 3}
    assert written["cost"] == written["tokens"]["prompt_tokens"] and any("latency" in line for line in lines)
    run(small, server.url, "radvlm", out)
    assert out.read_bytes() == content, "the first plan again, from the same log"


def test_a_changed_image_is_asked_again(server: AskServer, tmp_path: Path) -> None:
    config, out = cut(tmp_path / "data", SMALL, own=True), tmp_path / "o.jsonl"
    run(config, server.url, "radvlm", out)
    before = server.counts()["requests"]
    image = tmp_path / "data" / f"{SMALL[0]['case']}.png"
    image.write_bytes((tmp_path / "data" / f"{SMALL[1]['case']}.png").read_bytes())
    os.utime(image, ns=(1, 1))
    counts, _ = run(config, server.url, "radvlm", out)
    assert server.counts()["requests"] - before == 0, "its pixels are those of another image with this finding"
    assert counts["answers"] == 3
    assert counts["answered_before"] == 3
    image.write_bytes(b"no image")
    lost, lines = run(config, server.url, "radvlm", out)
    assert (
        lost["unreadable_images"] == 1
        and lost["many_unreadable"]
        and any(line.startswith("skipped: ") for line in lines)
    )


def test_a_dry_run_opens_no_socket(small: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    counts, lines = run(small, "http://localhost:1/v1", "qwen25vl", tmp_path / "o.jsonl", dry_run=True)
    assert counts["pairs"] == 3 and lines[-1] == "Nothing was sent (--dry-run)."
    assert "Only present findings are asked: nothing will be known about invented boxes." in lines
    assert not (tmp_path / "o.jsonl").exists() and not asked_folder(tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": ["a", "b"]}, r"not exactly one: it lists a, b; give --model ID"),
        ({"models": []}, "it lists none"),
    ],
)
def test_a_model_must_be_known(given: dict[str, Any], message: str, small: DatasetConfig, tmp_path: Path) -> None:
    with AskServer(**given) as server:
        for model in (None, ""):
            with pytest.raises(ConfigError, match=message):
                run(small, server.url, "radvlm", tmp_path / "o.jsonl", model=model)


def test_files_of_somebody_else(small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    out.write_text("mine")
    with pytest.raises(ConfigError, match="was not written by ask"):
        run(small, server.url, "radvlm", out)
    other = tmp_path / "p.jsonl"
    run(small, server.url, "radvlm", other)
    with pytest.raises(ConfigError, match="answers in the dialect radvlm"):
        run(small, server.url, "qwen3vl", other)
    with pytest.raises(RunError, match="does not answer: nothing answers"):
        run(small, "http://127.0.0.1:9/v1", "radvlm", tmp_path / "q.jsonl")
    with pytest.raises(ConfigError, match="The variable NOT_SET of --key-env is not set"):
        run(small, server.url, "radvlm", tmp_path / "q.jsonl", key_env="NOT_SET")


def test_from_python(small: DatasetConfig, server: AskServer, tmp_path: Path) -> None:
    counts = ask(
        server.url, "radvlm", "fixture", tmp_path / "o.jsonl", data=small.root, progress=False, negatives=1,
        data_options={"reader": "coco", **OPTIONS}, set={"top_p": 0.9}, prices="2,10",
    )  # fmt: skip
    assert counts["answers"] == counts["pairs"] > 3 and counts["cost"] == 0.0
    assert json.loads(server.seen()[-1]["body"])["top_p"] == 0.9
    with pytest.raises(ConfigError, match="ask has no option 'retry': did you mean 'retries'"):
        ask(server.url, "radvlm", "fixture", tmp_path / "o.jsonl", retry=1)  # type: ignore[call-arg]


def command(config: DatasetConfig, url: str, out: Path, *more: str) -> list[str]:
    options = {"reader": "coco", **OPTIONS}
    given = [text for key, value in options.items() for text in ("--data-option", f"fixture.{key}={value}")]
    return [
        sys.executable, "-m", "xbench_fast.runtime.cli", "ask", "--endpoint", url, "--dialect", "qwen25vl", "--dataset",
        "fixture", "--data", f"fixture={config.root}", *given, "--out", str(out), "--negatives", "match", *more,
    ]  # fmt: skip


def test_kills_at_random_moments_leave_the_same_bytes(tmp_path: Path) -> None:
    """XBENCH_ASK_KILLS sets their number."""
    config, kills = cut(tmp_path / "data", PAIRS[:8]), int(os.environ.get("XBENCH_ASK_KILLS", "2"))
    draw = random.Random(11)
    with AskServer(delay=0.3) as server:
        undisturbed = tmp_path / "whole.jsonl"
        subprocess.run(command(config, server.url, undisturbed), check=True, capture_output=True)
        needed = server.counts()["requests"]
        out, killed = tmp_path / "killed.jsonl", 0
        for _ in range(kills):
            before = server.counts()["requests"]
            line = command(config, server.url, out, "--concurrency", "2")
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and server.counts()["requests"] == before:
                time.sleep(0.02)
            time.sleep(draw.random() * 0.8)
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run(command(config, server.url, out), check=True, capture_output=True)
        repeated = server.counts()["requests"] - 2 * needed
    assert out.read_bytes() == undisturbed.read_bytes()
    assert killed and repeated <= kills * 4, f"{repeated} repeated requests after {killed} kills"
    print(f"{killed} of {kills} kills met a run, {repeated} requests were repeated")


def test_an_interrupted_run_writes_what_it_has(tmp_path: Path) -> None:
    config, out = cut(tmp_path / "data", PAIRS[:8]), tmp_path / "o.jsonl"
    with AskServer(delay=0.4) as server:
        process = subprocess.Popen(
            command(config, server.url, out, "--concurrency", "2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while server.counts()["requests"] < 8:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Interrupted" in errors
    lines = out.read_text().splitlines()
    assert 3 < len(lines) < 20


def test_a_slow_answer_is_cut_at_the_timeout(small: DatasetConfig, tmp_path: Path) -> None:
    with AskServer(count_tokens=0, script=[{"content": "[]", "trickle": 0.05}]) as server:
        begun = time.monotonic()
        pauses = Pauses()
        counts, _ = run(small, server.url, "radvlm", tmp_path / "o.jsonl", pauses.waiting(), limit=1, timeout=0.5)
        assert counts["answers"] == 1 and counts["requests"] == 2 and time.monotonic() - begun < 20
    assert threading.active_count() < 20


def test_a_thread_keeps_its_connection(small: DatasetConfig, tmp_path: Path) -> None:
    import socket

    made: list[object] = []
    real = socket.create_connection

    def counted(*given: Any, **more: Any) -> socket.socket:
        made.append(given)
        return real(*given, **more)

    with AskServer(count_tokens=0) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", counted)
        run(small, server.url, "radvlm", tmp_path / "o.jsonl", concurrency=1, attempts=4)
    assert len(made) == 2, "one of the thread that asks for the models, one of the thread that asks about images"


def test_another_name_of_the_model_is_another_model_for_a_store(small: DatasetConfig, tmp_path: Path) -> None:
    """A date behind the id is the same model, but a store has one name."""
    with AskServer(count_tokens=0, script=[{"content": "[]"}, {"content": "[]", "model": "tiny-2026"}]) as server:
        counts, _ = run(small, server.url, "radvlm", tmp_path / "o.jsonl", concurrency=1)
    assert counts["answers"] == 1 and "'tiny-2026' answered, and 'tiny' before" in counts["stopped"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"status": 404, "body": {"error": {"message": "no"}}}, "the server lists tiny"),
        ({"status": 413}, "choose a smaller --view; the image has "),
    ],
)
def test_a_stop_says_what_helps(small: DatasetConfig, tmp_path: Path, reply: dict[str, Any], words: str) -> None:
    with AskServer(count_tokens=0, script=[reply]) as server:
        counts, _ = run(small, server.url, "radvlm", tmp_path / "o.jsonl")
    assert words in counts["stopped"]


def test_recheck_reads_every_image(small: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xbench_fast.runtime.asking import sent_images

    read: list[Path] = []
    real = sent_images.read_grey  # type: ignore[attr-defined]
    monkeypatch.setattr(sent_images, "read_grey", lambda path: read.append(path) or real(path))
    with AskServer(count_tokens=0) as server:
        out = tmp_path / "o.jsonl"
        run(small, server.url, "radvlm", out)
        read.clear()
        run(small, server.url, "radvlm", out)
        assert not read, "a file that did not change is not read"
        again, _ = run(small, server.url, "radvlm", out, recheck=True)
    assert len(set(read)) == 3 and again["requests"] == 0 and again["answered_before"] == 3


def test_a_full_disk_stops_a_run_that_goes_on_later(
    small: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of seven lines five are written: the head and, of three images, their pixels and at least one answer."""
    real, written = os.write, list[int]()

    def full(file: int, data: bytes) -> int:
        written.append(len(data))
        return real(file, data if len(written) <= 5 else data[:30])

    with AskServer(count_tokens=0) as server:
        monkeypatch.setattr("xbench_fast.runtime.host.record_file.os.write", full)
        out = tmp_path / "o.jsonl"
        try:
            counts, _ = run(small, server.url, "radvlm", out, concurrency=1)
            assert "No space left on device" in counts["stopped"] and counts["failed"] >= 1
        except RunError as error:  # the disk was full for the record of an image
            assert "No space left on device" in str(error)
        monkeypatch.undo()
        before = server.counts()["requests"]
        again, _ = run(small, server.url, "radvlm", out)
        assert again["answers"] == 3 and again["answered_before"] >= 1 and again["torn_bytes"] == 30
        assert server.counts()["requests"] - before == 3 - again["answered_before"]
