"""Benchmarks of the engine alone: offline (images per second) and single stream (time of one image)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.backends.device import SLOTS, DeviceEngine
from ...engines.backends.gpu import load_cupy
from ...engines.backends.ort_session import CPU_PROVIDER
from ...engines.base import Engine
from ...engines.errors import EngineError, XBenchError
from .ceilings import Ceilings, gpu_errors
from .cost_estimate import image_macs
from .inputs import random_pixels, random_text
from .measurement import Limit, Measurement
from .oracle import check_scores, oracle_scores
from .plan import Plan
from .timing import timed

_CHECKED = 4
_CALLS = 20  # per repeat of the single stream: percentiles over five repeats then use 100 calls


@dataclass(frozen=True)
class Subject:
    """An open engine, its text features, and facts about it: `problems` make all its measurements invalid."""

    engine: Engine
    text: NDArray[np.float32]
    problems: tuple[str, ...] = ()
    macs: int | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.engine.bundle.name

    @property
    def runner(self) -> str:
        info = self.engine.info
        return f"{info.backend} {info.precision} ({info.detail})"

    @staticmethod
    def of(engine: Engine, plan: Plan) -> Subject:
        """Checks the engine against onnxruntime-cpu on new random inputs, and counts its operations per image."""
        rng = np.random.default_rng([plan.seed, 3])
        text = random_text(engine.bundle, rng)
        problems = [reason for reason in (_fallback(engine), _checked(engine, text, rng)) if reason]
        macs, notes = None, []
        try:
            macs = image_macs(engine.bundle, text)
        except XBenchError as error:
            notes.append(str(error))
        return Subject(engine, text, tuple(problems), macs, tuple(notes))

    def limit(self, ceilings: Ceilings | None) -> Limit | None:
        """Images per second if nothing but the multiply-accumulates of the graph took time."""
        info = self.engine.info
        if ceilings is None or info.precision == "int8":  # products of bytes are not among the ceilings
            return None
        precision = "fp32" if ceilings.device == "cpu" else info.precision.replace("tf32", "fp32")
        product = ceilings.products.get(precision)
        if self.macs is None or product is None:
            return None
        return Limit(f"{precision} matrix product over {self.macs / 1e9:.4g} G MACs an image", product / self.macs)


def offline(subject: Subject, plan: Plan, ceilings: Ceilings | None, batch: int) -> Measurement:
    """Batches that are already in the engine's memory, as fast as possible."""
    run, batch, notes = _runner(subject, plan, batch)
    calls = max(1, plan.images // batch)
    seconds = timed(lambda repeat: run(calls), plan.repeats, plan.seconds)
    return Measurement(
        "offline",
        subject.name,
        subject.runner,
        batch,
        {"images": calls * batch},
        seconds,
        subject.limit(ceilings),
        problems=subject.problems,
        notes=(*subject.notes, *notes),
    )


def single_stream(subject: Subject, plan: Plan, ceilings: Ceilings | None) -> Measurement:
    """One image at a time, each copied to the engine and its scores back."""
    pixels = random_pixels(subject.engine.bundle, SLOTS + 1, np.random.default_rng([plan.seed, 4]))
    latencies: list[float] = []

    def work(repeat: int) -> None:
        for call in range(_CALLS):
            start = time.perf_counter()
            at = call % len(pixels)
            subject.engine.run(pixels[at : at + 1], subject.text)
            if repeat >= 0:
                latencies.append(time.perf_counter() - start)

    seconds = timed(work, plan.repeats, plan.seconds)
    return Measurement(
        "single-stream",
        subject.name,
        subject.runner,
        1,
        {"images": _CALLS},
        seconds,
        subject.limit(ceilings),
        latencies=latencies,
        problems=subject.problems,
        notes=subject.notes,
    )


def _runner(subject: Subject, plan: Plan, batch: int) -> tuple[Callable[[int], None], int, list[str]]:
    """A function that runs a number of batches and waits for them, the actual batch size, and notes."""
    engine, text = subject.engine, subject.text
    rng = np.random.default_rng([plan.seed, 5])
    if not isinstance(engine, DeviceEngine):
        pixels = random_pixels(engine.bundle, batch, rng)

        def on_host(calls: int) -> None:
            for _ in range(calls):
                engine.run(pixels, text)

        odd = ["pixels and scores are copied in every call"] if engine.info.device != "cpu" else []
        return on_host, batch, odd
    return _on_device(engine, text, batch, rng)


def _on_device(
    engine: DeviceEngine, text: NDArray[np.float32], batch: int, rng: np.random.Generator
) -> tuple[Callable[[int], None], int, list[str]]:
    given, cupy, what = random_pixels(engine.bundle, batch, rng), load_cupy(), f"Measuring {engine.bundle.name}"
    with gpu_errors(cupy, what), engine.device:
        first = engine.submit(given, text, 0)  # allocates, and halves the batch if memory is short
        taken = min(batch, len(first.logits))
        buffers: list[Any] = [engine.input(slot, len(text))[:taken] for slot in range(SLOTS)]
        for buffer in buffers:
            buffer.set(np.ascontiguousarray(given[:taken]), stream=engine.stream)
        engine.stream.synchronize()

    def on_device(calls: int) -> None:
        with gpu_errors(cupy, what), engine.device:
            for call in range(calls):
                engine.submit(buffers[call % SLOTS], text, call % SLOTS)
            engine.stream.synchronize()

    odd = [f"batches of {taken}, as {batch} did not fit"] if taken < batch else []
    return on_device, taken, odd


def _checked(engine: Engine, text: NDArray[np.float32], rng: np.random.Generator) -> str | None:
    pixels = random_pixels(engine.bundle, _CHECKED, rng)
    try:
        scores = engine.run(pixels, text)
        precision = engine.info.precision
        return check_scores(scores, oracle_scores(engine.bundle, pixels, text), precision)
    except EngineError as error:
        return str(error)


def _fallback(engine: Engine) -> str | None:
    """A sentence if an engine for a GPU runs on the CPU, else None."""
    info = engine.info
    if info.backend == "onnxruntime-cpu" or info.device.startswith("cuda"):
        return None
    session = getattr(engine, "_session", None)
    used = session.get_providers()[0] if session is not None and hasattr(session, "get_providers") else info.device
    return None if used not in (CPU_PROVIDER, "cpu") else f"{info.backend} runs on the CPU instead of a GPU"
