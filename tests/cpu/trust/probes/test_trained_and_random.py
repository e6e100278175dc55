"""The demo model on phantoms, which it has learnt, passes deletion, insertion and region deletion; with the same
weights in another order it passes none. In PyTorch, because two exports would take longer than the probes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from xbench_fast.demo.phantoms import FINDINGS, phantoms
from xbench_fast.engines.base import Engine, Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.prompts.prompt_set import PromptSet
from xbench_fast.export import load_adapter
from xbench_fast.export.tokenizing.select_tokenizer import find_wordpiece
from xbench_fast.runtime.trust.probes.asking import AskedModel
from xbench_fast.runtime.trust.probes.directory import rows_as_table
from xbench_fast.runtime.trust.probes.faithful import DeletionProbe
from xbench_fast.runtime.trust.probes.judging import judged
from xbench_fast.runtime.trust.probes.probe import ProbeOptions, Question
from xbench_fast.runtime.trust.probes.probe_images import PreparedImage
from xbench_fast.runtime.trust.probes.region_deletion import RegionProbe
from xbench_fast.runtime.trust.probes.stable import StabilityProbe

IMAGES = 12
"""Verdicts need pairs of 10 patients, and in some images the blur keeps every finding."""


def shuffled(content: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint with the values of each tensor in another order."""
    generator = torch.Generator().manual_seed(3)
    for part in ("image_encoder", "model"):
        for value in content[part].values():
            if value.is_floating_point() and value.numel() > 1:
                flat = value.view(-1)
                flat.copy_(flat[torch.randperm(len(flat), generator=generator)])
    return content


class Eager:
    """The demo model as far as `AskedModel` uses an engine."""

    bundle = SimpleNamespace(manifest=SimpleNamespace(grid=(14, 14)))

    def __init__(self, checkpoint: Path) -> None:
        self.adapter = load_adapter("kad", checkpoint)
        self.mean, self.std = (torch.tensor(value)[:, None, None] for value in (self.adapter.mean, self.adapter.std))

    def run(self, pixels: Any, text: Any) -> Scores:
        with torch.inference_mode():
            image = (torch.from_numpy(pixels).float() / 255 - self.mean) / self.std
            logits, maps = self.adapter.forward(image, torch.from_numpy(text))
        return Scores(logits.numpy(), maps.numpy())


@pytest.fixture(scope="module")
def demo(root: Path) -> Iterator[Path]:
    folder, threads = root / "demo", torch.get_num_threads()
    torch.set_num_threads(1)  # batches are small: more threads wait for one another where cores are busy
    try:
        yield folder
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def images(demo: Path) -> list[PreparedImage]:
    """Phantoms with all their findings."""
    found, whole = [], (0.0, 0.0, 1.0, 1.0)
    for item in phantoms("test", 4 * IMAGES):
        if item.masks and len(found) < IMAGES:
            name, regions = str(item.seed), np.stack(list(item.masks.values())).astype(np.bool_)
            found.append(PreparedImage(name, name, None, item.image[None], tuple(item.masks), regions, whole))
    return found


def asked(demo: Path, checkpoint: Path) -> AskedModel:
    engine, findings = Eager(checkpoint), FINDINGS
    tokens = find_wordpiece(demo / "tokenizer", (), engine.adapter.context)
    assert tokens is not None
    batch = tokens([name.lower() for name in findings])
    with torch.inference_mode():
        features = engine.adapter.encode_text(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)).numpy()
    count = len(findings)
    prompts = PromptSet(
        "phantoms",
        tuple(findings),
        tuple(findings),
        np.arange(count, dtype=np.int32),
        np.ones(count, np.int8),
        features,
        (),
    )
    return AskedModel(cast(Engine, engine), prompts, {name: name for name in findings}, 64)


def verdicts(model: AskedModel, images: list[PreparedImage]) -> dict[str, dict[str, Any]]:
    """Records by question; one random order instead of three, and two places of a region instead of eight."""
    questions = list[Question]()
    for probe in (
        DeletionProbe(ProbeOptions(), orders=1),
        RegionProbe(ProbeOptions(), most=2),
        StabilityProbe(ProbeOptions()),
    ):
        rows = [row for image in images for row in probe.rows(image, model)]
        questions += probe.judge(rows_as_table(probe.columns, rows, "key"), cast(Bundle, None)).questions
    return {record["question"]: record for record in judged(questions)}


ASKED = [f"{mode}_{fill}" for mode in ("deletion", "insertion", "region") for fill in ("mean", "blur16")]


def test_the_trained_model_passes_on_what_it_has_learnt(demo: Path, images: list[PreparedImage]) -> None:
    records = verdicts(asked(demo, demo / "kad-demo.pt"), images)
    assert {name: records[name]["verdict"] for name in ASKED} == dict.fromkeys(ASKED, "pass")
    assert records["flips"]["value"] < 0.1


def test_the_same_weights_in_another_order_pass_nothing(
    demo: Path, images: list[PreparedImage], tmp_path: Path
) -> None:
    torch.save(shuffled(torch.load(demo / "kad-demo.pt", weights_only=True)), tmp_path / "shuffled.pt")
    records = verdicts(asked(demo, tmp_path / "shuffled.pt"), images)
    assert not {"pass"} & {records[name]["word"] for name in ASKED}
