"""Compares the exported graphs with the model they came from, on the same inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engines.backends.ort_session import CPU_PROVIDER, open_session
from ...engines.backends.rounding import with_rounding
from ...engines.errors import ConfigError, EngineError, ExportError
from ..machine import threads_to_use
from .checks import Floats, ParityReport, Place, TensorCheck, compare
from .probes import BATCHES, LONG_TEXT, PICTURES, PROBE_TEXTS, arrangements, probe_images

if TYPE_CHECKING:
    from ...engines.tokenizing import TokenBatch, Tokenizer
    from ..adapter import Adapter

Scores = dict[str, Floats]
OUTPUTS = ("logits", "saliency")
_SECONDS_BETWEEN_LINES = 10.0
_EAGER_SLICE = 2  # images per call of the model; keeps the reference's memory small at 512 and 1024 pixels


def check_parity(
    adapter: Adapter,
    tokenizer: Tokenizer | None,
    folder: Path,
    sets: Mapping[str, Floats],
    *,
    batches: Sequence[int] = BATCHES,
    say: Callable[[str], None] = lambda line: None,
) -> ParityReport:
    """Compares image.onnx and, with a `tokenizer`, text.onnx in `folder` with `adapter`, on the CPU in float32.

    Every output of every slot is compared: all `batches` with a probe picture in each slot, 1, 2 and 22 findings and
    each of `sets` (text features [Q, D...]; of sets with the same queries one), texts one by one, together and
    padded. say: called with a line on the progress every ten seconds. Returns the report, which is false when a check
    fails. Raises ExportError when a graph cannot run.
    """
    import torch

    threads = threads_to_use()
    conditions = {
        "reference": f"torch {torch.__version__}, eager, CPU, float32, {torch.get_num_threads()} threads",
        "engine": engine_name(threads),
    }
    report = ParityReport(conditions)
    if tokenizer is None:
        queries = finding_queries(adapter.findings)
    else:
        features = _eager_text(adapter, tokenizer(PROBE_TEXTS))
        report.checks += _text_checks(adapter, tokenizer, features, Session(folder / "text.onnx", threads))
        queries = queries_of(features, adapter.texts_per_query)
    # With a book of sentences every set has the same queries, in another order: one of them is enough.
    distinct = {(features.shape, tuple(sorted(map(bytes, features)))): features for features in sets.values()}
    runs = [([0, 1], queries[:1]), ([0, 1], queries[:2]), ([0], queries[:1])]
    runs += [([number % PICTURES], text) for number, text in enumerate(distinct.values())]
    in_batches = sum(size * len([*arrangements(size, PICTURES)]) for size in batches)
    progress = Countdown(PICTURES + in_batches + 2 * sum(len(order) for order, _ in runs), say)
    trial = _ImageTrial(adapter, Session(folder / "image.onnx", threads), queries, progress)
    report.checks += trial.batches(batches)
    for order, text in runs:
        report.checks += trial.run(order, text)
    return report


def engine_name(threads: int) -> str:
    """ONNX Runtime on the CPU, as reports name it."""
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}, CPU, {threads} threads"


class Countdown:
    """Counts pictures that a model or a graph has run, of `total`, and says at most every ten seconds how many are
    left."""

    def __init__(self, total: int, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._say, self._clock = total, say, clock
        self._done, self._start = 0, clock()
        self._last = self._start

    def add(self, count: int) -> None:
        """Counts further pictures."""
        self._done += count
        now = self._clock()
        if now - self._last >= _SECONDS_BETWEEN_LINES and self._done < self._total:
            self._last = now
            left = (now - self._start) / self._done * (self._total - self._done)
            self._say(f"parity: {self._done} of {self._total} pictures compared, {left:.0f} s to go")


class Session:
    """ONNX Runtime on the CPU with fixed threads; memory is released after each run.

    With `rounding` every result is rounded to the type the graph states (engines.backends.rounding).
    """

    def __init__(self, path: Path, threads: int, *, rounding: bool = False) -> None:
        self._file = path.name
        try:
            self._session = open_session(
                with_rounding(path) if rounding else path, [CPU_PROVIDER], threads, arena=False
            )
        except EngineError as error:
            raise ExportError(f"ONNX Runtime cannot run the exported {self._file}: {error}") from error

    def run(self, names: Sequence[str], inputs: Mapping[str, NDArray[Any]]) -> list[Floats]:
        """The outputs `names`. Raises ExportError."""
        try:
            outputs: list[Floats] = self._session.run(list(names), dict(inputs))
        except Exception as error:  # the library's own classes share no base but Exception
            raise ExportError(f"ONNX Runtime cannot run the exported {self._file}: {error}") from error
        return outputs


class _ImageTrial:
    """Runs the probe pictures through model and graph. `text` are the features [22, D...] of the batches."""

    def __init__(self, adapter: Adapter, session: Session, text: Floats, progress: Countdown) -> None:
        from ..onnx_graph import ImageGraph

        self._progress = progress

        self._model = ImageGraph(adapter).eval()
        self._session = session
        self._images = probe_images(adapter.geometry.size)
        self._text = text
        self._reference = self._eager(text, range(len(self._images)))
        logits = np.nan_to_num([scores["logits"] for scores in self._reference.values()])
        self._scale = {"logits": float(np.abs(logits).max()), "saliency": 0.0}

    def batches(self, sizes: Sequence[int]) -> Iterator[TensorCheck]:
        """Compares every slot with the model, and the probe's results in all slots of all batches with each other."""
        probe: dict[str, Floats] = {}
        for size in sizes:
            for order in arrangements(size, len(self._images)):
                outputs = self._graph(order, self._text)
                yield from self._slots(order, self._text, outputs, self._reference)
                for slot, number in enumerate(order):
                    if number != 0:
                        continue
                    if probe:
                        position = Place("same picture, first run", size, slot, len(self._text))
                        yield from self._compare(position, outputs, probe)
                    probe = probe or {name: _row(output, slot) for name, output in outputs.items()}

    def run(self, order: Sequence[int], text: Floats) -> Iterator[TensorCheck]:
        """One batch with other text features [Q, D...]."""
        yield from self._slots(order, text, self._graph(order, text), self._eager(text, order))

    def _slots(
        self, order: Sequence[int], text: Floats, outputs: Scores, reference: Mapping[int, Scores]
    ) -> Iterator[TensorCheck]:
        for slot, number in enumerate(order):
            yield from self._compare(Place("model", len(order), slot, len(text)), outputs, reference[number])

    def _compare(self, position: Place, outputs: Scores, wanted: Scores) -> Iterator[TensorCheck]:
        for name in OUTPUTS:
            got = _row(outputs[name], position.slot or 0)
            yield compare(name, position, got, wanted[name], full_scale=self._scale[name])

    def _graph(self, order: Sequence[int], text: Floats) -> Scores:
        outputs = self._session.run(OUTPUTS, {"pixels": self._images[list(order)], "text": text})
        self._progress.add(len(order))
        return dict(zip(OUTPUTS, outputs, strict=True))

    def _eager(self, text: Floats, pictures: Sequence[int]) -> dict[int, Scores]:
        """Picture number -> logits [Q] and saliency [Q, h, w] of the model, for each of `pictures`."""
        import torch

        wanted = sorted(set(pictures))
        scores: dict[int, Scores] = {}
        with torch.inference_mode():
            for start in range(0, len(wanted), _EAGER_SLICE):
                part = wanted[start : start + _EAGER_SLICE]
                logits, saliency = self._model(torch.from_numpy(self._images[part]), torch.from_numpy(text))
                for row, number in enumerate(part):
                    scores[number] = {"logits": logits[row].numpy().copy(), "saliency": saliency[row].numpy().copy()}
                self._progress.add(len(part))
        return scores


