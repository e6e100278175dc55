"""What `ask` costs its machine: requests, preparing, memory, resuming and the dry run.

    python benchmarks/ask_run.py [--images 12601] [--requests 1000] [--json FILE]

1. Requests: the client's processor time for a request whose image is prepared, with a body of 0.5 MB and of 1 kB, alone
   and 32 at once, against a server in a process of its own that reads a request and answers at once. Beside it, in the
   same run, a bare loop that posts the same bytes from the same number of threads and keeps nothing.
2. Preparing: processor time from a PNG of 1024 x 1024 to the base64 text of `smart28`, and its parts.
3. A whole run: `--images` images of 96 x 96 with three findings each, as a COCO file; the private memory of the process
   at its 1,000th image and at its end. Then the same call again, which finds it complete, and a dry run. Every call is
   a process of its own. Loading the dataset is timed alone and is part of the call too.

The server takes the same cores, so requests a second are a ratio and no limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

FINDINGS = ("Mass", "Nodule", "Effusion")
SIDE, BIG, SMALL = 1024, 500_000, 1000
REPLY = json.dumps({"model": "m", "choices": [{"message": {"content": "[]"}, "finish_reason": "stop"}]}).encode()
MODELS = json.dumps({"data": [{"id": "m", "owned_by": "plain"}]}).encode()
SERVER = f"""
import socket, threading
def serve(sock):
    stream = sock.makefile("rb")
    while line := stream.readline():
        size = 0
        while (header := stream.readline()) not in (b"\\r\\n", b""):
            if header.lower().startswith(b"content-length:"):
                size = int(header.split(b":")[1])
        stream.read(size)
        body = {MODELS!r} if line.startswith(b"GET") else {REPLY!r}
        sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
server = socket.create_server(("127.0.0.1", 0), backlog=256)
print(server.getsockname()[1], flush=True)
while True:
    sock, _ = server.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=(sock,), daemon=True).start()
