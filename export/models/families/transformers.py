"""CLIP and SigLIP as transformers saves them: a folder with configuration, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from ....engines.errors import CheckpointError, ConfigError
from ....engines.registry import did_you_mean
from ....engines.strict_json import parse_json
from ...adapter import Saliency, TokenizerSpec
from ...checkpoints.matching import install
from ...checkpoints.reading import read_checkpoint
from ...libraries import required
from ..layers.positions import patches_across, resample
from ..saliency_maps import PATCH_TEXT
from .family import ImageTower, ModelFamily, TextPadding, check_float32, check_style, each_alone, evaluating, patch_grid
from .folder_texts import folder_texts, refuse_left
from .preprocessing import Preprocessing, from_processor
from .transformers_towers import image_processor, untrained

_KINDS = {"clip": "CLIPModel", "siglip": "SiglipModel"}
_NOT_WEIGHTS = ".position_ids"  # index buffers that old releases stored


class TransformersAdapter(ModelFamily):
    """`checkpoint` is the folder, or the file of weights in it."""

    assumptions: tuple[str, ...] = ()

    @classmethod
    def load(cls, checkpoint: Path, *, tokenizer: Path | None = None, prompt_style: str = "clip") -> Self:
        """`tokenizer` is a folder with the tokenizer, if it is not in the folder of the weights.

        Raises CheckpointError, ConfigError and MissingExtraError.
        """
        check_style(prompt_style)
        folder = checkpoint if checkpoint.is_dir() else checkpoint.parent
        model_type = _model_type(folder)
        model = untrained(folder, _KINDS[model_type])
        source = read_checkpoint(checkpoint)
        tensors = {name: one for name, one in source.tensors("logit_scale").items() if not name.endswith(_NOT_WEIGHTS)}
        install(model, tensors, path=checkpoint, model=_KINDS[model_type], names=source.names())
        text, image = model.config.text_config, model.config.vision_config
        entry = from_processor(
            image_processor(folder),
            int(image.image_size),
            f"The image processor of {folder} (preprocessor_config.json)",
        )
        spec, padding, context = _texts(tokenizer or folder, str(folder), model_type, int(text.max_position_embeddings))
        made = cls._connected(model, str(folder), entry, padding, context)
        made.tokenizer, made.checkpoint, made.prompt_style = spec, source.record, prompt_style
        if model_type == "siglip":
            made.assumptions = _assumptions(made, int(text.max_position_embeddings))
        return made

    @classmethod
    def of_model(cls, model: Any, processor: Any) -> Self:
        """A CLIP or SigLIP in memory with its processor, of the weights that it has now and will have: they are not
        copied. Texts are ids and mask [T, context] of the processor's tokenizer, filled on the right.

        Raises ConfigError (another model, weights that are not float32, a processor without tokenizer or images, an
        image processor that cannot be exported) and MissingExtraError.
        """
        transformers = required("transformers", "This family")
        title = f"this {type(model).__name__}"
        kinds: Any = tuple(getattr(transformers, kind) for kind in _KINDS.values())
        if not isinstance(model, kinds):
            raise ConfigError(
                f"{title} is no {' or '.join(_KINDS.values())} of transformers; give the model that from_pretrained "
                "returns, which is `module` of a DistributedDataParallel."
            )
        for name in ("tokenizer", "image_processor"):
            if not hasattr(processor, name):
                raise ConfigError(
                    f"The processor of {title} is a {type(processor).__name__} without '{name}'; give the one that "
                    "transformers.AutoProcessor.from_pretrained returns."
                )
        check_float32(model, title)
        words, positions = processor.tokenizer, int(model.config.text_config.max_position_embeddings)
        longest = int(words.model_max_length)
        masked = model.config.model_type == "siglip" and "attention_mask" in words.model_input_names
        padding = TextPadding(int(words.pad_token_id or 0), words.padding_side == "left", masked=masked)
        entry = from_processor(
            processor.image_processor, int(model.config.vision_config.image_size), f"The image processor of {title}"
        )
        with evaluating(model):
            return cls._connected(model, title, entry, padding, min(positions, longest))

    @classmethod
    def _connected(cls, model: Any, title: str, entry: Preprocessing, padding: TextPadding, context: int) -> Self:
        """The adapter of `model`, whose image tower is run once."""
        text, clip = model.config.text_config, model.config.model_type == "clip"
        tower, image_vector = _clip(model) if clip else _siglip(model)
        project = model.text_projection if clip else None
        device = next(model.parameters()).device
        made = cls(
            module=model,
            name="transformers",
            variant=str(entry.geometry.size),
            geometry=entry.geometry,
            mean=entry.mean,
            std=entry.std,
            saliency=Saliency("similarity", cls.maps[PATCH_TEXT]),
            grid=patch_grid(tower, image_vector, entry.geometry.size, title, device),
            text_inputs=("input_ids", "attention_mask"),
            context=context,
            text_shape=(int(model.config.projection_dim if clip else text.projection_size),),
            vocabulary_size=int(text.vocab_size),
            checkpoint=None,
            logit_scale=float(model.logit_scale.detach().exp()) if clip else 1.0,
        )

        def read_text(ids: Tensor, mask: Tensor | None = None) -> Tensor:
            pooled: Tensor = model.text_model(input_ids=ids, attention_mask=mask).pooler_output
            return pooled if project is None else project(pooled)

        made.connect(tower, read_text, padding)
        return made

    def resize(self, side: int) -> None:
        """By resampling the positions as open_clip does; the library's own way, by forward, has no antialias."""
        tower: Any = self.module.vision_model
        table = tower.embeddings
        cells = patches_across(side, table.patch_size, self.name)
        resample(table.position_embedding, "weight", cells, table.num_positions - table.num_patches)
        table.image_size, table.position_ids = side, torch.arange(len(table.position_embedding.weight))[None]
        self.grid = (cells, cells)

    def cautions(self) -> tuple[str, ...]:
        """What the tokenizer of a SigLIP leaves open: capitals, and the length that a text is filled up to."""
        return self.assumptions