def _row(output: Floats, slot: int) -> Floats:
    """One image's part of an output; empty (and so different from any reference) when the output batch is too short."""
    return output[slot] if slot < len(output) else np.zeros(0, np.float32)


def _eager_text(adapter: Adapter, batch: TokenBatch) -> Floats:
    import torch

    with torch.inference_mode():
        mask = batch.mask_for(adapter.text_inputs)
        tensor = None if mask is None else torch.from_numpy(mask)
        features: Floats = adapter.encode_text(torch.from_numpy(batch.ids), tensor).numpy().copy()
    return features


def finding_queries(findings: Sequence[str]) -> Floats:
    """The text features [22, F] of 22 queries of a supervised model: its findings, again and again."""
    count = len(findings)
    return np.eye(count, dtype=np.float32)[np.arange(len(PROBE_TEXTS)) % count]


def queries_of(features: Floats, per_query: int) -> Floats:
    """Features [22, D...] of single texts -> of 22 queries; a query of several texts has those from its number on."""
    if per_query == 1:
        return features
    count = len(features)
    queries: Floats = features[(np.arange(count)[:, None] + np.arange(per_query)) % count]
    return queries


def _text_checks(adapter: Adapter, tokenizer: Tokenizer, reference: Floats, session: Session) -> list[TensorCheck]:
    """1, 2, 3 and all texts, at their own width, padded by one and padded to the context, and one that fills it."""
    long = tokenizer([longest_text(tokenizer)])
    cases = [(long, 0, _eager_text(adapter, long))]
    for count, padding in ((1, 0), (2, 0), (3, 0), (len(PROBE_TEXTS), 0), (3, 1), (2, adapter.context)):
        batch = tokenizer(PROBE_TEXTS[:count])
        cases.append((batch, min(padding, adapter.context - batch.ids.shape[1]), reference[:count]))
    if adapter.tokenizer.marks_continuations:  # even if this vocabulary does not split these words
        marked = _marked(long)
        cases.append((marked, 0, _eager_text(adapter, marked)))
    checks = []
    for batch, extra, wanted in cases:
        (got,) = session.run(("features",), text_inputs(adapter, batch, extra))
        reference_name = "model" if extra == 0 else f"model, padded by {extra}"
        count, width = batch.ids.shape
        for slot in range(count):
            position = Place(reference_name, count, slot, width + extra)
            checks.append(compare("features", position, _row(got, slot), wanted[slot]))
    return checks


def longest_text(tokenizer: Tokenizer) -> str:
    """A text that is cut at the context; for a tokenizer that cuts none, as many of its words as are taken."""
    words = LONG_TEXT.split(" ")
    for count in range(len(words), 1, -1):
        text = " ".join(words[:count])
        with suppress(ConfigError):
            tokenizer([text])
            return text
    return words[0]


def _marked(batch: TokenBatch) -> TokenBatch:
    """The same tokens, some marked as continuations of the word before: words of one, two and three pieces."""
    places = np.arange(batch.mask.shape[1])
    continues = (places > 1) & np.isin(places % 6, (2, 4, 5)) & (places < places[-1])
    return replace(batch, mask=np.where(continues & (batch.mask > 0), 2, batch.mask))


def text_inputs(adapter: Adapter, batch: TokenBatch, extra: int = 0) -> dict[str, NDArray[np.int64]]:
    """The text graph's inputs, with `extra` columns of padding."""
    inputs = {"input_ids": np.pad(batch.ids, ((0, 0), (0, extra)))}
    if (mask := batch.mask_for(adapter.text_inputs)) is not None:
        inputs["attention_mask"] = np.pad(mask, ((0, 0), (0, extra)))
    return inputs
