"""Load on a server of the Open Inference Protocol: how much it answers, how fast, and what it does with too much.

    python benchmarks/serve_load.py --bundles DIR [--json benchmarks/results/serve-cpu.json]
    python benchmarks/serve_load.py --bundles DIR --compare-batching
    python benchmarks/serve_load.py --url http://127.0.0.1:8000

First the capacity: requests a second with --connections in a closed loop. Then an open loop (Poisson arrivals from a
seed, as MLPerf's server scenario) at 0.5, 1 and 4 times that. A latency starts at the scheduled time of the request, so
a delay in the generator counts in full. A run is VALID if no accepted request was lost, every refusal is an immediate
429 or 503 with Retry-After, the generator kept its schedule, and there are enough answers for the 99th percentile;
otherwise INVALID, with the reasons. --compare-batching measures the closed loop against a server with micro-batching
and one without, in turns. With --bundles the server is started here, on the loopback, and stopped at the end.

It works with any model: the request is made from the metadata (the first input of numbers, one image, 224 x 224 for a
model of that size).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from v2_client import Connections, Reply, Work, prepare

FEWEST = 459  # 0.99 ** 459 < 0.01: with fewer answers the 99th percentile may be above the largest
MOST_REQUESTS = 200_000
MOST_CONNECTIONS = 400  # a server takes 512


def arrivals(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Times of a Poisson process of `rate` a second, from 0 to `seconds`, at most MOST_REQUESTS."""
    rng = np.random.default_rng(seed)
    count = min(MOST_REQUESTS, int(rate * seconds + 10 * (rate * seconds) ** 0.5) + 16)
    times = np.cumsum(rng.exponential(1 / rate, count))
    return times[times < seconds]


async def closed_loop(pool: Connections, work: Work, connections: int, seconds: float) -> dict[str, Any]:
    """Each connection sends its next request as soon as it has an answer."""
    replies: list[tuple[float, Reply]] = []
    start = time.perf_counter()

    async def one(number: int) -> None:
        while time.perf_counter() - start < seconds:
            due = time.perf_counter()
            reply = await pool.ask(work, number)
            replies.append((due, reply))
            number += connections
            if reply.status != 200:
                await asyncio.sleep(0.01)

    await asyncio.gather(*(one(number) for number in range(connections)))
    return summary(replies, time.perf_counter() - start) | {"connections": connections}


async def open_loop(pool: Connections, work: Work, times: np.ndarray) -> dict[str, Any]:
    """Sends every request at its scheduled time, independent of the earlier answers."""
    replies: list[tuple[float, Reply]] = []
    late = np.zeros(len(times))
    start = time.perf_counter()

    async def one(number: int, due: float) -> None:
        late[number] = time.perf_counter() - due
        replies.append((due, await pool.ask(work, number)))

    async with asyncio.TaskGroup() as group:
        for number, at in enumerate(times):
            if (wait := start + at - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            elif number % 16 == 0:
                await asyncio.sleep(0)
            group.create_task(one(number, start + at))
    found = summary(replies, time.perf_counter() - start)
    return found | {"late_ms_p99": _percentiles(late)["p99"]}


def summary(replies: list[tuple[float, Reply]], seconds: float) -> dict[str, Any]:
    """Counts and latencies in ms; "lost" counts requests with neither an answer nor a refusal."""
    statuses = Counter(reply.status for _, reply in replies)
    answered = np.array([reply.finished - due for due, reply in replies if reply.status == 200])
    refused = [(due, reply) for due, reply in replies if reply.status in (429, 503)]
    lost = Counter(
        reply.reason or f"status {reply.status}" for _, reply in replies if reply.status not in (200, 429, 503)
    )
    return {
        "seconds": round(seconds, 3),
        "sent": len(replies),
        "answered": statuses[200],
        "answered_per_s": round(statuses[200] / seconds, 2),
        "refused": {str(status): statuses[status] for status in (429, 503)},
        "refused_share": round(len(refused) / max(1, len(replies)), 4),
        "refused_without_retry_after": sum(not reply.retry for _, reply in refused),
        "lost": dict(lost),
        "latency_ms": _percentiles(answered),
        "refusal_ms": _percentiles(np.array([reply.finished - due for due, reply in refused])),
    }


def _percentiles(seconds: np.ndarray) -> dict[str, float | None]:
    names = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    return {
        name: round(1e3 * float(np.percentile(seconds, p)), 3) if seconds.size else None for name, p in names.items()
    }


def verdict(found: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """VALID, or INVALID with the reasons."""
    reasons = [f"{count} lost: {why}" for why, count in found["lost"].items()]
    if found["refused_without_retry_after"]:
        reasons.append(f"{found['refused_without_retry_after']} refusals without Retry-After")
    if found["answered"] < FEWEST:
        reasons.append(f"{found['answered']} answers are fewer than the {FEWEST} that a 99th percentile needs")
    late = found.get("late_ms_p99")
    if late is not None and late > options.late_ms:
        reasons.append(f"the generator was late: {late} ms at the 99th percentile, the limit is {options.late_ms:g}")
    slow = found["refusal_ms"]["p99"]
    if slow is not None and slow > options.refusal_ms:
        reasons.append(f"refusals came after {slow} ms at the 99th percentile, the limit is {options.refusal_ms:g}")
    worst = found["latency_ms"]["p99"]
    if options.bound_ms and worst is not None and worst > options.bound_ms:
        reasons.append(f"the 99th percentile is {worst} ms, the bound is {options.bound_ms:g}")
    return {"verdict": "INVALID" if reasons else "VALID", "reasons": reasons}


@contextmanager
def served(options: argparse.Namespace, *more: str) -> Iterator[str]:
    """The address of a server of --bundles, which is stopped at the end; or the address of --url."""
    if options.url:
        yield options.url.rstrip("/")
        return
    line = [sys.executable, "-m", "xbench_fast.runtime.cli", "serve", "--bundles", str(options.bundles), "--port", "0"]
    line += ["--client-connections", "0"]  # all requests come from one address
    line += ["--no-access-log", *(["--model", options.model] if options.model else []), *options.serve, *more]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], options.start)
        first = process.stdout.readline() if ready else ""
        if not first.startswith("http"):
            raise SystemExit(f"The server did not start within {options.start:g} s.")
        yield first.split()[0]
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            raise SystemExit(f"The server ended with status {process.returncode} instead of an orderly stop.")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


