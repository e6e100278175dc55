"""The service without a transport: own prompts through the text graph, limits, and an engine that fails."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SIZE, BlockEngine, make_bundle, model, prompt_set
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import ConfigError
from xbench_fast.engines.prompts.prompt_encoding import prompt_encoder
from xbench_fast.engines.prompts.prompt_files import FindingPrompts
from xbench_fast.engines.select import open_engine
from xbench_fast.runtime.serving.inference.served_models import Catalogue
from xbench_fast.runtime.serving.inference.service import Service
from xbench_fast.runtime.serving.protocol.interface import OUTPUTS
from xbench_fast.runtime.serving.protocol.request_errors import (
    BadRequest,
    DeadlineExceeded,
    Draining,
    Internal,
    NotFound,
    Overloaded,
    RequestError,
)
from xbench_fast.runtime.serving.protocol.requests import Request
from xbench_fast.runtime.serving.settings import HttpSettings, ServiceSettings

pytest.importorskip("prometheus_client")

PIXELS = np.random.default_rng(3).integers(0, 250, (2, 1, SIZE, SIZE), dtype=np.uint8)
REQUEST = Request("blocks-32", pixels=PIXELS)


def serve(
    bundles: list[Path], test: Callable[[Service], Awaitable[None]], *, real: bool = False, **settings: Any
) -> None:
    from xbench_fast.runtime.serving.prometheus_metrics import Metrics

    def open_block(bundle: Bundle, name: str, **how: Any) -> BlockEngine:
        return BlockEngine(bundle, **how)

    async def body() -> None:
        with Catalogue(bundles, engine="onnxruntime-cpu", threads=1, open_engine=None if real else open_block) as open_:
            async with Service(open_, ServiceSettings(**settings), Metrics()) as service:
                await asyncio.wait_for(test(service), 100)

    asyncio.run(body())


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "blocks-32", several=True, sets=("coco", "other")).path


def engine(service: Service) -> BlockEngine:
    found = service.catalogue.get("blocks-32").engine
    assert isinstance(found, BlockEngine)
    return found


def test_own_prompts_are_a_set_of_their_own(kad_demo: Any) -> None:
    """The answer is what the engine gives for the features the text graph gives, and is encoded once."""
    bundle = Bundle.load(kad_demo.folder)
    own = (
        FindingPrompts("Rib fracture", ("a broken rib", "fracture of a rib")),
        FindingPrompts("Mass", ("a mass",), ("no mass",)),
    )
    size = bundle.manifest.geometry.size
    pixels = np.random.default_rng(1).integers(0, 256, (2, 1, size, size), dtype=np.uint8)
    (features,) = prompt_encoder(bundle, threads=1)({"own": own})
    with open_engine(bundle, "onnxruntime-cpu", threads=1) as opened:
        scores = opened.run(pixels, features.features)

    async def test(service: Service) -> None:
        request = Request(bundle.name, pixels=pixels, prompts=own, outputs=frozenset({"logits", "logits_negative"}))
        one, other = await asyncio.gather(service.infer(request), service.infer(request))
        for answer in (one, other):
            assert answer.prompt_set == "own" and answer.findings == ("Rib fracture", "Mass")
            expected = scores.logits[:, :2].mean(axis=1, dtype=np.float64).astype(np.float32)
            np.testing.assert_array_equal(answer.outputs["logits"][:, 0], expected)
            np.testing.assert_array_equal(answer.outputs["logits"][:, 1], scores.logits[:, 2])
            np.testing.assert_array_equal(answer.outputs["logits_negative"][:, 1], scores.logits[:, 3])
            assert np.isnan(answer.outputs["logits_negative"][:, 0]).all()
        assert len(service.catalogue.get(bundle.name).own_prompts) == 1
        chosen = await service.infer(dataclasses.replace(request, findings=("Mass",)))
        np.testing.assert_array_equal(chosen.outputs["logits"], one.outputs["logits"][:, 1:])
        for number in range(70):
            text = (FindingPrompts("Mass", (f"a mass of {number} mm",)),)
            await service.infer(dataclasses.replace(request, prompts=text))
        assert len(service.catalogue.get(bundle.name).own_prompts) == 64
        name, prompts = next(iter(service.catalogue.get(bundle.name).prompt_sets.items()))
        stored = await service.infer(Request(bundle.name, pixels=pixels, prompt_set=name))
        entries = tuple(
            FindingPrompts(finding, tuple(np.array(prompts.texts)[(prompts.finding_of == n) & (prompts.polarity > 0)]))
            for n, finding in enumerate(prompts.findings)
        )
        if (prompts.polarity > 0).all():
            again = await service.infer(Request(bundle.name, pixels=pixels, prompts=entries))
            np.testing.assert_allclose(again.outputs["logits"], stored.outputs["logits"], rtol=1e-4, atol=1e-4)

    serve([kad_demo.folder], test, real=True)


def test_every_output_and_no_other(blocks: Path) -> None:
    """All but DICOM objects, which pixels cannot have: tests/cpu/dicom_out has those."""
    outputs = {name: spec for name, spec in OUTPUTS.items() if name != "dicom"}

    async def test(service: Service) -> None:
        whole = await service.infer(dataclasses.replace(REQUEST, outputs=frozenset(outputs)))
        assert list(whole.outputs) == list(outputs)
        logits, saliency = model(PIXELS, prompt_set(several=True).features)
        np.testing.assert_array_equal(whole.outputs["logits"][:, 2], logits[:, 5])
        mean = logits[:, :2].mean(axis=1, dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(whole.outputs["logits"][:, 0], mean)
        np.testing.assert_array_equal(whole.outputs["saliency"][:, 1], saliency[:, 3])
        difference = np.float64(whole.outputs["logits"]) - whole.outputs["logits_negative"]
        np.testing.assert_allclose(whole.outputs["probabilities_pair"], 1 / (1 + np.exp(-difference)), rtol=1e-12)
        for name, spec in outputs.items():
            sizes = {"N": 2, "F": 3, "h": 4, "w": 4, "K": len(whole.outputs["boxes"])}
            assert whole.outputs[name].shape == tuple(sizes.get(str(n), n) for n in spec.shape), name
        for name in outputs:
            alone = await service.infer(dataclasses.replace(REQUEST, outputs=frozenset({name})))
            assert list(alone.outputs) == [name]
            np.testing.assert_array_equal(alone.outputs[name], whole.outputs[name])

    serve([blocks], test)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"model": "absent"}, NotFound, "no model 'absent'"),
        ({"pixels": None}, BadRequest, "either 'image' or 'pixels'"),
        ({"images": (b"x",)}, BadRequest, "either 'image' or 'pixels'"),
        ({"pixels": PIXELS[:, 0]}, BadRequest, "takes 'pixels'"),
        ({"findings": ()}, BadRequest, "'findings' is empty"),
        ({"findings": ("Mass", "Mass")}, BadRequest, "duplicate finding"),
        ({"findings": ("mass",)}, BadRequest, "did you mean 'Mass'"),
        ({"prompt_set": "x"}, BadRequest, "no prompt set 'x'"),
        ({"prompt_set": "coco", "prompts": (FindingPrompts("A", ("a",)),)}, BadRequest, "not both"),
        ({"prompts": (FindingPrompts("A", ("a",)),)}, BadRequest, "no text graph"),
        ({"prompts": (FindingPrompts("A", ("a",) * 300),)}, BadRequest, "may hold 256 texts"),
        ({"prompts": (FindingPrompts("A", ("a" * 9000,)),)}, BadRequest, "8192 characters"),
        ({"outputs": frozenset({"x"})}, BadRequest, "no output 'x'"),
        ({"outputs": frozenset()}, BadRequest, "no output"),
        ({"tau": float("nan")}, BadRequest, "tau is nan"),
        ({"timeout": -1.0}, BadRequest, "timeout"),
    ],
)
def test_what_is_refused(blocks: Path, change: dict[str, Any], kind: type[RequestError], words: str) -> None:
    async def test(service: Service) -> None:
        with pytest.raises(kind, match=words):
            await service.infer(dataclasses.replace(REQUEST, **change))
        assert (await service.infer(REQUEST)).outputs

    serve([blocks], test)


def test_an_answer_too_large_is_refused_before_it_is_computed(blocks: Path) -> None:
    async def test(service: Service) -> None:
        before = len(engine(service).calls)
        many = np.zeros((500, 1, SIZE, SIZE), np.uint8)
        with pytest.raises(BadRequest, match="about 287 MiB"):
            await service.infer(dataclasses.replace(REQUEST, pixels=many, outputs=frozenset({"saliency_full"})))
        assert len(engine(service).calls) == before

    serve([blocks], test, queue=500)


def test_a_request_waits_no_longer_than_it_wants(blocks: Path) -> None:
    async def test(service: Service) -> None:
        with pytest.raises(DeadlineExceeded, match=r"within 0\.05 s"):
            await service.infer(dataclasses.replace(REQUEST, timeout=0.05))
        with pytest.raises(DeadlineExceeded, match=r"within 0\.2 s"):
            await service.infer(dataclasses.replace(REQUEST, timeout=1000.0))

    serve([blocks], test, max_delay=0.5, timeout=0.2)


def test_an_engine_that_fails_is_told_apart_from_a_bad_request(blocks: Path) -> None:
    async def test(service: Service) -> None:
        failing = engine(service)
        failing.fail_after, failing.error = 0, RuntimeError("secret detail")
        with pytest.raises(Internal, match="its log says more"):
            await service.infer(REQUEST)
        failing.error = None
        assert (await service.infer(REQUEST)).findings == ("Mass", "Effusion", "Unicorn")
        text = service.metrics.render()[0].decode()
        assert 'xbench_requests_total{code="INTERNAL",model="blocks-32"} 1.0' in text
        assert 'xbench_requests_total{code="OK",model="blocks-32"} 1.0' in text

    serve([blocks], test)


def test_the_room_is_for_accepted_requests_and_draining_answers_them(blocks: Path) -> None:
    async def test(service: Service) -> None:
        asked = [asyncio.create_task(service.infer(REQUEST)) for _ in range(5)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            service.check_room("blocks-32")
        draining = asyncio.create_task(service.close())
        await asyncio.sleep(0)
        assert not service.ready
        with pytest.raises(Draining):
            await service.infer(REQUEST)
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["Answer"] * 2 + ["Overloaded"] * 3
        await draining

    serve([blocks], test, queue=4, max_delay=0.3)


def test_who_gave_up_leaves_nothing_behind(blocks: Path) -> None:
    """An image that waits for a thread is dropped when its request is over, whoever holds the threads."""

    class Image:
        """Something that tells when it is gone."""

    async def test(service: Service) -> None:
        hold = threading.Event()
        try:
            busy = [asyncio.create_task(service.work(hold.wait, short=False)) for _ in range(2)]
            await asyncio.sleep(0.05)
            image = Image()
            kept = weakref.ref(image)
            waiting = asyncio.create_task(service.work(partial(id, image), short=False))
            del image
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.wait([waiting])
            del waiting
            gc.collect()
            assert kept() is None
            busy[0].cancel()  # its thread goes on, and is free again when it is through
            await asyncio.wait([busy[0]])
        finally:
            hold.set()
        await asyncio.gather(*(service.work(partial(time.sleep, 0), short=False) for _ in range(9)), busy[1])

    serve([blocks], test, workers=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_batch", 0), ("max_delay", float("nan")), ("queue", 0), ("timeout", float("inf")), ("workers", 0)],
)
def test_settings_that_no_server_can_run_with(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value:g}"):
        ServiceSettings(**{name: value})


def test_a_fault_while_answering_is_told_and_logged(
    blocks: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    httpx = pytest.importorskip("httpx")
    from xbench_fast.runtime.serving.access_log import AccessLog
    from xbench_fast.runtime.serving.http import infer
    from xbench_fast.runtime.serving.http.http_app import create_app

    def broken(*_: Any) -> Any:
        raise RuntimeError("secret detail")

    pixels = {"name": "pixels", "datatype": "UINT8", "shape": [1, 1, SIZE, SIZE], "data": [0] * SIZE * SIZE}

    async def test(service: Service) -> None:
        app = create_app(service, HttpSettings(), AccessLog(enabled=False))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            with monkeypatch.context() as patch:
                patch.setattr(infer, "encode_infer", broken)
                told = await client.post("/v2/models/blocks-32/infer", json={"inputs": [pixels]})
            assert told.status_code == 500 and told.json()["code"] == "INTERNAL" and "secret" not in told.text
            again = await client.post("/v2/models/blocks-32/infer", json={"inputs": [pixels]})
            assert again.status_code == 200

    serve([blocks], test)
    assert "secret detail" in caplog.text


def test_the_set_that_answers_by_default(blocks: Path, tmp_path: Path) -> None:
    with Catalogue([blocks], open_engine=lambda bundle, name, **how: BlockEngine(bundle), default_set="other") as found:
        assert found.get("blocks-32").default_set == "other"
    with (
        pytest.raises(ConfigError, match="no prompt set 'othr': did you mean 'other'"),
        Catalogue([blocks], open_engine=lambda bundle, name, **how: BlockEngine(bundle), default_set="othr"),
    ):
        pytest.fail("opened")
    assert not found.models
