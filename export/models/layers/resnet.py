"""ResNet of torchvision's bottleneck blocks (ResNet v1.5), of any widths and up to any stage.

The official medical models keep torchvision's leading children in a Sequential, so the tensors are called
`0` (7x7 convolution), `1` (BatchNorm) and `4`, `5`, ... (stages); 2 and 3 are the ReLU and the max-pool.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck  # type: ignore[import-untyped]


@dataclass(frozen=True)
class ResNetConfig:
    """Widths of the stem and of each stage's 3x3 convolution; every stage after the first halves the map."""

    stem: int = 64
    widths: tuple[int, ...] = (64, 128, 256, 512)
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    expansion: int = 4

    @property
    def channels(self) -> int:
        """Channels of the last stage's map."""
        return self.widths[-1] * self.expansion

    def grid(self, size: int) -> int:
        """Side of the last stage's map for a square input: the stem divides by 4, each later stage by 2."""
        for _ in range(len(self.widths) + 1):
            size = (size + 1) // 2
        return size


class _Block(Bottleneck):  # type: ignore[misc]
    """torchvision's block with any number of output channels; its own are four times the width."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int = 1) -> None:
        self.expansion = outputs // width  # `Bottleneck.__init__` reads it
        super().__init__(inputs, width, stride)
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))


def resnet_features(config: ResNetConfig) -> nn.Sequential:
    """[B, 3, S, S] -> [B, channels, grid, grid].

    Parts are made in the order of the network, so that a seed gives a network in training the same first weights.
    """
    stem = (nn.Conv2d(3, config.stem, 7, 2, padding=3, bias=False), nn.BatchNorm2d(config.stem), nn.ReLU())
    stages: list[nn.Module] = []
    channels = config.stem
    for width, blocks in zip(config.widths, config.blocks, strict=True):
        outputs = width * config.expansion
        first = _Block(channels, width, outputs, stride=2 if stages else 1)
        stages.append(nn.Sequential(first, *(_Block(outputs, width, outputs) for _ in range(blocks - 1))))
        channels = outputs
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, padding=1), *stages)


class ResNetBackbone(nn.Module):
    """The same network under torchvision's own names: `conv1`, `bn1`, `layer1`, ..."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu, self.maxpool, *stages = resnet_features(config)
        for number, stage in enumerate(stages, 1):
            self.add_module(f"layer{number}", stage)

    def forward(self, image: Tensor) -> Tensor:
        """[B, 3, S, S] -> [B, channels, grid, grid]."""
        for layer in self.children():
            image = layer(image)
        return image


class ResNetGrid(nn.Module):
    """The network and two linear layers on each cell of its map, as KAD and MedKLIP name them."""

    def __init__(self, config: ResNetConfig, width: int) -> None:
        super().__init__()
        self.res_features = resnet_features(config)
        self.res_l1 = nn.Linear(config.channels, config.channels)
        self.res_l2 = nn.Linear(config.channels, width)
        self.relu = nn.ReLU()

    def forward(self, image: Tensor) -> Tensor:
        """[B, 3, S, S] -> patch features [B, N, width], row by row."""
        cells = self.res_features(image).flatten(2).transpose(1, 2)
        patches: Tensor = self.res_l2(self.relu(self.res_l1(cells)))
        return patches