def _texts(folder: Path, title: str, model_type: str, positions: int) -> tuple[TokenizerSpec, TextPadding, int]:
    """How texts enter the model, and how many tokens one has: cut and filled as transformers does it by default.

    The text tower of SigLIP gets the tokenizer's attention mask where its class gives one (`model_input_names`). CLIP's
    is causal and needs none. Raises ConfigError for a CLIP whose texts are filled on the left: what it computes then
    depends on the length.
    """
    spec, ready, library = folder_texts(folder, title, positions, filled=True)
    if model_type == "clip":
        refuse_left(ready, folder, "CLIP")
    masked = model_type == "siglip" and "attention_mask" in library.model_input_names
    return spec, TextPadding(ready.padding, ready.left, masked=masked), ready.context


def _assumptions(made: TransformersAdapter, positions: int) -> tuple[str, ...]:
    """The remark on a SigLIP whose tokenizer distinguishes capitals from small letters, which SigLIP was not trained to
    do, or states a shorter text than the model has positions: its result depends on the length, for it reads the last
    one."""
    ready, folder, cautions = made.tokenizer.ready, made.tokenizer.sources[0], []
    if ready is not None and ready(["Effusion"]).ids.tolist() != ready(["effusion"]).ids.tolist():
        cautions.append(
            f"the tokenizer of {folder} keeps capital letters, as its class says, but SigLIP 2 was trained on texts in "
            'lower case: write your prompts so, or name the class "Siglip2Tokenizer" in its tokenizer_config.json'
        )
    if made.context < positions:
        cautions.append(
            f"texts are cut at and filled to {made.context} tokens, as model_max_length of the tokenizer says, but "
            f"{folder} has {positions} positions, and transformers' pipeline fills to 64 whatever it says: the result "
            "of SigLIP depends on it, so check with which length the model was trained"
        )
    return tuple(cautions)


def _clip(model: Any) -> tuple[ImageTower, Callable[[Tensor], Tensor]]:
    vision, project = model.vision_model, model.visual_projection

    def read(image: Tensor) -> tuple[Tensor, Tensor]:
        tokens = project(vision.post_layernorm(vision(pixel_values=image).last_hidden_state))
        return tokens[:, 0], tokens[:, 1:]

    return read, lambda image: project(vision(pixel_values=image).pooler_output)


def _siglip(model: Any) -> tuple[ImageTower, Callable[[Tensor], Tensor]]:
    vision = model.vision_model

    def read(image: Tensor) -> tuple[Tensor, Tensor]:
        encoded = vision(pixel_values=image)
        return encoded.pooler_output, each_alone(encoded.last_hidden_state, vision.head)

    return read, lambda image: vision(pixel_values=image).pooler_output


def _model_type(folder: Path) -> str:
    path = folder / "config.json"
    try:
        model_type = parse_json(path.read_text(encoding="utf-8"))["model_type"]
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder} has no config.json: give --checkpoint the folder that save_pretrained wrote, or that was "
            "downloaded whole."
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error!r}); download the folder again.") from error
    if model_type == "siglip2":
        raise ConfigError(
            f"{folder} is a SigLIP 2 with pictures of any size (NaFlex), which has no fixed grid; those with "
            "a fixed resolution can be exported."
        )
    if model_type not in _KINDS:
        raise ConfigError(
            f"{folder} is a '{model_type}' model; the family 'transformers' reads CLIP and SigLIP: "
            f"{did_you_mean(str(model_type), _KINDS)}; write an adapter for it."
        )
    return str(model_type)