async def measure(url: str, options: argparse.Namespace, factors: list[float]) -> dict[str, Any]:
    """Capacity, then the open loop at each factor of it."""
    token = os.environ.get("XBENCH_FAST_TOKEN", "")
    work = prepare(
        url,
        model=options.model,
        name=options.input,
        file=options.file,
        output=options.output,
        seed=options.seed,
        token=token,
    )
    pool = Connections(url, most=MOST_CONNECTIONS, timeout=options.timeout, token=token)
    await closed_loop(pool, work, options.connections, options.warm_up)
    capacity = await closed_loop(pool, work, options.connections, options.seconds)
    capacity |= verdict(capacity, options)
    phases = []
    for number, factor in enumerate(factors):
        rate = max(factor * capacity["answered_per_s"], 1.0)
        times = arrivals(rate, options.seconds, options.seed + number)
        found = await open_loop(pool, work, times)
        phases.append({"factor": factor, "offered_per_s": round(rate, 2), **found, **verdict(found, options)})
    pool.close()
    request = {"model": work.model, "input": work.input, "bytes": len(work.bodies[0][0])}
    return {"request": request, "capacity": capacity, "phases": phases}


def compare_batching(options: argparse.Namespace) -> dict[str, Any]:
    """The closed loop with and without micro-batching, in turns; the ratio of the medians."""
    rates: dict[str, list[float]] = {"with": [], "without": []}
    runs = []
    for _ in range(options.rounds):
        for name, flags in (("with", ()), ("without", ("--max-batch", "1"))):
            with served(options, *flags) as url:
                found = asyncio.run(measure(url, options, []))
            rates[name].append(found["capacity"]["answered_per_s"])
            runs.append({"batching": name, **found["capacity"]})
    medians = {name: float(np.median(values)) for name, values in rates.items()}
    return {"answered_per_s": medians, "ratio": medians["with"] / max(medians["without"], 1e-9), "runs": runs}


def _line(name: str, found: dict[str, Any]) -> str:
    spent = found["latency_ms"]
    times = " ".join(f"{key} {spent[key]:.1f}" for key in ("p50", "p90", "p99")) + " ms" if spent["p50"] else "-"
    return (
        f"{name:<22}{found['answered_per_s']:>9.1f}/s  {times}  refused {100 * found['refused_share']:.1f} %  "
        f"lost {sum(found['lost'].values())}  {found['verdict']} {'; '.join(found['reasons'])}"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bundles", type=Path, help="folder of bundles; a server is started for them")
    where.add_argument("--url", help="a server that runs already")
    parser.add_argument("--model", default="", help="model [the first that is ready]")
    parser.add_argument("--input", default="", help="input that is sent [the first of numbers]")
    parser.add_argument("--file", type=Path, help="file for an input of bytes")
    parser.add_argument("--output", default="", help="output that is asked for [one of numbers with the fewest]")
    parser.add_argument("--connections", type=int, default=16, help="connections of the closed loop [16]")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run [20]")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds before the first run [3]")
    parser.add_argument("--factors", default="0.5,1,4", help="loads of the open loop, times the capacity [0.5,1,4]")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and contents [1]")
    parser.add_argument("--timeout", type=float, default=40.0, help="seconds after which a request is lost [40]")
    parser.add_argument("--late-ms", type=float, default=50.0, help="how late the generator may be [50]")
    parser.add_argument("--refusal-ms", type=float, default=500.0, help="how long a refusal may take [500]")
    parser.add_argument("--bound-ms", type=float, default=0.0, help="bound on the 99th percentile [none]")
    parser.add_argument("--compare-batching", action="store_true", help="micro-batching against --max-batch 1")
    parser.add_argument("--rounds", type=int, default=3, help="turns of --compare-batching [3]")
    parser.add_argument("--start", type=float, default=120.0, help="seconds the server may take to start [120]")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="the rest: options of serve")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    if options.compare_batching and options.url:
        parser.error("--compare-batching starts its own servers; give --bundles")
    return options


def main() -> None:
    from xbench_fast.runtime.host.machine_record import describe_machine, usable_cores

    options = parse()
    busy = os.getloadavg()[0]
    result: dict[str, Any] = {
        "what": "load on a V2 server over the loopback, binary tensors, client and server on the same cores",
        "connections": options.connections,
        "serve_options": options.serve,
        "load_average_before": round(busy, 2),
        "machine": describe_machine(),
    }
    if busy > 0.5 * usable_cores():
        result["warning"] = "the machine was busy before the run"
        print(f"The machine is busy (load {busy:.1f}); these figures are not to be kept.")
    if options.compare_batching:
        result["batching"] = compare_batching(options)
        for run in result["batching"]["runs"]:
            print(_line(f"batching {run['batching']}", run))
        print(f"with / without micro-batching: {result['batching']['ratio']:.2f} x")
    else:
        with served(options) as url:
            result |= asyncio.run(measure(url, options, [float(part) for part in options.factors.split(",")]))
        print(_line(f"closed loop, {options.connections}", result["capacity"]))
        for phase in result["phases"]:
            print(_line(f"open loop, {phase['factor']:g} x", phase))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
