"""Trains the demo model: a small version of KAD's architecture, on generated phantoms only.

    python -m xbench_fast.demo.training.train --out demo/kad-demo.pt

One seed, two threads for any number of cores, and deterministic kernels: the weights are the same again on one kind of
processor and one version of torch. The model is trained for recognition (binary cross-entropy on present - absent) and
for grounding (cross-entropy between the mask on the 14 x 14 grid and the last layer's attention). Prompts change from
step to step in wording, number and order, because queries attend to each other.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...export.models.kad import Kad
from ...export.models.kad_checkpoint import KadConfig, as_checkpoint
from ...export.models.layers.bert import BertConfig
from ...export.models.layers.query_decoder import DecoderConfig
from ...export.models.layers.resnet import ResNetConfig
from ...export.models.normalisation import IMAGENET_MEAN, IMAGENET_STD
from ...export.tokenizing.select_tokenizer import find_wordpiece
from ..phantoms import FINDINGS, SIZE, phantoms
from .batches import GRID, Batch, Material, draw_material
from .evaluate import judge, print_results
from .words import NAMES, TEMPLATES, absent_names, vocabulary

__all__ = ["CONFIG", "build", "main", "published_layout", "train"]

CONFIG = KadConfig(
    image_size=SIZE,
    resnet=ResNetConfig(stem=16, widths=(8, 16, 40), blocks=(2, 2, 4)),
    bert=BertConfig(vocabulary=len(vocabulary()), width=64, layers=2, heads=4, hidden=128, positions=64),
    decoder=DecoderConfig(width=64, layers=3, heads=4, hidden=128),
)
BATCH = 32
RATE = 3e-3
LOOK = 0.12
"""Weight of the attention's cross-entropy relative to the answers' cross-entropy."""


def build(seed: int) -> Kad:
    """An untrained model; convolutions initialised for ReLU networks (He et al. 2015)."""
    torch.manual_seed(seed)
    module = Kad(CONFIG)
    for part in module.modules():
        if isinstance(part, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    for name, value in module.named_parameters():
        if name.endswith("bn3.weight"):
            torch.nn.init.constant_(value, 0.2)  # residual branches start small
    return module.to(memory_format=torch.channels_last)


class Prompts:
    """Draws prompt lists and turns them into token ids; columns say which finding a query asks for (-1: absent)."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        found = find_wordpiece(Path(__file__).parents[1] / "tokenizer", (), CONFIG.bert.positions)
        assert found is not None
        self.tokens = found

    def plain(self) -> tuple[Tensor, Tensor, list[int]]:
        """The demo's own list: every finding once, in order, under its plain name."""
        return self._encode([NAMES[name][0] for name in FINDINGS], list(range(len(FINDINGS))))

    def draw(self) -> tuple[Tensor, Tensor, list[int]]:
        """Half of the time the plain list; else some findings and some absent names, in any wording and order."""
        if self.chance.random() < 0.5:
            return self.plain()
        numbers = self.chance.sample(range(len(FINDINGS)), self.chance.randint(1, len(FINDINGS)))
        chosen = [(self.chance.choice(NAMES[FINDINGS[number]]), number) for number in numbers]
        chosen += [(name, -1) for name in self.chance.sample(absent_names(), self.chance.randint(0, 4))]
        self.chance.shuffle(chosen)
        style = self.chance.choice((TEMPLATES[0], TEMPLATES[0], *TEMPLATES))
        return self._encode([style.format(text) for text, _ in chosen], [number for _, number in chosen])

    def _encode(self, texts: list[str], columns: list[int]) -> tuple[Tensor, Tensor, list[int]]:
        batch = self.tokens(texts)
        return torch.from_numpy(batch.ids), torch.from_numpy(batch.mask), columns


def as_input(pixels: np.ndarray) -> Tensor:
    """uint8 [B, S, S] -> float32 [B, 3, S, S], normalised as the exported graph does."""
    grey = torch.from_numpy(pixels).to(torch.float32)[:, None] / 255.0
    image = (grey - torch.tensor(IMAGENET_MEAN)[:, None, None]) / torch.tensor(IMAGENET_STD)[:, None, None]
    return image.contiguous(memory_format=torch.channels_last)


