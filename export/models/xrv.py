"""The DenseNet-121 of torchxrayvision (Cohen et al. 2022), a supervised classifier with its class activation maps
(docs/parity.md §3.12).

The logit of a finding is the mean of its map plus the bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import DenseNet  # type: ignore[import-untyped]

from ...engines.errors import CheckpointError
from ...engines.geometry import Geometry
from ..adapter import CheckpointRecord, Saliency, Weights
from ..checkpoints.matching import TensorNames
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from .class_activation import ClassActivation, class_maps, trained_rows, with_rows
from .published_checkpoints import PUBLISHED
from .saliency_maps import ACTIVATION, MAPS

SIZE = 224
MEAN, STD = 0.5, 1 / 2048  # 0..1 becomes -1024..1024
NAMES = TensorNames(
    "torchxrayvision's DenseNet-121",
    anchors=("features.conv0.weight",),
    unused="^op_threshs$",  # scales the authors' probabilities, never the logits
)

LABELS = PUBLISHED["xrv"].outputs
"""The names of the 18 outputs of every published file, in their order."""

TRAINED = {variant: facts.findings for variant, facts in PUBLISHED["xrv"].variants.items()}
"""Variant -> the outputs that its training had labels for; the others are random."""


class XrvDenseNet(DenseNet):  # type: ignore[misc]
    """torchvision's DenseNet, whose tensors have the published names, for one grey channel."""

    classifier: nn.Linear

    def __init__(self, outputs: int, blocks: tuple[int, int, int, int] = (6, 12, 24, 16)) -> None:
        super().__init__(block_config=blocks, num_classes=outputs)
        self.features.conv0 = nn.Conv2d(1, 64, kernel_size=7, stride=2, padding=3, bias=False)

    def answer(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """image [B, 1, S, S] -> logits [B, F], class activation maps [B, F, h, w]."""
        cells = functional.relu(self.features(image))
        maps = class_maps(self.classifier, cells.flatten(2), cells.shape[2:])
        return self.classifier(cells.mean(dim=(2, 3))), maps


class XrvAdapter(ClassActivation):
    """A published file, which its name identifies, or another of the same structure with the names of its outputs."""

    variants: ClassVar[tuple[str, ...]] = tuple(TRAINED)
    maps: ClassVar[Mapping[str, str]] = MAPS["xrv"]
    module: XrvDenseNet

    @classmethod
    def load(cls, checkpoint: Path, *, findings: Sequence[str] | None = None) -> Self:
        """Reads a module that was saved whole, or its state dict; nothing in it is run. `findings` names the outputs in
        their order, "" one that was not trained. Raises CheckpointError, and ConfigError for names that do not fit."""
        variant = "own" if findings is not None else _variant(checkpoint)
        labels = list(LABELS if findings is None else findings)
        rows = trained_rows(labels, checkpoint, TRAINED.get(variant))
        source = read_checkpoint(checkpoint)
        tensors = source.model_tensors(NAMES)
        with torch.device("meta"):
            module = XrvDenseNet(len(labels))
        tensors.install(module)
        module.classifier = with_rows(module.classifier, rows)
        return cls._describe(module, variant, [labels[row] for row in rows], "published", source.record)

    @classmethod
    def stand_in(cls, variant: str = "all", seed: int = 0) -> Self:
        """`variant` is one of `variants`."""
        module = stand_in_module(lambda: XrvDenseNet(len(LABELS)), seed)
        module.classifier = with_rows(module.classifier, [LABELS.index(name) for name in TRAINED[variant]])
        return cls._describe(module, variant, TRAINED[variant], "stand-in", None)

    @classmethod
    def _describe(
        cls,
        module: XrvDenseNet,
        variant: str,
        findings: Sequence[str],
        weights: Weights,
        record: CheckpointRecord | None,
    ) -> Self:
        return cls(
            module=module,
            name="xrv",
            variant=variant,
            weights=weights,
            geometry=Geometry("crop", SIZE, SIZE, "bilinear"),
            mean=(MEAN,) * 3,
            std=(STD,) * 3,
            saliency=Saliency("activation", cls.maps[ACTIVATION]),
            findings=tuple(findings),
            checkpoint=record,
        )

    def resize(self, side: int) -> None:
        """Convolutions take any size."""
        with torch.inference_mode():
            rows, columns = self.module.features(torch.zeros(1, 1, side, side)).shape[2:]
        self.grid = (rows, columns)

    def answer(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Before the authors' scaling by operating points; of a grey picture the first channel."""
        return self.module.answer(image[:, :1])


def _variant(checkpoint: Path) -> str:
    """Which published file this is, by its name. Raises CheckpointError."""
    for variant, facts in PUBLISHED["xrv"].variants.items():
        if checkpoint.name in {Path(path).name for path in facts.paths}:
            return variant
    raise CheckpointError(
        f"{checkpoint} has none of the published names, by which torchxrayvision says which outputs were trained (see "
        "--list); give it its own name, or write the names of its outputs as 'findings' under [models.NAME.options] in "
        "xbench.toml."
    )
