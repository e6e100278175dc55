"""Requests a second of `xbench-fast serve` and of PyTriton, in turns, with a model that does next to nothing.

    python3 -m venv pytriton && pytriton/bin/pip install "nvidia-pytriton==0.7.0" "numpy<2"
    python benchmarks/serve_pytriton.py --pytriton pytriton/bin/python [--json FILE]

One client (benchmarks/v2_client.py) measures both over HTTP with binary bodies: one image of 224 x 224 bytes, the
logits of three findings back, 16 persistent connections in a closed loop. Both batch requests, at most 16 images or
2 ms. serve runs ONNX Runtime with a graph that takes three pixels, PyTriton a NumPy function that does the same. Client
and servers share the machine; the ratio is the median over rounds of the ratio within a round. CPU time is that of all
processes of a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from serve_load import closed_loop
from v2_client import Connections, prepare

SIZE, FINDINGS, BATCH, DELAY_MS = 224, 3, 16, 2.0

BINDING = f"""
import sys
import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

@batch
def infer(pixels):
    return {{"logits": pixels[:, 0, 0, :{FINDINGS}].astype(np.float32)}}

config = TritonConfig(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), metrics_port=int(sys.argv[3]),
                      http_address="127.0.0.1", grpc_address="127.0.0.1", metrics_address="127.0.0.1")
with Triton(config=config) as triton:
    triton.bind(
        model_name="noop-224",
        infer_func=infer,
        inputs=[Tensor(name="pixels", dtype=np.uint8, shape=(1, {SIZE}, {SIZE}))],
        outputs=[Tensor(name="logits", dtype=np.float32, shape=({FINDINGS},))],
        config=ModelConfig(
            max_batch_size={BATCH}, batcher=DynamicBatcher(max_queue_delay_microseconds={round(DELAY_MS * 1000)})
        ),
    )
    triton.serve()
"""


@dataclass(frozen=True)
class Server:
    """A running server: its address, and its process, which leads its own process group."""

    name: str
    url: str
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """CPU time of the process and its descendants that are alive."""
        return sum(_ticks(pid) for pid in _family(self.process.pid)) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Resident memory of the same, shared pages counted for each."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _family(self.process.pid))
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _family(root: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def save_bundle(folder: Path) -> Path:
    """A bundle whose graph takes three pixels as logits and one as the map."""
    import onnx
    from xbench_fast.engines.bundle import write_bundle
    from xbench_fast.engines.geometry import Geometry
    from xbench_fast.engines.manifest import GraphSpec, Manifest, TensorSpec
    from xbench_fast.engines.prompts.prompt_set import PromptSet

    h, t = onnx.helper, onnx.TensorProto
    shapes: dict[str, list[int | str]] = {"pixels": ["batch", 1, SIZE, SIZE], "text": ["findings", 1]}
    shapes |= {"logits": ["batch", "findings"], "saliency": ["batch", "findings", 1, 1]}
    nodes = [
        h.make_node("Shape", ["text"], ["queries"], end=1),
        h.make_node("Slice", ["pixels", "start", "queries", "axis"], ["some"]),
        h.make_node("Slice", ["some", "start", "one", "rows"], ["few"]),
        h.make_node("Cast", ["few"], ["values"], to=t.FLOAT),
        h.make_node("Transpose", ["values"], ["saliency"], perm=[0, 3, 1, 2]),
        h.make_node("Squeeze", ["saliency", "last"], ["logits"]),
    ]
    constants = {"start": [0], "one": [1], "axis": [3], "rows": [2], "last": [2, 3]}
    kinds = {"pixels": t.UINT8}
    values = {name: h.make_tensor_value_info(name, kinds.get(name, t.FLOAT), shape) for name, shape in shapes.items()}
    graph = h.make_graph(
        nodes,
        "noop",
        [values["pixels"], values["text"]],
        [values["logits"], values["saliency"]],
        [onnx.numpy_helper.from_array(np.array(array, np.int64), name) for name, array in constants.items()],
    )
    source = folder / "image.onnx"
    source.write_bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9).SerializeToString())
    names = tuple(f"finding {n}" for n in range(FINDINGS))
    numbers = np.arange(FINDINGS, dtype=np.int32)
    prompts = PromptSet(
        "noop", names, names, numbers, np.ones(FINDINGS, np.int8), np.zeros((FINDINGS, 1), np.float32), ("own",) * 3
    )
    prompts.save(folder / "noop.npz")

    def specs(*chosen: str) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(n, "uint8" if n == "pixels" else "float32", tuple(shapes[n])) for n in chosen)

    manifest = Manifest(
        model="noop",
        variant="224",
        weights="demo",
        checkpoint=None,
        geometry=Geometry("squash", SIZE, SIZE, "bilinear"),
        grid=(1, 1),
        saliency={"kind": "similarity", "description": "one pixel"},
        logit_scale=1.0,
        text={"context": 1},
        graphs={"image": GraphSpec("image.onnx", specs("pixels", "text"), specs("logits", "saliency"))},
        prompt_sets={"noop": prompts.record()},
        opset=18,
        exporter={"benchmark": "serve_pytriton"},
        parity={},
    )
    (folder / "models").mkdir()
    files = {"image.onnx": source, prompts.file: folder / "noop.npz"}
    return write_bundle(folder / "models" / "noop-224", manifest, files).path.parent


@contextmanager
def started(
    name: str, line: list[str], url: str, variables: dict[str, str], log: Path, model: str = "noop-224"
) -> Iterator[Server]:
    """A server that is ready for `model`; it is stopped at the end with all its processes."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            line, stdout=stream, stderr=stream, env={**os.environ, **variables}, start_new_session=True
        )
    try:
        for _ in range(1200):
            if process.poll() is not None or _ready(url, model):
                break
            time.sleep(0.1)
        if process.poll() is not None or not _ready(url, model):
            raise SystemExit(f"{name} did not start:\n{log.read_text()[-2000:]}")
        yield Server(name, url, process)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                continue
        process.wait()


