"""A classifier of timm, torchvision or transformers: a tower, its pooling, and a linear head with named outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn

from ....engines.errors import ConfigError
from ...adapter import Saliency
from ...checkpoints.reading import read_checkpoint
from ..class_activation import ClassActivation, class_maps, trained_rows, with_rows
from ..saliency_maps import ACTIVATION, CLASS_MAPS, MAPS
from .backbones import POOLINGS, Backbone, backbone
from .named_tensors import Kinds, NamedTensors, checked, chosen

_OPTIONS: Final[Kinds] = {
    "findings": list,
    "head": (str, list),
    "pooling": str,
    "prefix": str,
    "preprocess": dict,
    "arch_options": dict,
    "unused": list,
}


class Classifier(nn.Module):
    """The tower, and the linear layer behind its pooling."""

    def __init__(self, image: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.image, self.head = image, head


class ClassifierAdapter(ClassActivation):
    """`arch` is the tower, `findings` are the names of the outputs in their order."""

    more_options: ClassVar[tuple[str, ...]] = tuple(_OPTIONS)
    maps: ClassVar[Mapping[str, str]] = CLASS_MAPS
    module: Classifier
    tower: Backbone

    @classmethod
    def load(cls, checkpoint: Path, *, arch: str | None = None, **options: Any) -> Self:
        """`findings`: the outputs in their order, "" for one that does not count. `head`: the name of the linear layer
        in the file, by default the library's; of several, the layers one after the other. `pooling`, `prefix` of the
        tower's tensors, `preprocess`, `arch_options` and `unused` are those of the family dual.

        Raises CheckpointError, ConfigError and MissingExtraError.
        """
        checked(options, _OPTIONS, "The family classifier")
        findings = options.get("findings", [])
        if arch is None or not findings or not all(isinstance(name, str) for name in findings):
            raise ConfigError(
                "A model of the family classifier needs 'arch', its tower, and the option 'findings', a list of the "
                "names of its outputs in their order."
            )
        tower = backbone(arch, options, pooling := chosen(options, "pooling", POOLINGS, "own"))
        if behind := tower.behind_pooling():
            layers = ", ".join(f"'{name}', a {kind}" for name, kind in behind[:2])
            raise ConfigError(
                f"The head of {tower.title} is not linear: behind its pooling is {layers}; a class activation map "
                "needs a linear layer there; choose another 'pooling' if it was trained so, or write an adapter."
            )
        source = read_checkpoint(checkpoint)
        names = options.get("head", tower.head)
        names = [names] if isinstance(names, str) else names
        tensors = NamedTensors(source, checkpoint, [f"{name}.weight" for name in names], options.get("unused", ()))
        head = _linear(tensors, names, checkpoint)
        tower.load(tensors, options.get("prefix"))
        tensors.finish(f"{tower.title} with the head '{names[-1]}'")
        if head.out_features != len(findings):
            raise ConfigError(
                f"The head '{names[-1]}' of {checkpoint} has {head.out_features} outputs, and 'findings' names "
                f'{len(findings)}; name every output in its order, "" for one that does not count.'
            )
        rows = trained_rows(findings, checkpoint)
        made = cls._connected(
            Classifier(tower.module, with_rows(head, rows)), tower, [findings[row] for row in rows], pooling
        )
        made.checkpoint = source.record
        return made

    @classmethod
    def _connected(cls, module: Classifier, tower: Backbone, findings: Sequence[str], pooling: str) -> Self:
        size = tower.entry.geometry.size
        grid = tower.grid(size)
        with torch.inference_mode():
            picture = torch.linspace(-1, 1, 3 * size * size).reshape(1, 3, size, size)
            vector, cells = tower.read(picture)
        if vector.shape[1] != module.head.in_features:
            raise ConfigError(
                f"The head takes {module.head.in_features} values, and {tower.title}, pooled by '{pooling}', gives "
                f"{vector.shape[1]}; choose another 'pooling' ({', '.join(POOLINGS)})."
            )
        # Behind a mean without norm the logit is the mean of the map plus the bias, and the map what each cell adds.
        adds_up = torch.allclose(vector, cells.mean(dim=1), rtol=1e-3, atol=1e-4)
        made = cls(
            module=module,
            name="classifier",
            variant=str(size),
            geometry=tower.entry.geometry,
            mean=tower.entry.mean,
            std=tower.entry.std,
            saliency=Saliency("activation", MAPS["xrv"][ACTIVATION] if adds_up else cls.maps[ACTIVATION]),
            findings=tuple(findings),
            checkpoint=None,
            grid=grid,
            prompt_style="xrv",
        )
        made.tower = tower
        return made

    def answer(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The linear layer on the pooled tokens, and on each patch as the pooling returns it alone."""
        vector, cells = self.tower.read(image)
        return self.module.head(vector), class_maps(self.module.head, cells.transpose(1, 2), self.grid)

    def resize(self, side: int) -> None:
        """As the tower's library lets it."""
        self.tower.resize(side)
        self.grid = self.tower.grid(side)

    def cautions(self) -> tuple[str, ...]:
        """That how pictures enter is the library's, where the configuration does not say it."""
        return self.tower.cautions()


def _linear(tensors: NamedTensors, names: Sequence[str], path: Path) -> nn.Linear:
    """The layers `names`, one after the other, as one. Raises ConfigError for layers that are not linear."""
    for name in names:
        if len(parts := tensors.children(name)) > 1:
            raise ConfigError(
                f"The head '{name}' of {path} is not one linear layer, because it has the parts {', '.join(parts)}; a "
                "class activation map needs a linear layer behind the pooling."
            )
    layers = [*tensors.layers(names, "none")]
    weight, bias = torch.eye(layers[0].weight.shape[-1]), torch.zeros(())
    for name, layer in zip(names, (each for each in layers if not isinstance(each, nn.Identity)), strict=True):
        if not isinstance(layer, nn.Linear):
            raise ConfigError(
                f"The head '{name}' of {path} is a {type(layer).__name__}, and a class activation map needs a linear "
                "layer behind the pooling."
            )
        weight, bias = layer.weight @ weight, layer.weight @ bias.expand(layer.in_features)
        bias = bias if layer.bias is None else bias + layer.bias
    head = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    head.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return head.requires_grad_(False)
