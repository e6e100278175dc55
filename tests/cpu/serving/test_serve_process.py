"""`xbench-fast serve` from its first line to its last: banner, token, full queues, SIGTERM, wrong options.

Starting a dozen processes takes most of the time, 20 to 60 s in all.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving_process import COMMAND, ServerProcess, film, image_request, scores

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")

INFER = "/v2/models/blocks-32/infer"
TOKEN = "correct-horse-battery-staple"


def test_the_banner_is_honest(folder: Path, tmp_path: Path) -> None:
    with ServerProcess(folder / "models", tmp_path, "--model", "several-32", "--host", "0.0.0.0") as process:
        assert "several-32 (onnxruntime-cpu)" in process.banner[0] and "blocks" not in process.banner[0]
        assert process.stop() == 0
        told = "\n".join(process.banner)
    assert "demo model" in told and "not a medical device" in told and "no token is asked for" in told


def test_a_token_is_asked_for(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    with ServerProcess(folder / "models", tmp_path, "--token-file", tmp_path / "token", "--host", "0.0.0.0") as process:
        with httpx.Client(base_url=process.url.replace("0.0.0.0", "127.0.0.1"), timeout=60) as asked:
            for given in (None, "", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ü".encode()):
                answer = asked.get("/v2", headers={} if given is None else {"Authorization": given})
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert asked.get("/metrics").status_code == 401 and asked.post(INFER, content=b"x").status_code == 401
            assert asked.get("/v2/health/ready").status_code == 200
            assert asked.get("/v2", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert process.stop() == 0
        assert TOKEN not in process.log.read_text() + "\n".join(process.banner)


def test_over_capacity_is_told_at_once_and_what_was_accepted_is_answered(folder: Path, tmp_path: Path) -> None:
    options = ("--queue", 3, "--max-delay-ms", 1000, "--max-batch", 8)
    content, headers = image_request(film(folder))
    expected = scores(film(folder))[0][0]
    # One client: each httpx.post makes one of its own, and slow ones do not meet in the queue.
    limits = httpx.Limits(max_connections=12)
    with ServerProcess(folder / "models", tmp_path, *options) as process, httpx.Client(limits=limits) as client:

        def ask(_: int) -> Any:
            return client.post(process.url + INFER, content=content, headers=headers, timeout=60)

        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(ask, number) for number in range(12)]
            full = 0  # health checks are answered while the queue is full
            while not all(one.done() for one in asked):
                full += 'in_flight_images{model="blocks-32"} 3.0' in httpx.get(process.url + "/metrics").text
                assert httpx.get(process.url + "/v2/health/ready", timeout=60).status_code == 200
            assert full
            answers = [one.result() for one in asked]
        by_status: dict[int, list[Any]] = {200: [], 429: []}
        for answer in answers:
            by_status[answer.status_code].append(answer)
        assert len(by_status[200]) >= 3 and by_status[429]
        for answer in by_status[429]:
            assert int(answer.headers["retry-after"]) >= 1 and "3 of 3 images" in answer.json()["error"]
        for answer in by_status[200]:
            data = {item["name"]: item["data"] for item in answer.json()["outputs"]}
            assert np.array_equal(np.float32(data["logits"]), expected)
        late = httpx.post(
            process.url + INFER,
            content=image_request(film(folder), parameters={"timeout": 1000})[0],
            headers=image_request(film(folder), parameters={"timeout": 1000})[1],
            timeout=60,
        )
        assert late.status_code == 504 and late.json()["code"] == "DEADLINE_EXCEEDED"
        absent = httpx.post(process.url + INFER.replace("blocks-32", "absent"), content=content, headers=headers)
        assert absent.status_code == 404
        lines = httpx.get(process.url + "/metrics").text.splitlines()
        told = dict(line.rsplit(" ", 1) for line in lines if line.startswith("xbench_"))
        for code, model, count in (
            ("OK", "blocks-32", len(by_status[200])),
            ("RESOURCE_EXHAUSTED", "blocks-32", len(by_status[429])),
            ("DEADLINE_EXCEEDED", "blocks-32", 1),
            ("NOT_FOUND", "unknown", 1),
        ):
            assert float(told[f'xbench_requests_total{{code="{code}",model="{model}"}}']) == count
        # The first run, which only makes the engine ready, is no traffic.
        assert float(told['xbench_batch_images_sum{model="blocks-32"}']) in (
            len(by_status[200]),
            len(by_status[200]) + 1,
        )
        assert process.stop() == 0


@pytest.mark.parametrize("more", [(), ("--health-port", 0)], ids=["alone", "with health"])
def test_sigterm_lets_accepted_requests_finish(folder: Path, tmp_path: Path, more: tuple[object, ...]) -> None:
    content, headers = image_request(film(folder))
    options = ("--max-delay-ms", 1000, "--max-batch", 8, *more)
    with ServerProcess(folder / "models", tmp_path, *options) as process, ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(httpx.post, process.url + INFER, content=content, headers=headers, timeout=60) for _ in "123"
        ]
        for _ in range(6000):
            counted = httpx.get(process.url + "/metrics", timeout=60).text
            if 'xbench_in_flight_images{model="blocks-32"} 3.0' in counted or all(one.done() for one in asked):
                break
            time.sleep(0.01)
        assert process.stop() == 0
        assert [future.result().status_code for future in asked] == [200, 200, 200]
        assert "every accepted request was answered" in process.log.read_text()
        with pytest.raises(httpx.ConnectError):
            httpx.get(process.url + "/v2/health/live", timeout=5)


def refused(*arguments: object) -> str:
    line = [*COMMAND, "--engine", "onnxruntime-cpu", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 2) and done.stdout == "" and done.stderr.startswith("Error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


def test_what_cannot_be_served_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    bundles = ("--bundles", folder / "models")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"The address 127.0.0.1, port {port}, cannot be used" in refused(*bundles, "--port", port)
    assert "The address nowhere.invalid" in refused(*bundles, "--port", 0, "--host", "nowhere.invalid")
    assert "There is no bundle called 'absent'" in refused(*bundles, "--model", "absent")
    assert "no prompt set 'vindr'" in refused(*bundles, "--port", 0, "--prompt-set", "vindr")
    for content in ("\n", "two words", "\u00fc"):
        (tmp_path / "token").write_text(content)
        assert "printable characters" in refused(*bundles, "--token-file", tmp_path / "token")
    assert "amount of data" in refused(*bundles, "--max-body", "much")
    assert "it must be at least 1" in refused(*bundles, "--max-body", "0")
    for value in ("inf", "nan"):
        assert f"timeout is {value}" in refused(*bundles, "--timeout", value)
    assert "max_delay is nan" in refused(*bundles, "--max-delay-ms", "nan")


def test_the_token_may_come_from_the_environment(folder: Path, tmp_path: Path) -> None:
    """With the line end that a secret made from a file has."""
    with ServerProcess(folder / "models", tmp_path, environment={"XBENCH_FAST_TOKEN": TOKEN + "\n"}) as process:
        assert httpx.get(process.url + "/v2", timeout=60).status_code == 401
        given = {"Authorization": f"bearer {TOKEN}"}
        assert httpx.get(process.url + "/v2", headers=given, timeout=60).status_code == 200
        assert process.stop(signal.SIGINT) == 0
