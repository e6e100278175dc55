"""docs/serve.md says what is so."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from serving_process import ServerProcess
from synthetic import make_bundle, save_graph
from xbench_fast.runtime.data.images.samples import dicom_sample
from xbench_fast.runtime.serving.http.body_files import QUERY
from xbench_fast.runtime.serving.http.http_codec import _JSON_MARKS, FILE_TYPES
from xbench_fast.runtime.serving.http.middleware import _SPARE_SECONDS
from xbench_fast.runtime.serving.inference.decoder_process import MEMORY
from xbench_fast.runtime.serving.inference.request_images import _QUICK_BYTES, _QUICK_PIXELS
from xbench_fast.runtime.serving.protocol.interface import INPUTS, OUTPUTS
from xbench_fast.runtime.serving.protocol.tensors import MOST_ITEMS
from xbench_fast.runtime.serving.server import _HEAD, _KEEP_ALIVE
from xbench_fast.runtime.serving.settings import GrpcSettings, ServerSettings

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client", "tritonclient.http"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "serve.md").read_text()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    make_bundle(tmp_path / "models" / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    with ServerProcess(tmp_path / "models", tmp_path) as process:
        yield process
        assert process.stop() == 0


def test_the_examples_run(page: str, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)).save("radiograph.png")
    by_json, by_client = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {"SERVER": server.url, "MODEL": "blocks-32"}
    exec(compile(by_json, "serve.md", "exec"), names)
    answer = names["answer"]
    assert isinstance(answer, dict) and [item["name"] for item in answer["outputs"]] == ["probabilities", "boxes"]
    exec(compile(by_client, "serve.md", "exec"), names)
    assert np.shape(names["saliency"])[0] == 1  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_run(page: str, server: ServerProcess, tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)).save(tmp_path / "radiograph.png")
    (tmp_path / "radiograph.dcm").write_bytes(dicom_sample("uncompressed"))
    first = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[0]
    names = {**os.environ, "SERVER": server.url, "MODEL": "blocks-32"}
    done = subprocess.run(["bash", "-ec", first], cwd=tmp_path, env=names, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    read, rest = json.JSONDecoder().raw_decode, done.stdout
    scores, length = read(rest)
    models, more = read(rest[length:])
    description, _ = read(rest[length + more :])
    assert description["openapi"].startswith("3.1")
    assert [item["name"] for item in scores["outputs"]] == ["findings", "probabilities", "boxes"]
    assert scores["outputs"][0]["data"] == ["Effusion", "Mass"]
    assert [item["name"] for item in models["models"]] == ["blocks-32"]
    assert Image.open(tmp_path / "overlay.png").size == (64, 64)
    assert "xbench-finding: Effusion" in (tmp_path / "headers.txt").read_text()


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("openssl") is None, reason="curl or openssl")
def test_the_server_with_tls_starts(page: str, tmp_path: Path) -> None:
    make_bundle(tmp_path / "bundles" / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    (block,) = (text for text in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) if "--certfile" in text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        block = block.replace("8000", str(free.getsockname()[1]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", block + "wait $! || true"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert '{"ready":true}{"models":[{"name":"blocks-32"' in done.stdout
    assert "every accepted request was answered" in done.stderr


def test_inputs_outputs_and_limits(root: Path, page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) ", page, re.MULTILINE)
    assert rows == [(name, datatypes[0]) for name, datatypes in INPUTS.items()]
    listed = page.partition("with their shapes and meanings:")[2].partition(". The output")[0]
    assert re.findall(r"`(\w+)`", listed) == list(OUTPUTS)
    introduction = page.partition("The protocol's own form")[0]
    assert all(f"`{name}`" in introduction for name in (*FILE_TYPES, *QUERY))
    server, nginx = ServerSettings(), (root / "containers" / "nginx.conf").read_text()
    for words in (
        f"at most {MOST_ITEMS:,} elements",
        f"above {_QUICK_BYTES >> 20} MiB or {_QUICK_PIXELS:,} pixels a request",
        f"may allocate {MEMORY >> 30} GiB",
        f"{_JSON_MARKS:,} commas and brackets",
        f"must be complete within {server.http.body_timeout:g} s",
        f"closed after {_KEEP_ALIVE} s",
        f"{server.connections} connections are open at once over HTTP, and {server.http.client_connections} of one",
        f"they end after {_SPARE_SECONDS} s",
        f"connections | has {server.http.client_connections} |",
        f"half of the {GrpcSettings.calls} calls of gRPC, and half of the {GrpcSettings.incoming} whose",
        f"cut off after {_HEAD >> 10} KiB",
        f"cut off after {limit(nginx, 'client_header_timeout')}",
        f"cut off after {limit(nginx, 'client_body_timeout')} without a byte; the server",
        f"cut off after {limit(nginx, 'send_timeout')} without a byte; the answer",
        f"has {limit(nginx, 'limit_conn clients')} requests at once",
        f"more are refused with {limit(nginx, 'limit_conn_status')}",
        f"{GrpcSettings.reading:g} s for a message and for a reply, {GrpcSettings.calls} calls",
    ):
        assert words in re.sub(r"\s+", " ", page), words


def test_the_container_files_are_those_of_the_page(root: Path, page: str) -> None:
    """Their comments give the same commands; test_containers and test_serve_kubernetes read the files."""
    commands = re.findall(r"^    (openssl rand.*|docker.*|kubectl.*)$", page, re.MULTILINE)
    files = "\n".join(path.read_text() for path in (root / "containers").iterdir())
    assert len(commands) == 4 and all(f"#   {command}" in files for command in commands)


def limit(configuration: str, directive: str) -> str:
    """The value of a directive, with a space before its unit."""
    (value,) = re.findall(rf"^\s*{directive} (\w+);", configuration, re.MULTILINE)
    return re.sub(r"(\d)([a-z])", r"\1 \2", value)