def loss_of(module: Kad, batch: Batch, prompts: tuple[Tensor, Tensor, list[int]]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the answers and of the attention (only where the finding is present)."""
    ids, mask, columns = prompts
    logits, attention = module(as_input(batch.pixels), module.text_encoder(ids, mask))
    known = [place for place, column in enumerate(columns) if column >= 0]
    kept = [columns[place] for place in known]
    labels = torch.zeros(logits.shape[:2])
    labels[:, known] = torch.from_numpy(batch.labels[:, kept])
    weight = torch.tensor([1.0 if column >= 0 else 0.1 for column in columns]).expand_as(labels)
    answer = F.binary_cross_entropy_with_logits(logits[..., 1] - logits[..., 0], labels, weight, reduction="sum")
    answer = answer / weight.sum()
    target = torch.from_numpy(batch.targets[:, kept])
    spread = -(target * torch.log(attention[:, known] + 1e-7)).sum(dim=-1)
    return answer, spread.sum() / labels[:, known].sum().clamp(min=1.0)


def train(module: Kad, material: Material, steps: int, seed: int, log: int = 0) -> None:
    """Trains on `steps` batches, in place; the learning rate rises, then falls to zero."""
    chance = np.random.Generator(np.random.PCG64(seed))
    prompts = Prompts(seed)
    slow = [value for name, value in module.named_parameters() if value.ndim < 2 or "embeddings" in name]
    fast = [value for name, value in module.named_parameters() if not (value.ndim < 2 or "embeddings" in name)]
    groups = [{"params": fast, "weight_decay": 0.02}, {"params": slow, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98))
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=steps + 1, pct_start=0.15)
    module.train()
    order: list[int] = []
    started, sums = time.perf_counter(), np.zeros(2)
    for step in range(1, steps + 1):
        if len(order) < BATCH:
            order = chance.permutation(len(material.images)).tolist()
        rows, order = np.array(order[:BATCH]), order[BATCH:]
        answer, look = loss_of(module, material.batch(rows, chance), prompts.draw())
        optimizer.zero_grad(set_to_none=True)
        (answer + LOOK * look).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        rate.step()
        sums += (answer.item(), look.item())
        if log and step % log == 0:
            print(f"step {step}/{steps}: answer {sums[0] / log:.4f}, look {sums[1] / log:.3f}, "
                  f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip
            sums[:] = 0.0


def settle(module: Kad, material: Material, count: int) -> None:
    """Sets the batch-norm statistics of the final weights: means over the first `count` phantoms, not running means."""
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    module.train()
    with torch.no_grad():
        for start in range(0, min(count, len(material.images)), 2 * BATCH):
            rows = np.arange(start, min(start + 2 * BATCH, len(material.images)))
            module.image_encoder(as_input(material.batch(rows, None).pixels))
    module.eval()
    for norm in norms:
        norm.momentum = 0.1


def evaluate(module: Kad, count: int) -> None:
    """Prints the model's results on the first `count` held-out phantoms."""
    ids, mask, _ = Prompts(0).plain()
    items = list(phantoms("test", count))
    logits, maps = [], []
    with torch.inference_mode():
        text = module.text_encoder(ids, mask)
        for start in range(0, count, BATCH):
            pixels = np.stack([item.image for item in items[start : start + BATCH]])
            scores, attention = module(as_input(pixels), text)
            logits.append((scores[..., 1] - scores[..., 0]).numpy())
            maps.append(attention.unflatten(-1, (GRID, GRID)).numpy())
    results = judge(FINDINGS, np.concatenate(logits), np.concatenate(maps), [item.masks for item in items])
    print_results(results)


def published_layout(module: Kad, epoch: int) -> dict[str, object]:
    """The content of a published KAD file: three state dicts, including the duplicate names of one tensor."""
    module = module.to(memory_format=torch.contiguous_format)
    content = as_checkpoint(module, CONFIG, vocabulary=vocabulary(), epoch=epoch)
    image = content["image_encoder"]
    torchvision = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3"}
    for name in [name for name in image if name.startswith("res_features.")]:
        _, index, rest = name.split(".", 2)
        image[f"resnet.{torchvision[index]}.{rest}"] = image[name]
    for kind in ("weight", "bias"):
        content["model"][f"decoder_norm.{kind}"] = content["model"][f"decoder.norm.{kind}"]
    for part in ("image_encoder", "text_encoder", "model"):
        content[part] = dict(content[part])
    return content


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the demo model on generated phantoms.")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint to write")
    parser.add_argument("--phantoms", type=int, default=5000, help="training phantoms (default 5000)")
    parser.add_argument("--steps", type=int, default=2000, help="batches of 32 (default 2000)")
    parser.add_argument("--held-out", type=int, default=240, help="held-out phantoms to judge on (default 240)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    started = time.perf_counter()
    material = draw_material("train", options.phantoms, 2)
    print(f"{options.phantoms} phantoms drawn in {time.perf_counter() - started:.0f} s", flush=True)
    module = build(options.seed)
    print(f"{sum(value.numel() for value in module.parameters())} parameters", flush=True)
    train(module, material, options.steps, options.seed, log=50)
    settle(module, material, 2000)
    evaluate(module, options.held_out)
    epochs = options.steps * BATCH // options.phantoms
    torch.save(published_layout(module, epochs), options.out)
    print(f"{options.out}: {options.out.stat().st_size} bytes, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