"""


def requests(port: int, size: int, at_once: int, count: int, folder: Path) -> dict[str, Any]:
    """Processor time and rate of `count` requests, and of a bare loop with the same bytes."""
    from xbench_fast.runtime.asking.answer_log import AnswerLog
    from xbench_fast.runtime.asking.asked_pairs import AskedQuestion
    from xbench_fast.runtime.asking.chat_body import RequestRules
    from xbench_fast.runtime.asking.outcomes import Expected
    from xbench_fast.runtime.asking.runner import AskJob, AskRunner, Waiting
    from xbench_fast.runtime.asking.sent_images import SentImage
    from xbench_fast.runtime.host.http.http_client import Client
    from xbench_fast.runtime.host.http.server_address import Endpoint

    rules = RequestRules("json", "m")
    image = SentImage(b"data:image/png;base64," + b"A" * size, "0" * 64, size, "0" * 64, (SIDE, SIDE), (SIDE, SIDE))
    client = Client(Endpoint("http", "127.0.0.1", port, "/v1", ("127.0.0.1",)), 600)
    log = AnswerLog(folder / f"{size}-{at_once}", "json")
    runner = AskRunner(client, rules, log, Expected("m"), Waiting(at_once))
    jobs = [AskJob(f"{number:064x}", AskedQuestion("mass", True, "Mass"), 1, image) for number in range(count)]
    wall, cpu = time.perf_counter(), time.process_time()
    runner.run(jobs, lambda kind: None)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert len(log.keys) == count
    log.close()
    bare_wall, bare_cpu = bare(port, size, at_once, count)
    return {
        "cpu_ms": round(1000 * cpu / count, 2),
        "per_second": round(count / wall),
        "bare_cpu_ms": round(1000 * bare_cpu / count, 2),
        "bare_per_second": round(count / bare_wall),
        "rate_of_bare": round(bare_wall / wall, 2),
    }


def bare(port: int, size: int, at_once: int, count: int) -> tuple[float, float]:
    """Wall and processor seconds of threads that post `count` bodies of this size and read the answers."""
    import http.client

    body = b"A" * (size + 500)

    def post(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        for _ in range(number):
            connection.request("POST", "/v1/chat/completions", body)
            connection.getresponse().read()

    threads = [threading.Thread(target=post, args=(count // at_once,)) for _ in range(at_once)]
    wall, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - wall, time.process_time() - cpu


def preparing(folder: Path, times: int) -> dict[str, float]:
    """Median processor milliseconds of an image, and of its parts."""
    from PIL import Image
    from xbench_fast.runtime.asking.sent_images import encoded, pixels_hash, prepared, read_sent
    from xbench_fast.runtime.data.images.decode import read_grey

    draw = np.random.default_rng(1)
    smooth = Image.fromarray(draw.integers(0, 256, (64, 64), np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    noisy = np.clip(np.asarray(smooth, np.int16) + draw.integers(-4, 5, (SIDE, SIDE)), 0, 255).astype(np.uint8)
    path = folder / "film.png"
    Image.fromarray(noisy).save(path)
    grey = read_grey(path)
    sent = prepared(grey, "smart28")

    def cpu_ms(call: Any) -> float:
        spent = []
        for _ in range(times):
            begun = time.process_time()
            call()
            spent.append(time.process_time() - begun)
        return round(1000 * median(spent), 1)

    return {
        "whole": cpu_ms(lambda: read_sent(path, "smart28", "png")),
        "decode": cpu_ms(lambda: read_grey(path)),
        "resize": cpu_ms(lambda: prepared(grey, "smart28")),
        "hash": cpu_ms(lambda: pixels_hash(sent)),
        "png": cpu_ms(lambda: encoded(sent, "png")),
    }


def write_dataset(folder: Path, images: int) -> None:
    """A COCO file and its images, each with the three findings."""
    from PIL import Image

    draw = np.random.default_rng(2)
    listed, boxes = [], []
    for number in range(images):
        Image.fromarray(draw.integers(0, 256, (96, 96), np.uint8)).save(folder / f"i{number:05d}.png", compress_level=0)
        listed.append({"id": number + 1, "file_name": f"i{number:05d}.png", "width": 96, "height": 96})
        boxes += [{"image_id": number + 1, "category_id": each, "bbox": [9, 9, 30, 30]} for each in (1, 2, 3)]
    categories = [{"id": number, "name": name} for number, name in enumerate(FINDINGS, 1)]
    (folder / "coco.json").write_text(json.dumps({"images": listed, "annotations": boxes, "categories": categories}))


def call(folder: Path, port: int, dry: bool) -> dict[str, Any]:
    """One call of `ask` in this process: processor seconds, requests, images decoded, memory in MB."""
    from xbench_fast.runtime.asking import sent_images
    from xbench_fast.runtime.asking.ask_dataset import ask_dataset
    from xbench_fast.runtime.asking.ask_options import AskOptions
    from xbench_fast.runtime.asking.ask_rules import AskRequest
    from xbench_fast.runtime.evaluation.progress import SilentProgress
    from xbench_fast.runtime.host.config import DatasetConfig
    from xbench_fast.runtime.results.loaded_dataset import load_dataset

    config = DatasetConfig("made_up", folder, "coco", options={"images": ".", "annotations": "coco.json"})
    begun = time.process_time()
    load_dataset(config)
    loading = time.process_time() - begun
    decoded: list[float] = []
    read = vars(sent_images)["read_grey"]

    def counted(path: Path) -> Any:
        decoded.append(memory() if len(decoded) == 1000 else 0.0)
        return read(path)

    vars(sent_images)["read_grey"] = counted
    options = AskOptions(frame="permille", concurrency=32, dry_run=dry)
    url = f"http://127.0.0.1:{port}/v1"
    begun = time.process_time()
    counts = ask_dataset(
        AskRequest(folder / "o.jsonl", url, "json", "made_up", None, options), config, SilentProgress()
    )
    return {
        "cpu_s": round(time.process_time() - begun, 2),
        "of_it_loading_s": round(loading, 2),
        "requests": counts.get("requests", 0),
        "decoded": len(decoded),
        "mb_at_1000": round(max(decoded), 1) if decoded else 0.0,
        "mb": round(memory(), 1),
    }


def memory() -> float:
    """Private memory of this process in MB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


def in_a_process(folder: Path, port: int, dry: bool = False) -> dict[str, Any]:
    line = [sys.executable, __file__, "--call", str(folder), str(port), str(int(dry))]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(images: int, count: int) -> dict[str, Any]:
    """All figures of the committed result."""
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server,
    ):
        folder = Path(name)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            found: dict[str, Any] = {"load_average_before": round(os.getloadavg()[0], 2), "images": images}
            found["requests"] = {
                f"{label}, {at_once} at once": requests(port, size, at_once, count, folder)
                for label, size in (("0.5 MB", BIG), ("1 kB", SMALL))
                for at_once in (1, 32)
            }
            found["preparing_cpu_ms"] = preparing(folder, 9)
            data = folder / "data"
            data.mkdir()
            write_dataset(data, images)
            found["dry_run"] = in_a_process(data, port, dry=True)
            found["whole_run"] = in_a_process(data, port)
            found["complete_run_again"] = in_a_process(data, port)
            found["dry_run_again"] = in_a_process(data, port, dry=True)
        finally:
            server.kill()
    return found


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--images", type=int, default=12_601)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--call", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.call:
        folder, port, dry = options.call
        print(json.dumps(call(Path(folder), int(port), dry == "1")))
        return
    found = measure(options.images, options.requests)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