def _ready(url: str, model: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v2/models/{model}/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


@contextmanager
def both(folder: Path, python: Path) -> Iterator[list[Server]]:
    """serve and PyTriton, running together; the one that is not measured is idle."""
    ports = free_ports(4)
    serve = [sys.executable, "-m", "xbench_fast.runtime.cli", "serve", "--bundles", str(save_bundle(folder))]
    serve += ["--port", str(ports[0]), "--engine", "onnxruntime-cpu", "--no-access-log", "--threads", "1"]
    serve += ["--max-batch", str(BATCH), "--max-delay-ms", str(DELAY_MS)]
    (folder / "binding.py").write_text(BINDING)
    other = [str(python), str(folder / "binding.py"), *map(str, ports[1:])]
    # PyTriton's backend must find the libpython of its own environment before the system's.
    where = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [where.stdout.strip(), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    variables = {"LD_LIBRARY_PATH": ":".join(paths), "PATH": f"{python.absolute().parent}:{os.environ['PATH']}"}
    url = "http://127.0.0.1:{}".format
    with (
        started("xbench-fast serve", serve, url(ports[0]), {}, folder / "serve.txt") as one,
        started("PyTriton", other, url(ports[1]), variables, folder / "pytriton.txt") as two,
    ):
        yield [one, two]


async def ask(server: Server, connections: int, seconds: float) -> dict[str, Any]:
    """A closed loop against one server."""
    work = prepare(server.url, model="noop-224", name="pixels", file=None, output="logits", seed=1)
    pool = Connections(server.url, most=connections, timeout=30.0)
    await closed_loop(pool, work, connections, min(1.0, seconds))
    before = server.cpu_seconds()
    found = await closed_loop(pool, work, connections, seconds)
    found["server_cpu_ms_per_request"] = round(1e3 * (server.cpu_seconds() - before) / max(1, found["answered"]), 3)
    pool.close()
    if found["answered"] != found["sent"]:
        raise SystemExit(f"{server.name} did not answer everything: {found}")
    return found


def main() -> None:
    from xbench_fast.runtime.host.machine_record import describe_machine, usable_cores

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pytriton", type=Path, required=True, help="Python of an environment with nvidia-pytriton")
    parser.add_argument("--connections", type=int, default=16, help="[16]")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run [8]")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    if busy > 0.5 * usable_cores():
        print(f"The machine is busy (load {busy:.1f}); these figures are not to be kept.")
    runs: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name, both(Path(name), options.pytriton) as servers:
        for _ in range(options.rounds):
            for server in servers:
                found = asyncio.run(ask(server, options.connections, options.seconds))
                runs.setdefault(server.name, []).append(found)
                spent, cpu = found["latency_ms"], found["server_cpu_ms_per_request"]
                print(
                    f"{server.name:<18}{found['answered_per_s']:>9.1f}/s  p50 {spent['p50']:.1f} "
                    f"p99 {spent['p99']:.1f} ms  CPU {cpu:.2f} ms a request"
                )
        memory = {server.name: round(server.memory_mib()) for server in servers}
    ours, theirs = runs.values()
    ratio = median(a["answered_per_s"] / b["answered_per_s"] for a, b in zip(ours, theirs, strict=True))
    key = "server_cpu_ms_per_request"
    cpu = median(b[key] / a[key] for a, b in zip(ours, theirs, strict=True))
    print(f"serve / PyTriton: {ratio:.2f} x the requests a second, {cpu:.2f} x less CPU time of the server a request")
    if options.json:
        result = {
            "what": "closed loop over HTTP, 224 x 224 uint8 in, 3 logits out, a model that does next to nothing; "
            "client and both servers on the same cores, in turns",
            "connections": options.connections,
            "load_average_before": round(busy, 2),
            "machine": describe_machine(),
            "ratio_of_requests_per_s": round(ratio, 2),
            "ratio_of_server_cpu_per_request": round(cpu, 2),
            "resident_mib": memory,
            "runs": runs,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
