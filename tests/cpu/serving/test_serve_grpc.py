"""`xbench-fast serve --grpc-port` as a process, asked by an unchanged tritonclient: what HTTP answers, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grpc_server import GrpcServer
from serving_process import COMMAND, film
from synthetic import SIZE, model, prompt_set

for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client", "grpc", "google.protobuf"):
    pytest.importorskip(package)
http = pytest.importorskip("tritonclient.http")
triton = pytest.importorskip("tritonclient.grpc")

NAMES = ["findings", "logits", "logits_negative", "probabilities", "probabilities_pair", "saliency"]
NAMES += ["saliency_full", "mask", "boxes", "overlay", "sizes", "frames"]


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    with GrpcServer(folder / "models", tmp_path_factory.mktemp("grpc"), "--max-body", "2MB") as process:
        yield process
        assert process.stop() == 0
        assert "Traceback" not in process.log.read_text()


@pytest.fixture(scope="module")
def client(server: GrpcServer) -> Iterator[Any]:
    with triton.InferenceServerClient(server.grpc) as made:
        yield made


def tensor(module: Any, name: str, array: Any, datatype: str) -> Any:
    made = module.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def pixels(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 1, SIZE, SIZE), dtype=np.uint8)


def test_tritonclient_finds_its_way(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("blocks-32") and client.is_model_ready("several-32", "1")
    assert not client.is_model_ready("absent") and not client.is_model_ready("blocks-32", "2")
    assert client.get_server_metadata().name == "xbench-fast"
    index = client.get_model_repository_index(as_json=True)["models"]
    assert [(item["name"], item["version"], item["state"]) for item in index] == [
        ("blocks-32", "1", "READY"),
        ("several-32", "1", "READY"),
    ]
    described = client.get_model_metadata("several-32", "1")
    assert list(described.versions) == ["1"] and described.platform == "onnxruntime-cpu"
    shapes = {item.name: (item.datatype, list(item.shape)) for item in described.inputs}
    assert shapes["pixels"] == ("UINT8", [-1, 1, SIZE, SIZE]) and shapes["image"] == ("BYTES", [-1])
    assert {item.name: list(item.shape) for item in described.outputs}["saliency"] == [-1, -1, 4, 4]


@pytest.mark.parametrize("model_name", ["blocks-32", "several-32"])
def test_every_output_equals_https(server: GrpcServer, client: Any, folder: Path, model_name: str) -> None:
    files = np.array([film(folder, 0), film(folder, 1)], object)
    found = []
    for module in (http, triton):
        with module.InferenceServerClient(server.address if module is http else server.grpc) as asked:
            result = asked.infer(
                model_name,
                [
                    tensor(module, "image", files, "BYTES"),
                    tensor(module, "findings", np.array([b"Mass"], object), "BYTES"),
                    tensor(module, "tau", np.array([0.25]), "FP64"),
                ],
                outputs=[module.InferRequestedOutput(name) for name in NAMES],
                parameters={"prompt_set": "coco"},
                request_id="41",
            )
            found.append({name: result.as_numpy(name) for name in NAMES})
    for name in NAMES:
        one, other = (answers[name] for answers in found)
        assert one.dtype == other.dtype and one.shape == other.shape and one.size
        assert one.tobytes() == other.tobytes() if one.dtype != object else one.tolist() == other.tolist()
    answer = result.get_response()
    assert (answer.id, answer.model_name, answer.model_version) == ("41", model_name, "1")
    assert answer.parameters["prompt_set"].string_param == "coco" and answer.parameters["tau"].double_param == 0.25


def test_the_numbers_are_the_models(client: Any) -> None:
    given = pixels(3)
    logits, saliency = model(given, prompt_set().features)
    wanted = [triton.InferRequestedOutput(name) for name in ("logits", "saliency")]
    pending: list[Any] = []
    for _ in range(4):
        client.async_infer(
            "blocks-32",
            [tensor(triton, "pixels", given, "UINT8")],
            lambda result, error: pending.append((result, error)),
            outputs=wanted,
            client_timeout=60,
        )
    result = client.infer("blocks-32", [tensor(triton, "pixels", given, "UINT8")], outputs=wanted)
    np.testing.assert_array_equal(result.as_numpy("logits"), logits)
    np.testing.assert_array_equal(result.as_numpy("saliency"), saliency)
    for _ in range(600):
        if len(pending) == 4:
            break
        time.sleep(0.05)
    assert [error for _, error in pending] == [None] * 4
    assert all(np.array_equal(one.as_numpy("logits"), logits) for one, _ in pending)


def refused(client: Any, *arguments: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(triton.InferenceServerException) as caught:
        client.infer(*arguments, **options)
    return caught.value.status(), caught.value.message()


def test_mistakes_have_a_status_and_a_sentence(client: Any, folder: Path) -> None:
    image = tensor(triton, "image", np.array([b"no image at all"], object), "BYTES")
    good = tensor(triton, "pixels", pixels(1), "UINT8")
    status, words = refused(client, "blocks-32", [image])
    assert status == "StatusCode.INVALID_ARGUMENT" and "Image 0" in words
    status, words = refused(client, "block-32", [good])
    assert status == "StatusCode.NOT_FOUND" and "did you mean 'blocks-32'" in words
    assert refused(client, "blocks-32", [good], model_version="7")[0] == "StatusCode.NOT_FOUND"
    status, words = refused(client, "blocks-32", [tensor(triton, "pixels", pixels(65), "UINT8")])
    assert status == "StatusCode.OUT_OF_RANGE" and "holds 65 images" in words
    for inputs, options, said in (
        ([good], {"outputs": [triton.InferRequestedOutput("logit")]}, "did you mean 'logits'"),
        ([good], {"outputs": [triton.InferRequestedOutput("logits", class_count=2)]}, "Classification"),
        ([good], {"parameters": {"tau": 2}}, "tau is 2"),
        ([good], {"parameters": {"tuu": 2}}, "no parameter 'tuu'"),
        ([good], {"parameters": {"prompt_set": "vindr"}}, "no prompt set 'vindr'"),
        ([tensor(triton, "pixels", pixels(1)[..., :5], "UINT8")], {}, "[N, 1, 32, 32]"),
        ([tensor(triton, "pixel", pixels(1), "UINT8")], {}, "did you mean 'pixels'"),
        ([tensor(triton, "pixels", pixels(1).astype(np.float32), "FP32")], {}, "must be UINT8"),
        ([good, tensor(triton, "findings", np.array([b"\xff"], object), "BYTES")], {}, "not UTF-8"),
    ):
        status, words = refused(client, "blocks-32", inputs, **options)
        assert status == "StatusCode.INVALID_ARGUMENT" and said in words, words
    with pytest.raises(triton.InferenceServerException, match="ModelConfig is not supported") as caught:
        client.get_model_config("blocks-32")
    assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
    with pytest.raises(triton.InferenceServerException) as caught:
        client.get_model_metadata("absent")
    assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_large_messages_are_refused(client: Any) -> None:
    status, words = refused(client, "blocks-32", [tensor(triton, "pixels", pixels(2200), "UINT8")])
    assert status == "StatusCode.RESOURCE_EXHAUSTED" and "2000000" in words


def test_a_token_is_asked_for(folder: Path, tmp_path: Path) -> None:
    token = "correct-horse-battery-staple"
    given = [tensor(triton, "pixels", pixels(1), "UINT8")]
    with GrpcServer(folder / "models", tmp_path, environment={"XBENCH_FAST_TOKEN": token}) as process:
        with triton.InferenceServerClient(process.grpc) as asked:
            assert asked.is_server_live() and asked.is_server_ready()
            for headers in (None, {"authorization": f"Bearer {token}x"}, {"authorization": f"Basic {token}"}):
                status, words = refused(asked, "blocks-32", given, headers=headers)
                assert status == "StatusCode.UNAUTHENTICATED" and "Bearer" in words
            with pytest.raises(triton.InferenceServerException, match="needs a token"):
                asked.get_model_repository_index()
            right = {"authorization": f"Bearer {token}"}
            assert asked.infer("blocks-32", given, headers=right).as_numpy("logits").shape == (1, 3)
        assert process.stop() == 0
        assert token not in process.log.read_text()


def until(process: GrpcServer, images: int, call: Any = None) -> None:
    """Waits until the server has so many images in flight, or `call` is answered."""
    for _ in range(3000):
        with urllib.request.urlopen(process.url + "/metrics", timeout=60) as answer:
            if f'xbench_in_flight_images{{model="blocks-32"}} {images}.0' in answer.read().decode():
                return
        if call is not None and call.done():
            return
        time.sleep(0.01)
    raise AssertionError(f"never were {images} images in flight")


def test_overload_deadlines_and_the_end(folder: Path, tmp_path: Path) -> None:
    import grpc
    from tritonclient.grpc import service_pb2

    options = ("--queue", 3, "--max-delay-ms", 1000, "--max-batch", 8)
    given = pixels(1)
    request = service_pb2.ModelInferRequest(model_name="blocks-32", raw_input_contents=[given.tobytes()])
    request.inputs.add(name="pixels", datatype="UINT8", shape=given.shape)
    data = request.SerializeToString()
    with (
        GrpcServer(folder / "models", tmp_path, "--model", "blocks-32", *options) as process,
        grpc.insecure_channel(process.grpc) as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        pending = [call.future(data, timeout=60) for _ in range(12)]
        codes = [one.code() for one in pending]
        refusals = [one for one in pending if one.code() == grpc.StatusCode.RESOURCE_EXHAUSTED]
        assert codes.count(grpc.StatusCode.OK) >= 3 and len(refusals) + codes.count(grpc.StatusCode.OK) == 12
        for one in refusals:
            assert int(dict(one.trailing_metadata())["retry-after"]) >= 1 and "3 of 3 images" in one.details()
        with pytest.raises(grpc.RpcError) as late:
            call(data, timeout=0.2)
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        request.parameters["timeout"].int64_param = 1000
        with pytest.raises(grpc.RpcError) as late:
            call(request.SerializeToString(), timeout=60)
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED and "0.001 s" in late.value.details()
        until(process, 0)
        last = call.future(data, timeout=60)
        until(process, 1, last)  # it waits a second for others to join its batch
        assert process.stop() == 0
        assert last.code() == grpc.StatusCode.OK
        with pytest.raises(grpc.RpcError) as gone:
            call(data, timeout=20)
        assert gone.value.code() == grpc.StatusCode.UNAVAILABLE


def test_the_log_and_the_counters_hold_no_content(server: GrpcServer, client: Any) -> None:
    client.infer("blocks-32", [tensor(triton, "pixels", pixels(2), "UINT8")], headers={"x-secret": "s3cret"})
    lines = [line for line in server.lines() if line["method"] == "gRPC" and line.get("images") == 2]
    assert lines and lines[-1]["route"] == "/inference.GRPCInferenceService/ModelInfer"
    last = lines[-1]
    assert (last["status"], last["model"], last["client"]) == ("OK", "blocks-32", "127.0.0.1")
    assert (
        last["bytes_in"] > 2 * SIZE * SIZE
        and last["bytes_out"] > 0
        and last["outputs"] == sorted([*NAMES[:2], NAMES[3]])
    )
    assert "s3cret" not in server.log.read_text() and json.dumps(last)
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
        values = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    assert float(values['xbench_grpc_calls_total{code="OK"}']) >= 1


def test_both_transports_share_what_is_kept(server: GrpcServer, client: Any) -> None:
    def hits() -> float:
        with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("xbench_cache_hits_total"))

    image = tensor(http, "pixels", pixels(1, seed=77), "UINT8")
    with http.InferenceServerClient(server.address) as asked:
        first = asked.infer("several-32", [image], parameters={"prompt_set": "coco"})
    before = hits()
    image = tensor(triton, "pixels", pixels(1, seed=77), "UINT8")
    second = client.infer("several-32", [image], parameters={"prompt_set": "other"})
    assert hits() == before + 1 and first.as_numpy("logits").shape == second.as_numpy("logits").shape


def test_the_port_is_not_shared(server: GrpcServer, folder: Path, tmp_path: Path) -> None:
    """gRPC lets a second server take the same port unless it is told not to."""
    port = server.grpc.rpartition(":")[2]
    line = [*COMMAND, "--bundles", str(folder / "models"), "--port", "0", "--grpc-port", port]
    done = subprocess.run(
        [*line, "--engine", "onnxruntime-cpu"], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert done.returncode == 1 and "cannot be used for gRPC" in done.stderr and "Traceback" not in done.stderr
