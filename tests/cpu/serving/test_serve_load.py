"""The load generator: what it counts adds up, and a server that loses requests does not pass.

Starting servers takes most of the time, 5 to 30 s in all.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import make_bundle, save_graph

OPTIONS = argparse.Namespace(late_ms=1e9, refusal_ms=1e9, bound_ms=0.0)


@pytest.fixture
def load(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return importlib.import_module("serve_load")


@pytest.fixture
def client(load: Any) -> Any:
    return importlib.import_module("v2_client")


def test_arrivals_are_poisson_and_repeat(load: Any) -> None:
    times = load.arrivals(200.0, 50.0, 3)
    assert np.array_equal(times, load.arrivals(200.0, 50.0, 3)) and not np.array_equal(
        times, load.arrivals(200.0, 50.0, 4)[: len(times)]
    )
    assert abs(len(times) - 10_000) < 5 * 100 and times[-1] < 50
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.05) and gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert len(load.arrivals(1e6, 1e3, 0)) <= load.MOST_REQUESTS


def answer(status: int, body: bytes, *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def pretender(behaviour: Any) -> AsyncIterator[str]:
    """A server that reads requests and does with the n-th what `behaviour` says: bytes to send, None to hang up."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                body = await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
                count += 1
                sent = behaviour(
                    count, json.loads(body[: int(head.split("header-content-length: ")[1].split("\r")[0])])
                )
                if sent is None:
                    break
                writer.write(sent)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def ask(load: Any, client: Any, behaviour: Any, count: int, timeout: float = 60.0) -> dict[str, Any]:
    head = json.dumps({"id": "load-0", "inputs": []}).encode()
    work = client.Work("/v2/models/m/infer", "m", "x", ((head + b"xyz", len(head)),))

    async def body() -> dict[str, Any]:
        async with pretender(behaviour) as url:
            pool = client.Connections(url, most=8, timeout=timeout)
            found = await load.open_loop(pool, work, np.arange(count) / 2000)
            pool.close()
            return found

    found: dict[str, Any] = asyncio.run(body())
    assert found["sent"] == count
    assert found["answered"] + sum(found["refused"].values()) + sum(found["lost"].values()) == count
    return found | load.verdict(found, OPTIONS)


def good(number: int, request: dict[str, Any]) -> bytes:
    body = json.dumps({"id": request["id"], "outputs": [{"name": "y"}]}).encode()
    return answer(200, body + b"raw", f"Inference-Header-Content-Length: {len(body)}")


def test_a_server_that_answers_passes(load: Any, client: Any) -> None:
    found = ask(load, client, good, 500)
    assert (found["verdict"], found["reasons"], found["answered"]) == ("VALID", [], 500)
    few = ask(load, client, good, 100)
    assert few["verdict"] == "INVALID" and "fewer than the 459" in few["reasons"][0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, "IncompleteReadError"),
        (answer(500, b"{}"), "status 500"),
        (answer(504, b"{}"), "status 504"),
        (answer(200, b'{"id": "another", "outputs": [1]}'), "an answer to another question"),
        (answer(429, b"{}"), "refusals without Retry-After"),
        (b"nonsense\r\n\r\n", "none of the protocol's"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nnot all", "no answer in time"),
    ],
)
def test_one_lost_request_is_found(load: Any, client: Any, wrong: bytes | None, words: str) -> None:
    timeout = 5.0 if words == "no answer in time" else 60.0
    found = ask(load, client, lambda number, request: wrong if number == 250 else good(number, request), 500, timeout)
    assert found["verdict"] == "INVALID" and len(found["reasons"]) == 1
    assert words in found["reasons"][0] and found["reasons"][0].startswith("1 ")


def test_refusals_with_retry_after_are_no_loss(load: Any, client: Any) -> None:
    refusal = answer(429, b"{}", "Retry-After: 1")
    found = ask(load, client, lambda number, request: refusal if number % 2 else good(number, request), 1000)
    assert found["verdict"] == "VALID" and found["refused"] == {"429": 500, "503": 0} and found["refused_share"] == 0.5
    late = argparse.Namespace(late_ms=1e9, refusal_ms=0.0, bound_ms=1e-6)
    reasons = load.verdict(found, late)["reasons"]
    assert "refusals came after" in reasons[0] and "the bound is" in reasons[1]


def run(root: Path, *arguments: str) -> dict[str, Any]:
    out = Path(arguments[arguments.index("--json") + 1])
    line = [sys.executable, str(root / "benchmarks" / "serve_load.py"), "--seconds", "0.5", "--warm-up", "0.1"]
    options = ["--serve", "--threads", "1", "--queue", "4", "--engine", "onnxruntime-cpu"]
    done = subprocess.run([*line, *arguments, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package)
    make_bundle(tmp_path / "models" / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    return tmp_path / "models"


def test_a_real_server_loses_nothing(root: Path, models: Path, tmp_path: Path) -> None:
    found = run(root, "--bundles", str(models), "--connections", "4", "--json", str(tmp_path / "load.json"))
    assert found["request"]["model"] == "blocks-32" and found["request"]["input"] == "pixels"
    assert found["request"]["bytes"] > 32 * 32 and found["machine"]["cores"] >= 1
    assert found["capacity"]["answered"] > 0 and found["capacity"]["lost"] == {}
    assert [phase["factor"] for phase in found["phases"]] == [0.5, 1, 4]
    for phase in found["phases"]:
        assert phase["lost"] == {} and phase["refused_without_retry_after"] == 0
        assert phase["answered"] + sum(phase["refused"].values()) == phase["sent"] > 0
    serious = [r for phase in found["phases"] for r in phase["reasons"] if "lost" in r or "Retry-After" in r]
    assert serious == []


def test_batching_is_compared_in_turns(root: Path, models: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "batching.json")
    found = run(root, "--bundles", str(models), "--compare-batching", "--rounds", "1", "--json", out)["batching"]
    assert [item["batching"] for item in found["runs"]] == ["with", "without"]
    rates = found["answered_per_s"]
    assert found["ratio"] == pytest.approx(rates["with"] / rates["without"]) and rates["without"] > 0
