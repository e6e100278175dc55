"""An Open Inference Protocol client for load tests: raw asyncio, persistent connections, prepared request bodies.

It works with any model: the requests are made from the server's metadata.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
import urllib.request
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"BOOL": "?", "UINT8": "u1", "INT8": "i1", "UINT16": "<u2", "INT16": "<i2", "UINT32": "<u4", "INT32": "<i4"}
TYPES |= {"UINT64": "<u8", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
VARIANTS = 8  # different contents, so that no cache can answer for the model


@dataclass(frozen=True)
class Work:
    """The requests: a path, and request bodies with their JSON length."""

    path: str
    model: str
    input: str
    bodies: tuple[tuple[bytes, int], ...]


def fetch(url: str, path: str, token: str = "") -> Any:
    """JSON of a GET (of a POST for the repository's index)."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = b"{}" if path.endswith("/index") else None
    request = urllib.request.Request(url + path, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def prepare(url: str, *, model: str, name: str, file: Path | None, output: str, seed: int, token: str = "") -> Work:
    """Request bodies for a model. Empty `model`: the first that is ready. Empty `name`: the first input of numbers of
    which only the first dimension is dynamic; one item is sent, filled with random values. A BYTES input needs a file.
    Empty `output`: the first output of numbers with the fewest elements."""
    if not model:
        ready = [item["name"] for item in fetch(url, "/v2/repository/index", token) if item.get("state") == "READY"]
        if not ready:
            raise SystemExit("The server has no model that is ready.")
        model = ready[0]
    path = f"/v2/models/{urllib.parse.quote(model, safe='')}"
    told = fetch(url, path, token)
    numbers = [item for item in told["inputs"] if item["datatype"] in TYPES and min(item["shape"][1:], default=1) > 0]
    chosen = [item for item in told["inputs"] if item["name"] == name] if name else numbers
    if not chosen:
        raise SystemExit(
            f"{model} has no input {name or 'of numbers'}; there are {[i['name'] for i in told['inputs']]}."
        )
    entry = chosen[0]
    output = output or _smallest(told["outputs"])
    rng = np.random.default_rng(seed)
    return Work(
        path + "/infer", model, entry["name"], tuple(_body(entry, file, output, rng, n) for n in range(VARIANTS))
    )


def _smallest(outputs: list[dict[str, Any]]) -> str:
    numbers = [item for item in outputs if item["datatype"] in TYPES]
    return str(min(numbers, key=lambda item: len(item["shape"]))["name"])


def _body(
    entry: dict[str, Any], file: Path | None, output: str, rng: np.random.Generator, number: int
) -> tuple[bytes, int]:
    shape = [1 if side < 0 else side for side in entry["shape"]]
    if entry["datatype"] == "BYTES":
        if file is None:
            raise SystemExit(f"The input {entry['name']} takes bytes; give a file with --file.")
        data = file.read_bytes()
        raw, shape = len(data).to_bytes(4, "little") + data, [1] * len(shape)
    else:
        kind = np.dtype(TYPES[entry["datatype"]])
        values = rng.random(shape) if kind.kind == "f" else rng.integers(0, 2 if kind.kind == "b" else 120, shape)
        raw = values.astype(kind).tobytes()
    tensor = {"name": entry["name"], "datatype": entry["datatype"], "shape": shape}
    head = json.dumps(
        {
            "id": f"load-{number}",
            "inputs": [tensor | {"parameters": {"binary_data_size": len(raw)}}],
            "outputs": [{"name": output, "parameters": {"binary_data": True}}],
        }
    ).encode()
    return head + raw, len(head)


@dataclass
class Reply:
    """status 0: no answer, `reason` says why. `retry`: whether Retry-After was sent. `finished`: time of completion."""

    status: int
    finished: float
    retry: bool = False
    reason: str = ""


class Connections:
    """Persistent connections to one server; one is opened when all that exist are busy, `most` at once."""

    def __init__(self, url: str, *, most: int, timeout: float, token: str = "") -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._free: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()
        self._room = asyncio.Semaphore(most)
        self._timeout = timeout
        self._lines = f"Host: {parts.netloc}\r\nContent-Type: application/octet-stream\r\n"
        self._lines += f"Authorization: Bearer {token}\r\n" if token else ""
        self.opened = 0

    async def ask(self, work: Work, number: int) -> Reply:
        """Sends one request; returns its complete answer, or the reason why there is none."""
        body, length = work.bodies[number % len(work.bodies)]
        head = f"POST {work.path} HTTP/1.1\r\n{self._lines}Inference-Header-Content-Length: {length}\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        async with self._room:
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._exchange(request, f"load-{number % len(work.bodies)}")
            except TimeoutError:
                return Reply(0, time.perf_counter(), reason="no answer in time")
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                return Reply(0, time.perf_counter(), reason=type(error).__name__)
            except (ValueError, LookupError):
                return Reply(0, time.perf_counter(), reason="an answer that is none of the protocol's")

    async def _exchange(self, request: bytes, identifier: str) -> Reply:
        reader, writer = await self._connection()
        try:
            writer.write(request)
            status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            data = await reader.readexactly(int(headers["content-length"]))
            finished = time.perf_counter()
        except BaseException:
            writer.close()
            raise
        if headers.get("connection", "").lower() == "close":
            writer.close()
        else:
            self._free.append((reader, writer))
        if status != 200:
            return Reply(status, finished, "retry-after" in headers)
        told = json.loads(data[: int(headers.get("inference-header-content-length", len(data)))])
        wrong = told.get("id") != identifier or not told.get("outputs")
        return Reply(0 if wrong else 200, finished, reason="an answer to another question" if wrong else "")

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._free:
            reader, writer = self._free.pop()
            if not (reader.at_eof() or writer.is_closing()):
                return reader, writer
            writer.close()
        self.opened += 1
        return await asyncio.open_connection(self._host, self._port)

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


def _head(data: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = data.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split(" ")[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}
