"""Two towers of any kind: of images by timm, torchvision or transformers, of texts by transformers, with projections
into a common space that the configuration names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn

from ....engines.errors import ConfigError
from ....engines.tokenizing import TokenBatch
from ...adapter import Adapter, Saliency
from ...checkpoints.reading import read_checkpoint
from ..saliency_maps import PATCH_TEXT
from .backbones import POOLINGS, Backbone, backbone
from .family import ModelFamily, TextPadding, check_style
from .folder_texts import TEXT_POOLINGS, TextTower, text_tower
from .named_tensors import Kinds, NamedTensors, checked, chosen

_PART: Final[Kinds] = {"projection": (str, list), "pooling": str, "prefix": str}
_OPTIONS: Final[Kinds] = {
    "image": dict,
    "text": dict,
    "activation": str,
    "logit_scale": (str, int, float),
    "preprocess": dict,
    "arch_options": dict,
    "unused": list,
    "prompt_style": str,
}


class TwoNamedTowers(nn.Module):
    """The towers, their projections, and the logarithm of the factor of the cosine."""

    def __init__(self, image: nn.Module, text: nn.Module, projections: Mapping[str, nn.Module], scale: Tensor) -> None:
        super().__init__()
        self.image, self.text = image, text
        self.image_projection, self.text_projection = projections["image"], projections["text"]
        self.logit_scale = nn.Parameter(scale, requires_grad=False)


class DualAdapter(ModelFamily):
    """`arch` is the image tower, `text_encoder` the folder of the text tower's config.json."""

    more_options: ClassVar[tuple[str, ...]] = tuple(_OPTIONS)
    tower: Backbone
    remarks: tuple[str, ...] = ()

    @classmethod
    def load(
        cls,
        checkpoint: Path,
        *,
        arch: str | None = None,
        text_encoder: Path | None = None,
        tokenizer: Path | None = None,
        **options: Any,
    ) -> Self:
        """`image` and `text` are tables: `projection`, the names of its layers in the file, "" for none; `pooling`;
        `prefix` of the tower's tensors; `context` of texts. `activation` is between the layers of a projection.
        `logit_scale`: the name of its logarithm in the file, or the factor itself. `preprocess`: how pictures enter.
        `arch_options`: arguments of the library's function. `unused`: beginnings of names that are left out.

        Raises CheckpointError, ConfigError and MissingExtraError.
        """
        checked(options, _OPTIONS, "The family dual")
        check_style(style := options.get("prompt_style", "clip"))
        if arch is None or text_encoder is None:
            raise ConfigError("A model of the family dual needs 'arch', its image tower, and 'text_encoder', a folder.")
        image = checked(options.get("image", {}), _PART, "The option 'image'")
        text = checked(options.get("text", {}), {**_PART, "context": int}, "The option 'text'")
        for name, table in (("image", image), ("text", text)):
            if "projection" not in table:
                raise ConfigError(
                    f"The option '{name}' of the family dual names no 'projection': write the name of its layers in "
                    f'{checkpoint}, or "" if the tower has none.'
                )
        tower = backbone(arch, options, chosen(image, "pooling", POOLINGS, "own"))
        folder = text_encoder.parent if text_encoder.is_file() else text_encoder
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"There is no {folder / 'config.json'}; give as 'text_encoder' the folder of a text tower."
            )
        words = text_tower(
            folder, tokenizer or folder, chosen(text, "pooling", TEXT_POOLINGS, "cls"), text.get("context")
        )
        source = read_checkpoint(checkpoint)
        names = {name: _names(table["projection"]) for name, table in (("image", image), ("text", text))}
        tensors = NamedTensors(
            source,
            checkpoint,
            [f"{name}.weight" for part in names.values() for name in part],
            options.get("unused", ()),
        )
        projections = {part: tensors.layers(own, options.get("activation", "")) for part, own in names.items()}
        scale, bias = _scale(tensors, options.get("logit_scale", "logit_scale"))
        record = _load_text(tensors, words, text.get("prefix"), text_encoder)
        tower.load(tensors, image.get("prefix"))
        tensors.finish(f"the towers of {checkpoint.name}")
        module = TwoNamedTowers(tower.module, words.module, projections, scale)
        if bias is not None:
            module.register_parameter("logit_bias", nn.Parameter(bias, requires_grad=False))
        made = cls._connected(module, tower, words, checkpoint)
        made.checkpoint, made.text_checkpoint, made.prompt_style = source.record, record, style
        return made

    @classmethod
    def _connected(cls, module: TwoNamedTowers, tower: Backbone, words: TextTower, path: Path) -> Self:
        def read(image: Tensor) -> tuple[Tensor, Tensor]:
            vector, patches = tower.read(image)
            rows = module.image_projection(patches.flatten(0, 1))  # a norm over the batch takes rows alone
            return module.image_projection(vector), torch.unflatten(rows, 0, (-1, patches.shape[1]))

        size = tower.entry.geometry.size
        grid = tower.grid(size)
        ids = torch.zeros(1, 2, dtype=torch.int64)
        widths = (
            _width(lambda: read(torch.zeros(1, 3, size, size))[0], "image", path),
            _width(lambda: module.text_projection(words.read(ids, torch.ones_like(ids))), "text", path),
        )
        if widths[0] != widths[1]:
            raise ConfigError(
                f"The image vectors of {path} have {widths[0]} values and its text vectors {widths[1]}, so the towers "
                "share no space: name the projection of each, as 'projection' of the options 'image' and 'text'."
            )
        made = cls(
            module=module,
            name="dual",
            variant=str(size),
            geometry=tower.entry.geometry,
            mean=tower.entry.mean,
            std=tower.entry.std,
            saliency=Saliency("similarity", cls.maps[PATCH_TEXT]),
            grid=grid,
            text_inputs=("input_ids", "attention_mask"),
            context=words.context,
            text_shape=(widths[1],),
            vocabulary_size=words.vocabulary_size,
            tokenizer=words.spec,
            checkpoint=None,
            logit_scale=1.0 if hasattr(module, "logit_bias") else float(module.logit_scale.exp()),
        )
        made.tower = tower
        made.connect(read, lambda ids, mask: module.text_projection(words.read(ids, mask)), TextPadding())
        return made

    def encoder_ids(self, batch: TokenBatch) -> list[list[int]]:
        """The ids without filling, which is masked."""
        return Adapter.encoder_ids(self, batch)

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N] -> float32 [T, D]; texts keep their width."""
        return self.read_text(ids, torch.ones_like(ids) if mask is None else mask)

    def resize(self, side: int) -> None:
        """As the image tower's library lets it."""
        self.tower.resize(side)
        self.grid = self.tower.grid(side)

    def cautions(self) -> tuple[str, ...]:
        """That how pictures enter is the library's, where the configuration does not say it."""
        return self.tower.cautions()


