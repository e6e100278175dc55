"""Micro-batches and the limit on accepted images, with an engine whose pace the test decides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from synthetic import SIZE, model, prompt_set
from xbench_fast.engines.base import Scores
from xbench_fast.engines.errors import EngineError
from xbench_fast.runtime.serving.prometheus_metrics import Metrics
from xbench_fast.runtime.serving.protocol.request_errors import Draining, Overloaded, TooLarge
from xbench_fast.runtime.serving.queue.model_queue import ModelQueue
from xbench_fast.runtime.serving.settings import ServiceSettings

pytest.importorskip("prometheus_client")

COCO, SEVERAL = prompt_set(), prompt_set(several=True)


class Engine:
    """Runs the model of `synthetic`; while `gate` is closed, a call waits. An image of 255 only is refused."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.calls: list[tuple[int, int]] = []

    def __call__(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        self.calls.append((len(pixels), len(text)))
        self.entered.set()
        assert self.gate.wait(20)
        if (pixels == 255).all(axis=(1, 2, 3)).any():
            raise EngineError("an image is all white")
        return Scores(*model(pixels, text))


def run(test: Callable[[Engine, ModelQueue], Awaitable[Any]], *, max_batch: int = 4, max_delay: float = 0.0) -> Engine:
    engine = Engine()

    async def body() -> None:
        queue = ModelQueue("kad", engine, ServiceSettings(max_batch, max_delay), Metrics())
        await queue.start(images(1, 99), COCO)
        engine.calls.clear()
        engine.entered.clear()
        try:
            await asyncio.wait_for(test(engine, queue), 30)
        finally:
            engine.gate.set()
            await queue.close()

    asyncio.run(body())
    return engine


def images(count: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 250, (count, 1, SIZE, SIZE), dtype=np.uint8)


async def entered(engine: Engine) -> None:
    """Returns when the engine is in a call, which waits for its gate."""
    while not engine.entered.is_set():
        await asyncio.sleep(0.001)


def same(scores: Scores, pixels: NDArray[np.uint8], prompts: Any) -> None:
    logits, saliency = model(pixels, prompts.features)
    np.testing.assert_array_equal(scores.logits, logits)
    np.testing.assert_array_equal(scores.saliency, saliency)


def test_what_waits_while_the_engine_works_becomes_one_batch() -> None:
    async def test(engine: Engine, queue: ModelQueue) -> None:
        engine.gate.clear()
        first = asyncio.create_task(queue.submit(images(1), COCO))
        await entered(engine)
        others = [asyncio.create_task(queue.submit(images(1, seed), COCO)) for seed in range(1, 7)]
        await asyncio.sleep(0)
        assert queue.waiting == 6
        engine.gate.set()
        same(await first, images(1), COCO)
        for seed, task in enumerate(others, 1):
            same(await task, images(1, seed), COCO)

    assert run(test).calls == [(1, 3), (4, 3), (2, 3)]


def test_prompt_sets_are_not_mixed_and_the_oldest_goes_first() -> None:
    async def test(engine: Engine, queue: ModelQueue) -> None:
        engine.gate.clear()
        tasks = [asyncio.create_task(queue.submit(images(1), COCO))]
        await entered(engine)
        order = [SEVERAL, COCO, SEVERAL, COCO]
        for seed, prompts in enumerate(order):
            tasks.append(asyncio.create_task(queue.submit(images(1, seed), prompts)))
            await asyncio.sleep(0.002)
        engine.gate.set()
        await tasks[0]
        for seed, (prompts, task) in enumerate(zip(order, tasks[1:], strict=True)):
            same(await task, images(1, seed), prompts)

    assert run(test).calls == [(1, 3), (2, 6), (2, 3)]


def test_a_full_batch_does_not_wait_for_the_delay() -> None:
    async def test(engine: Engine, queue: ModelQueue) -> None:
        same(await queue.submit(images(4), COCO), images(4), COCO)
        closing = asyncio.create_task(queue.submit(images(2), COCO))
        await asyncio.sleep(0)
        await queue.close()
        same(await closing, images(2), COCO)
        with pytest.raises(Draining), queue.accept(1):
            pytest.fail("accepted")

    # With a delay of an hour only a full batch, or closing, lets the engine start.
    assert run(test, max_delay=3600).calls == [(4, 3), (2, 3)]


def test_the_delay_lets_others_join() -> None:
    async def test(engine: Engine, queue: ModelQueue) -> None:
        first = asyncio.create_task(queue.submit(images(1), COCO))
        await asyncio.sleep(0.01)
        assert not engine.calls
        second = asyncio.create_task(queue.submit(images(3, 1), COCO))
        same(await first, images(1), COCO)
        same(await second, images(3, 1), COCO)

    assert run(test, max_delay=3600).calls == [(4, 3)]


def test_an_image_the_engine_refuses_does_not_harm_its_neighbours() -> None:
    async def test(engine: Engine, queue: ModelQueue) -> None:
        engine.gate.clear()
        first = asyncio.create_task(queue.submit(images(1), COCO))
        await entered(engine)
        white = np.full((1, 1, SIZE, SIZE), 255, np.uint8)
        bad = asyncio.create_task(queue.submit(white, COCO))
        good = asyncio.create_task(queue.submit(images(2, 3), COCO))
        await asyncio.sleep(0)
        engine.gate.set()
        await first
        with pytest.raises(EngineError, match="all white"):
            await bad
        same(await good, images(2, 3), COCO)
        same(await queue.submit(images(1, 9), COCO), images(1, 9), COCO)

    run(test)


def test_who_is_cancelled_leaves_the_queue() -> None:
    async def test(engine: Engine, queue: ModelQueue) -> None:
        engine.gate.clear()
        first = asyncio.create_task(queue.submit(images(1), COCO))
        await entered(engine)
        gone = asyncio.create_task(queue.submit(images(3), SEVERAL))
        kept = asyncio.create_task(queue.submit(images(1, 5), COCO))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        engine.gate.set()
        await first
        same(await kept, images(1, 5), COCO)
        assert queue.waiting == 0

    assert run(test).calls == [(1, 3), (1, 3)]


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=20)
def test_everyone_gets_their_own_scores(jobs: list[tuple[int, bool, bool]]) -> None:
    async def test(engine: Engine, queue: ModelQueue) -> None:
        tasks = []
        for seed, (count, several, pause) in enumerate(jobs):
            prompts = SEVERAL if several else COCO
            tasks.append(asyncio.create_task(queue.submit(images(count, seed), prompts)))
            if pause:
                await asyncio.sleep(0)
        for seed, (task, (count, several, _)) in enumerate(zip(tasks, jobs, strict=True)):
            same(await task, images(count, seed), SEVERAL if several else COCO)

    calls = run(test).calls
    assert sum(size for size, _ in calls) == sum(count for count, _, _ in jobs)
    assert max(size for size, _ in calls) <= 4


def test_a_request_is_refused_at_once_and_as_a_whole() -> None:
    async def test() -> None:
        queue = ModelQueue("kad", Engine(), ServiceSettings(queue=4), Metrics())
        queue._note(2, 8.0)
        with queue.accept(3):
            with pytest.raises(Overloaded, match="3 of 4 images") as error, queue.accept(2):
                pytest.fail("accepted")
            assert error.value.retry_after == 12 and queue.accepted == 3
            with queue.accept(1):
                assert queue.accepted == 4
            with pytest.raises(TooLarge), queue.accept(5):
                pytest.fail("accepted")
            closing = asyncio.create_task(queue.close())
            await asyncio.sleep(0)
            with pytest.raises(Draining), queue.accept(1):
                pytest.fail("accepted")
            assert not closing.done()
        await asyncio.wait_for(closing, 5)
        assert queue.accepted == 0

    asyncio.run(test())


def test_an_error_inside_gives_the_room_back() -> None:
    queue = ModelQueue("kad", Engine(), ServiceSettings(queue=2), Metrics())
    with pytest.raises(RuntimeError), queue.accept(2):
        raise RuntimeError
    assert queue.accepted == 0 and queue.retry_after == 1
