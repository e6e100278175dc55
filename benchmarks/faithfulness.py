"""Deletion and insertion of the demo model: the probe `deletion` against a careful loop in eager PyTorch.

    python benchmarks/faithfulness.py --bundle bundles/kad-demo [--images 6] [--rounds 5] [--json FILE]

Both sides get the same phantoms, decoded, and make the same forward passes: each image and its two fills, then for
every fill the 13 inner stages of deletion and of insertion in the order of each finding's map, in that of its prior map
and in three random orders. The loop has a batch for each curve, no gradients, the pixels on the model's scale once an
image, and stages made by one `torch.where`; fills, prior maps and random orders are given to it and not timed. Ours is
what the command `trust` calls for an image once it knows the prior maps, with fills, orders, areas and rows, on an
engine that is opened as it opens it. The sides alternate image by image, with the same number of threads; a round is
all images, and ratios are medians over rounds. The areas of both must agree.

Wall times need idle cores: beside other work, PyTorch's threads wait for one another. With --threads 1 the ratio of CPU
seconds holds there too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.metrics_gpu.trust.faithfulness import FILLS, cell_order, fill_of, random_orders
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.timing import RepeatSpread, clocked, median_ratio
from xbench_fast.runtime.trust.probes.asking import AskedModel
from xbench_fast.runtime.trust.probes.faithful import DeletionProbe
from xbench_fast.runtime.trust.probes.probe import ProbeOptions
from xbench_fast.runtime.trust.probes.probe_images import PreparedImage, Row
from xbench_fast.runtime.trust.probes.probe_rows import engine_for

DEMO = Path(__file__).resolve().parents[1] / "demo"
AREAS = tuple(f"{order}_{mode}" for order in ("own", "prior", "random") for mode in ("deletion", "insertion"))
WHOLE = (0.0, 0.0, 1.0, 1.0)
SIDES = ("eager", "trust")


def made_images(count: int) -> list[PreparedImage]:
    """Phantoms with findings."""
    from xbench_fast.demo.phantoms import phantoms

    found: list[PreparedImage] = []
    for at, item in enumerate(phantoms("test", 4 * count)):
        if item.masks and len(found) < count:
            names, masks = tuple(item.masks), np.stack(list(item.masks.values())) > 0
            found.append(PreparedImage(f"phantom{at}", f"p{at}", None, item.image[None], names, masks, WHOLE))
    return found


class Loop:
    """What a careful user writes: eager PyTorch, a batch for each curve."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        import torch
        from xbench_fast.export import load_adapter

        torch.set_num_threads(threads)
        self._torch = torch
        self._adapter = load_adapter("kad", DEMO / "kad-demo.pt")
        self._mean, self._std = (
            torch.tensor(values).reshape(1, 3, 1, 1) for values in (self._adapter.mean, self._adapter.std)
        )
        prompts = bundle.prompt_set("phantoms")
        self._text, self._findings = torch.from_numpy(prompts.features), prompts.findings
        self.passes = 0

    def scaled(self, pixels: np.ndarray) -> Any:
        """Pixels [B, S, S] as the model takes them, [B, 3, S, S]."""
        grey = self._torch.from_numpy(pixels).float().div(255)[:, None].expand(-1, 3, -1, -1)
        return (grey - self._mean) / self._std

    def scores(self, images: Any) -> tuple[Any, Any]:
        """Probabilities [B, findings] and maps of a batch."""
        self.passes += len(images)
        logits, maps = self._adapter.forward(images, self._text)
        return logits.double().sigmoid(), maps

    def rows(
        self, image: PreparedImage, fills: Sequence[np.ndarray], orders: np.ndarray, priors: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """A row for each fill and finding, as the probe's. orders: the random ones, [3, cells]; priors: the order of
        the prior map of a finding, where other images have it."""
        torch = self._torch
        places = [self._findings.index(name) for name in image.findings]
        with torch.inference_mode():
            whole = self.scaled(np.concatenate([image.pixels, np.stack(fills)]))
            ends, maps = self.scores(whole)
            rows = []
            for fill, name in enumerate(FILLS):
                curves = [
                    (place, torch.argsort(maps[0, place].flatten(), descending=True, stable=True)) for place in places
                ]
                useful = [
                    place for place in places if ends[0, place] >= 0.1 and ends[1 + fill, place] <= ends[0, place] / 2
                ]
                own = {place: self.areas(whole, ends, fill, order) for place, order in curves if place in useful}
                prior = {
                    place: self.areas(whole, ends, fill, torch.from_numpy(priors[finding]))
                    for place, finding in zip(places, image.findings, strict=True)
                    if place in useful and finding in priors
                }
                random = [self.areas(whole, ends, fill, torch.from_numpy(order)) for order in orders if useful]
                for place, finding in zip(places, image.findings, strict=True):
                    row: dict[str, Any] = {"fill": name, "finding": finding}
                    if place in useful:
                        means = torch.stack(random).mean(dim=0)[:, place]
                        row |= zip(
                            AREAS[:2] + AREAS[4:], [*own[place][:, place].tolist(), *means.tolist()], strict=True
                        )
                    if place in prior:
                        row |= zip(AREAS[2:4], prior[place][:, place].tolist(), strict=True)
                    rows.append(row)
        return rows

    def areas(self, whole: Any, ends: Any, fill: int, order: Any) -> Any:
        """Areas [2, findings] of deletion and insertion in one order of 14 x 14 cells."""
        torch = self._torch
        rank = torch.empty(196, dtype=torch.long)
        rank[order] = torch.arange(196)
        places = rank.reshape(1, 1, 14, 14).repeat_interleave(16, dim=2).repeat_interleave(16, dim=3)
        steps = (torch.arange(1, 14) * 14).reshape(-1, 1, 1, 1)
        found = []
        for start, end in ((0, 1 + fill), (1 + fill, 0)):
            inner, _ = self.scores(torch.where(places < steps, whole[end], whole[start]))
            found.append((inner.sum(dim=0) + (ends[start] + ends[end]) / 2) / 14)
        return torch.stack(found)


def largest_difference(ours: Sequence[Row], theirs: Sequence[Mapping[str, Any]]) -> float:
    """Of the areas of the same fill and finding. Raises ValueError where only one side has areas."""
    found = 0.0
    for one, two in zip(ours, theirs, strict=True):
        if (one["fill"], one["finding"], *map(one.__contains__, AREAS)) != (
            two["fill"], two["finding"], *map(two.__contains__, AREAS)
        ):  # fmt: skip
            raise ValueError(f"the sides disagree about {one['finding']} under the fill {one['fill']}")
        found = max([found, *(abs(one[name] - two[name]) for name in AREAS if name in one)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True, help="the demo's bundle, as make demo exports it")
    parser.add_argument("--images", type=int, default=6, help="phantoms with findings [6]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each with both sides [5]")
    parser.add_argument("--threads", type=int, default=2, help="threads on both sides [2]")
    parser.add_argument(
        "--batch", type=int, default=16, help="images that our engine gets at once, as --batch of trust [16]"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    bundle, images = Bundle.load(arguments.bundle), made_images(arguments.images)
    prompts = bundle.prompt_set("phantoms")
    loop = Loop(bundle, arguments.threads)
    made, load = 0, os.getloadavg()[0]

    def count(passes: int) -> None:
        nonlocal made
        made += passes

    probe, grid = DeletionProbe(ProbeOptions()), bundle.manifest.grid
    name, apart = engine_for(probe, "onnxruntime-cpu", grid, 0, arguments.batch, arguments.threads)
    options = EngineOptions(throughput=apart)
    with open_engine(bundle, name, threads=arguments.threads, options=options) as engine:
        model = AskedModel(engine, prompts, {name: name for name in prompts.findings}, arguments.batch, count)
        probe = probe.surveyed(probe.survey(images, model), model.grid)
        made = 0
        given = [
            (
                [fill_of(image.pixels[0], name) for name in FILLS],
                random_orders(f"0 {image.case_id}", 196),
                {name: cell_order(prior) for (case, name), prior in probe.priors.items() if case == image.case_id},
            )
            for image in images
        ]

        work: list[tuple[Callable[[], Sequence[Any]], Callable[[], Sequence[Any]]]] = [
            (partial(loop.rows, image, *inputs), partial(probe.rows, image, model))
            for image, inputs in zip(images, given, strict=True)
        ]
        difference = max(largest_difference(ours(), theirs()) for theirs, ours in work)  # the warm-up of both
        if made != loop.passes or difference > 1e-4:
            raise SystemExit(
                f"{made} and {loop.passes} passes, areas that differ by {difference:.2g}: not the same work"
            )
        passes, wall, cpu = made, *np.zeros((2, len(SIDES), arguments.rounds))
        for turn in range(arguments.rounds):
            for at, both in enumerate(work):
                for place in (0, 1) if (turn + at) % 2 else (1, 0):
                    spent = clocked(both[place])
                    wall[place, turn] += spent.wall
                    cpu[place, turn] += spent.cpu
    pairs = sum(len(image.findings) for image in images)
    rates = {side: RepeatSpread.of((passes / each).tolist()) for side, each in zip(SIDES, wall, strict=True)}
    ratios = (wall[0] / wall[1]).tolist()
    ratio, ratio_of_cpu = median_ratio(*wall.tolist()), median_ratio(*cpu.tolist())
    result: dict[str, Any] = {
        "what": "deletion and insertion of kad-demo on phantoms, two fills, prior and three random orders",
        "images": len(images),
        "pairs": pairs,
        "passes": passes,
        "threads": arguments.threads,
        "batch": arguments.batch,
        "load_average_before": load,
        "images_per_second": {side: spread.to_json() for side, spread in rates.items()},
        "ratio": ratio,
        "ratio_of_cpu_seconds": ratio_of_cpu,
        "ratios": ratios,
        "largest_difference_of_areas": difference,
    }
    print(f"{pairs} pairs of {len(images)} images, {passes} passes, {arguments.threads} threads, load {load:.1f}")
    for side, spread in rates.items():
        print(f"{side:<8}{spread.median:8.1f} images/s  ({spread.least:.1f} to {spread.greatest:.1f})")
    print(
        f"ratio   {ratio:8.2f}  ({min(ratios):.2f} to {max(ratios):.2f})  of CPU seconds {ratio_of_cpu:.2f}  (areas "
        f"differ by {difference:.1g} at most)"
    )
    if arguments.json:
        write_record(arguments.json, result)


if __name__ == "__main__":
    main()