def _names(projection: str | list[str]) -> list[str]:
    return [name for name in ([projection] if isinstance(projection, str) else projection) if name]


def _scale(tensors: NamedTensors, given: str | float) -> tuple[Tensor, Tensor | None]:
    """The logarithm of the factor of the cosine, and the bias that is added, if the file has one, both []."""
    bias = tensors.scalar("logit_bias") if "logit_bias" in tensors else None
    if isinstance(given, str):
        return tensors.scalar(given), bias
    if not 0 < given < math.inf:
        raise ConfigError(f"The option 'logit_scale' is {given}; the factor of the cosine is above 0.")
    return torch.tensor(math.log(given)), bias


def _load_text(tensors: NamedTensors, words: TextTower, prefix: str | None, text_encoder: Path) -> Any:
    """Installs the text tower: of the file, or of its own folder where the file has none; then returns the record of
    that file."""
    if prefix is not None or tensors.holds(words.module):
        tensors.tower(words.module, prefix, words.title, words.renamed)
        return None
    source = read_checkpoint(text_encoder)
    NamedTensors(source, text_encoder, (), ()).tower(words.module, None, words.title, words.renamed, partly=True)
    return source.record


def _width(run: Any, part: str, path: Path) -> int:
    try:
        with torch.inference_mode():
            return int(run().shape[-1])
    except RuntimeError as error:
        raise ConfigError(
            f"The projection of the {part} tower does not fit its vectors in {path} ({error}); check 'projection' and "
            f"'pooling' of the option '{part}'."
        ) from error
