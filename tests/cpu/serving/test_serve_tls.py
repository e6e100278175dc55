"""TLS for HTTP and gRPC, and what is said about certificates and tokens."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from grpc_server import GrpcServer
from serving_process import COMMAND, ServerProcess
from synthetic import make_bundle, save_graph
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.serving.certificate import Certificate, read_certificate

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package)
httpx = pytest.importorskip("httpx")
grpc = pytest.importorskip("grpc")
if shutil.which("openssl") is None:
    pytest.skip("openssl is not installed", allow_module_level=True)

UNENCRYPTED = "The token travels unencrypted"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    make_bundle(made / "models" / "blocks-32", graph=save_graph(made / "blocks.onnx"))
    for name in ("one", "other"):
        line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        line += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        line += ["-out", str(made / f"{name}.crt"), "-keyout", str(made / f"{name}.key")]
        subprocess.run(line, check=True, capture_output=True)
    encrypt = ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", str(made / "one.key")]
    subprocess.run([*encrypt, "-out", str(made / "encrypted.key")], check=True, capture_output=True)
    (made / "token").write_text("a-token")
    text = (made / "one.crt").read_text().splitlines()
    (made / "damaged.crt").write_text("\n".join([text[0], "AAAA" + text[1][4:], *text[2:]]))
    return made


def test_every_port_is_encrypted(folder: Path, tmp_path: Path) -> None:
    files = ("--certfile", folder / "one.crt", "--keyfile", folder / "one.key", "--token-file", folder / "token")
    with GrpcServer(folder / "models", tmp_path, *files, "--health-port", 0, "--host", "0.0.0.0") as process:
        context = ssl.create_default_context(cafile=str(folder / "one.crt"))
        own = process.url.replace("0.0.0.0", "127.0.0.1")
        assert own.startswith("https://")
        with httpx.Client(verify=context, timeout=60) as client:
            token = {"Authorization": "Bearer a-token"}
            assert client.get(f"{own}/v2/models", headers=token).json()["models"][0]["name"] == "blocks-32"
            assert client.get(f"{own}/v2/models").status_code == 401
            assert process.process.stdout is not None
            health = process.process.stdout.readline().strip()
            assert health.startswith("https://") and health.endswith("/v2/health/ready")
            assert client.get(health.replace("0.0.0.0", "127.0.0.1")).status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(own.replace("https", "http") + "/v2/health/ready", timeout=60)
        trusted = grpc.ssl_channel_credentials((folder / "one.crt").read_bytes())
        with grpc.secure_channel(process.grpc.replace("0.0.0.0", "localhost"), trusted) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
            assert call(b"", timeout=60) == b"\x08\x01"
        assert process.stop() == 0
    assert not any(UNENCRYPTED in line for line in process.banner)


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_token_without_tls(folder: Path, tmp_path: Path, host: str, warned: bool) -> None:
    with ServerProcess(folder / "models", tmp_path, "--token-file", folder / "token", "--host", host) as process:
        assert process.stop() == 0
    assert any(UNENCRYPTED in line and "--certfile" in line for line in process.banner) == warned


def test_files_that_fit(folder: Path) -> None:
    pair = folder / "one.crt", folder / "one.key"
    assert read_certificate(*pair) == Certificate(*pair)
    assert read_certificate(None, None) is None


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("one.crt", None, "give both --certfile and --keyfile"),
        (None, "one.key", "give both --certfile and --keyfile"),
        ("absent.crt", "one.key", r"absent.crt \(--certfile\) cannot be read: No such file"),
        ("models", "one.key", r"models \(--certfile\) cannot be read: Is a directory"),
        ("one.crt", "absent.key", r"absent.key \(--keyfile\) cannot be read"),
        ("one.key", "one.crt", r"one.key \(--certfile\) holds no certificate in PEM form"),
        ("one.crt", "token", r"token \(--keyfile\) holds no private key in PEM form"),
        ("one.crt", "other.key", "other.key does not belong to the certificate"),
        ("one.crt", "encrypted.key", r"encrypted.key \(--keyfile\) is encrypted; give a key without a password"),
        ("damaged.crt", "one.key", "cannot be used for TLS: .*; they may be damaged"),
    ],
)
def test_files_that_do_not(folder: Path, certificate: str | None, key: str | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_certificate(certificate and folder / certificate, key and folder / key)  # type: ignore[arg-type]


def test_a_wrong_key_is_one_sentence(folder: Path) -> None:
    line = [*COMMAND, "--bundles", str(folder / "models"), "--certfile", str(folder / "one.crt")]
    done = subprocess.run([*line, "--keyfile", str(folder / "other.key")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("Error: The key ")
