"""What leaves the machine, and what is kept: no identifier in any request, no key in any file (docs/ask.md §6)."""

from __future__ import annotations

import base64
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ask_server import AskServer
from ask_world import OPTIONS, run
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.runtime.asking.asked_file import asked_folder
from xbench_fast.runtime.host.config import DatasetConfig

KEY = "sk-CANARYKEY0123456789"
NAMES = ("CANARYPATIENT", "CANARYFILE", "CANARYFOLDER", "CANARYID")


def dicom(path: Path) -> None:
    """A radiograph whose header names the patient."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1", "2.25.1"
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    image.SOPClassUID, image.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    image.PatientName, image.PatientID, image.InstitutionName = "CANARYPATIENT^A", "CANARYID", "CANARYPATIENT clinic"
    image.Rows, image.Columns, image.SamplesPerPixel, image.PhotometricInterpretation = 300, 280, 1, "MONOCHROME2"
    image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 8, 8, 7, 0
    image.PixelData = np.random.default_rng(2).integers(0, 256, (300, 280), np.uint8).tobytes()
    image["PixelData"].VR = "OB"
    image.save_as(path, enforce_file_format=True)


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> DatasetConfig:
    folder = tmp_path_factory.mktemp("CANARYFOLDER")
    dicom(folder / "CANARYFILE.dcm")
    data = {
        "images": [{"id": 1, "file_name": "CANARYFILE.dcm", "width": 280, "height": 300}],
        "categories": [{"id": 1, "name": "Mass"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [9, 9, 50, 50], "iscrowd": 0}],
    }
    (folder / "coco.json").write_text(json.dumps(data))
    return DatasetConfig("fixture", folder, "coco", options=OPTIONS)


def command(config: DatasetConfig, url: str, out: Path, *more: str) -> list[str]:
    options = {"reader": "coco", **OPTIONS}
    given = [text for key, value in options.items() for text in ("--data-option", f"fixture.{key}={value}")]
    return [
        sys.executable, "-m", "xbench_fast.runtime.cli", "ask", "--endpoint", url, "--dialect", "qwen25vl", "--dataset",
        "fixture", "--data", f"fixture={config.root}", *given, "--out", str(out), *more,
    ]  # fmt: skip


def listener() -> tuple[socket.socket, list[bytes]]:
    """A port that keeps whatever anybody sends to it."""
    got: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            got.append(connection.recv(100) or b"connected")
            connection.close()

    threading.Thread(target=accept, daemon=True).start()
    return server, got


def test_nothing_names_a_patient_a_file_or_this_machine(canary: DatasetConfig, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    proxy, got = listener()
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), f"http://127.0.0.1:{proxy.getsockname()[1]}")
    echo = {"content": f"I was given {KEY}.", "finish": "stop"}
    with AskServer(
        default=echo, script=[{"content": "x"}, {"content": "x"}, {"status": 500, "body": {"error": KEY}}]
    ) as server:
        done = subprocess.run(
            command(canary, server.url, out, "--key-env", "CANARY_VARIABLE", "--json", "-"),
            capture_output=True, text=True, env=os.environ | proxies | {"CANARY_VARIABLE": KEY}, check=False,
        )  # fmt: skip
        seen = server.seen()
    proxy.close()
    assert done.returncode == 0, done.stderr
    assert not got, "a proxy of the environment was used"
    sent = [request for request in seen if request["body"]]
    assert len(sent) == 4 and all(request["headers"]["Authorization"] == f"Bearer {KEY}" for request in seen)
    words = (*NAMES, "Mass.", str(tmp_path), str(canary.root), socket.gethostname(), f"/{getpass.getuser()}")
    for request in seen:
        head = json.dumps({key: value for key, value in request["headers"].items() if key != "Host"})
        body = request["body"]
        for part in body.split('"'):
            if part.startswith("data:"):
                raw = base64.b64decode(part.partition("base64,")[2])
                assert not any(word.encode() in raw for word in NAMES)
                assert all(kind in (b"IHDR", b"IDAT", b"IEND") for kind in chunks(raw))
                body = body.replace(part, "")
        assert not [word for word in words if word in head + body], head + body
        assert request["headers"]["User-Agent"].startswith("xbench-fast/")
        assert set(json.loads(request["body"] or "{}")) <= {
            "model",
            "messages",
            "temperature",
            "max_tokens",
            "seed",
            "stream",
        }
    kept = "".join(path.read_text() for path in asked_folder(out).iterdir() if path.is_file()) + out.read_text()
    assert KEY not in kept + done.stdout + done.stderr and "I was given [removed]." in kept
    assert "CANARYPATIENT" not in kept + done.stdout + done.stderr
    log = (asked_folder(out) / "log.jsonl").read_text()
    assert not [word for word in (*NAMES, server.url, str(tmp_path)) if word in log]


def chunks(png: bytes) -> list[bytes]:
    found, at = [], 8
    while at < len(png):
        found.append(png[at + 4 : at + 8])
        at += 12 + int.from_bytes(png[at : at + 4], "big")
    return found


def test_a_redirect_to_another_port_gets_no_byte(canary: DatasetConfig, tmp_path: Path) -> None:
    other, got = listener()
    where = {"Location": f"http://127.0.0.1:{other.getsockname()[1]}/v1/chat/completions"}
    with (
        AskServer(script=[{"status": 307, "headers": where}] * 3) as server,
        pytest.raises(RunError, match="redirects"),
    ):
        run(canary, server.url, "qwen25vl", tmp_path / "o.jsonl")
    other.close()
    assert not got


def test_a_key_is_in_no_traceback(canary: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_VARIABLE", KEY)
    refusal = {"status": 401, "body": {"error": {"message": f"bad key {KEY}"}}}
    with AskServer(script=[refusal] * 3) as server, pytest.raises(RunError) as caught:
        run(canary, server.url, "qwen25vl", tmp_path / "o.jsonl", key_env="CANARY_VARIABLE")
    error: Any = caught.value
    while error is not None:
        assert KEY not in repr(error) + str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "told", ["Small  CANARYPHRASE\nÉpanchement", "small canaryphrase épanchement", "SMALL", "Small CANARYPHR"]
)
def test_a_phrase_is_in_no_message(told: str) -> None:
    from xbench_fast.runtime.asking.asked_pairs import AskedQuestion
    from xbench_fast.runtime.asking.runner import AskRunner

    class AskJob:
        question = AskedQuestion(words := "Small  CANARYPHRASE\nÉpanchement", True, phrase=words)

    shown = AskRunner._hidden(None, f"status 400: bad prompt '{told}'", AskJob)  # type: ignore[arg-type]
    assert shown.startswith("status 400: bad prompt '[removed]") and shown.strip("'").endswith("[removed]")
    assert "small" not in shown.lower() and "canary" not in shown.lower()


@pytest.mark.parametrize(
    ("phrase", "told", "shown"),
    [
        ("PE of RUL", "bad prompt 'Find pe  of RUL.'", "bad prompt 'Find [removed].'"),
        ("no PE?", "bad: no PE?", "bad: [removed]"),
        ("a", "a bad prompt: it has a", "[removed] bad prompt: it has [removed]"),
    ],
)
def test_a_phrase_of_short_words_is_in_no_message(phrase: str, told: str, shown: str) -> None:
    from xbench_fast.runtime.asking.asked_pairs import AskedQuestion
    from xbench_fast.runtime.asking.runner import AskRunner

    class AskJob:
        question = AskedQuestion(phrase, True, phrase=phrase)

    assert AskRunner._hidden(None, told, AskJob) == shown  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_is_verified(canary: DatasetConfig, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj"]
    line += ["/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "1", "-keyout", str(key)]
    subprocess.run([*line, "-out", str(certificate)], check=True, capture_output=True)
    with AskServer(count_tokens=0, tls=[str(certificate), str(key)]) as server:
        url = f"https://localhost:{server.port}/v1"
        with pytest.raises(RunError, match=r"cannot be verified .*--ca FILE adds a root"):
            run(canary, url, "radvlm", tmp_path / "a.jsonl")
        counts, _ = run(canary, url, "radvlm", tmp_path / "b.jsonl", ca=certificate)
        assert counts["answers"] == 1
        with pytest.raises(RunError, match="cannot be verified"):
            run(canary, f"https://127.0.0.1:{server.port}/v1", "radvlm", tmp_path / "c.jsonl", ca=certificate)
    with pytest.raises(ConfigError, match="cannot be read as certificates"):
        run(canary, url, "radvlm", tmp_path / "d.jsonl", ca=key)


def test_a_key_does_not_go_to_another_host_in_the_clear(
    canary: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_VARIABLE", KEY)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("203.0.113.9", 80))])
    with pytest.raises(ConfigError, match=r"A key is not sent over http to a\.example") as caught:
        run(
            canary,
            "http://a.example/v1",
            "radvlm",
            tmp_path / "o.jsonl",
            key_env="CANARY_VARIABLE",
            allow_host=("a.example",),
        )
    assert KEY not in str(caught.value)


def test_a_dataset_that_is_credentialed_needs_its_name(canary: DatasetConfig, tmp_path: Path) -> None:
    closed = canary.with_option("credentialed", True)
    given: dict[str, Any] = {"dry_run": True, "allow_host": ("a.example",)}
    with pytest.raises(ConfigError, match=r"--allow-host a\.example=fixture"):
        run(closed, "https://a.example/v1", "radvlm", tmp_path / "o.jsonl", **given)
    counts, lines = run(canary, "https://a.example/v1", "radvlm", tmp_path / "o.jsonl", **given)
    assert counts["pairs"] == 1 and "1 images of fixture leave this machine for a.example." in lines
    given["allow_host"] = ("a.example=fixture",)
    _, lines = run(closed, "https://a.example/v1", "radvlm", tmp_path / "o.jsonl", **given)
    assert any("PhysioNet" in line for line in lines)
