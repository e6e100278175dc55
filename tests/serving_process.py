"""A server as a process of its own, and V2 requests to it."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from PIL import Image
from synthetic import SIZE, model, prompt_set

COMMAND = [sys.executable, "-m", "xbench_fast.runtime.cli", "serve"]


class ServerProcess:
    """`xbench-fast serve` on a free port; `url` is "http://host:port". Its log goes to `folder`/log.txt."""

    def __init__(
        self, bundles: Path, folder: Path, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = folder / "log.txt"
        line = [*COMMAND, "--bundles", str(bundles), "--port", "0", "--threads", "1"]
        line += ["--engine", "onnxruntime-cpu", *map(str, arguments)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                line, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **(environment or {})}
            )
        assert self.process.stdout is not None
        self.banner = [self.process.stdout.readline().rstrip("\n")]
        assert self.banner[0].startswith(("http://", "https://")), self.log.read_text()
        self.url = self.banner[0].split()[0]

    @property
    def address(self) -> str:
        """host:port, as tritonclient wants it."""
        return self.url.partition("://")[2]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit status; the rest of the output goes to `banner`."""
        self.process.send_signal(number)
        status = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        # Not communicate(): it reads the pipe itself, and loses the lines that readline() buffered.
        self.banner += self.process.stdout.read().splitlines()
        return status

    def lines(self) -> list[dict[str, Any]]:
        """The access log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def stopped(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """Standard error of a process after SIGTERM; one that does not end is killed, which its exit status shows."""
    process.terminate()
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
    return errors


def until_closed(line: socket.socket, *, send: bytes = b"") -> bytes:
    """What comes until the line is closed, within a minute; `send` is sent meanwhile, a byte in a tenth of a second."""
    line.settimeout(0.1)
    got, rest = b"", iter(send)
    for _ in range(600):
        try:
            part = line.recv(1 << 16)
            if not part:
                return got
            got += part
        except TimeoutError:
            pass
        except OSError:
            return got
        with suppress(StopIteration, OSError):
            line.sendall(bytes([next(rest)]))
    raise AssertionError("the connection was kept")


def film(folder: Path, number: int = 0) -> bytes:
    """An image of `synthetic.make_served`, as a file."""
    return (folder / "data" / "images" / f"case{number:04d}.png").read_bytes()


def scores(data: bytes) -> tuple[Any, Any]:
    """Logits and saliency of a file for the three findings, by NumPy."""
    small = np.asarray(Image.open(io.BytesIO(data)).resize((SIZE, SIZE), Image.Resampling.BILINEAR))
    return model(small[None, None], prompt_set().features)


def image_request(
    *files: bytes, outputs: tuple[str, ...] = (), parameters: Mapping[str, Any] | None = None
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a binary inference request with these files; answers come as JSON."""
    raw = b"".join(struct.pack("<I", len(file)) + file for file in files)
    tensor = {"name": "image", "datatype": "BYTES", "shape": [len(files)], "parameters": {"binary_data_size": len(raw)}}
    content: dict[str, Any] = {"inputs": [tensor], "parameters": dict(parameters or {})}
    if outputs:
        content["outputs"] = [{"name": name} for name in outputs]
    text = json.dumps(content).encode()
    return text + raw, {"Inference-Header-Content-Length": str(len(text))}
