"""Image towers of timm, torchvision and transformers without their classifier, read for the image and its patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from ....engines.errors import ConfigError
from ....engines.registry import Registry
from .family import patch_grid, read_features
from .named_tensors import NamedTensors, Renaming, checked
from .preprocessing import WORDS, Preprocessing

POOLINGS: Final = ("own", "cls", "mean", "cls+mean")
"""How tokens become the image vector: as the library's class does it, the class token, the mean of the patches, or both
one after the other."""

_LIBRARIES: Final = Registry(
    "library",
    {
        "timm": f"{__package__}.timm_towers:timm_backbone",
        "torchvision": f"{__package__}.torchvision_towers:torchvision_backbone",
        "transformers": f"{__package__}.transformers_towers:transformers_backbone",
    },
)


@dataclass(frozen=True)
class TowerChoice:
    """What a configuration says of a tower: `name` in its library or the folder, `pooling`, one of `POOLINGS`, keyword
    arguments `more` of the library's own function, and how pictures enter (`preprocess`)."""

    name: str
    pooling: str
    preprocess: Mapping[str, Any]
    more: Mapping[str, Any]

    @property
    def whole_pooling(self) -> bool:
        """Whether both the class token and the mean are asked for, which no library has."""
        return self.pooling == "cls+mean"


@dataclass
class Backbone:
    """A tower of a library in its own code.

    `features`: image -> the last tokens [B, prefix + N, C] or map [B, C, h, w] ([B, h, w, C] where `last`). `pool`:
    these -> the image vector [B, D]. `vector`: the library's own way from image to vector. `entry`: how pictures enter,
    which is `assumed` where only the library's own weights say it. `head` is the library's name of its classifier.
    `resize` changes the side of the pictures; `renamed` brings names of older releases up to date.
    """

    title: str
    module: nn.Module
    features: Callable[[Tensor], Tensor]
    pool: Callable[[Tensor], Tensor]
    vector: Callable[[Tensor], Tensor]
    entry: Preprocessing
    head: str
    resize: Callable[[int], None]
    prefix: int = 0
    last: bool = False
    assumed: bool = True
    renamed: Renaming | None = None

    def load(self, tensors: NamedTensors, prefix: str | None) -> None:
        """Installs its tensors. Of a file whose first convolution takes one grey channel the tower's does too."""
        name, first = next((name, each) for name, each in self.module.named_modules() if isinstance(each, nn.Conv2d))
        grey = (first.weight.shape[0], 1, *first.weight.shape[2:])
        if first.groups == 1 and grey in tensors.shapes(f"{name}.weight"):
            first.weight, first.in_channels = nn.Parameter(torch.empty(grey)), 1
        tensors.tower(self.module, prefix, self.title, self.renamed)

    def read(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """float32 [B, 3, S, S] -> the image vector [B, D], and what `pool` returns for each patch alone, [B, N, D]."""
        return read_features(self.features(self._channels(image)), self.pool, self.prefix, last=self.last)

    def grid(self, side: int) -> tuple[int, int]:
        """The grid of the patches. Raises ConfigError where none can be read."""
        return patch_grid(self.read, lambda image: self.vector(self._channels(image)), side, self.title)

    def cautions(self) -> tuple[str, ...]:
        """The remark on pictures that enter as the library's own weights take them, which the user's need not."""
        if not self.assumed:
            return ()
        entry = self.entry
        return (
            f"pictures enter as {self.title} was trained on photographs ({entry.geometry.key}, mean "
            f"{', '.join(f'{value:g}' for value in entry.mean)}); if your training did it in another way, state it in "
            "the option 'preprocess'",
        )

    def behind_pooling(self) -> list[tuple[str, str]]:
        """The layers that `pool` runs, by name and class, that are neither pooling nor norm."""
        names = {module: name for name, module in self.module.named_modules() if not [*module.children()]}
        run: list[nn.Module] = []
        with torch.inference_mode():
            side = self.entry.geometry.size
            x = self.features(self._channels(torch.zeros(1, 3, side, side)))
            hooks = [module.register_forward_hook(lambda module, *_: run.append(module)) for module in names]
            try:
                self.pool(x)
            finally:
                for hook in hooks:
                    hook.remove()
        kinds = ((names[module], type(module).__name__) for module in run)
        return [(name, kind) for name, kind in kinds if not any(word in kind for word in _PLAIN)]

    def _channels(self, image: Tensor) -> Tensor:
        first = next(each for each in self.module.modules() if isinstance(each, nn.Conv2d))
        return image[:, : first.in_channels]


_PLAIN: Final = ("Norm", "Pool", "Drop", "Flatten", "Identity", "Permute")
"""Parts of the names of classes that leave a head linear in what is pooled."""


def backbone(arch: str, options: Mapping[str, Any], pooling: str) -> Backbone:
    """The untrained tower `arch`: "timm:NAME", "torchvision:NAME", or a folder with a config.json of transformers.

    `options` may have `preprocess` and `arch_options`, tables. Raises ConfigError and MissingExtraError.
    """
    preprocess = checked(options.get("preprocess", {}), WORDS, "The option 'preprocess'")
    more = options.get("arch_options", {})
    library, colon, name = arch.partition(":")
    if (Path(arch) / "config.json").is_file():
        library, name = "transformers", arch
    elif not colon or library not in ("timm", "torchvision"):
        raise ConfigError(
            f"The image tower '{arch}' is not known: write timm:NAME, torchvision:NAME, or a folder with the "
            "config.json of transformers, as 'arch'."
        )
    made: Backbone = _LIBRARIES.load(library)(TowerChoice(name, pooling, preprocess, more))
    made.assumed = made.assumed and not {"mean", "std"} <= preprocess.keys()
    return made
