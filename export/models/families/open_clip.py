"""Any model of open_clip: an architecture by its name, or an open_clip_config.json, and the user's weights."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from ....engines.errors import ConfigError
from ....engines.file_names import label_stems
from ....engines.registry import did_you_mean
from ....engines.strict_json import parse_json
from ...adapter import Saliency, TokenizerSpec
from ...checkpoints.matching import install
from ...checkpoints.reading import read_checkpoint
from ...libraries import required, short_reason
from ..clip import canonical_tensors
from ..layers.positions import resize_tower
from ..saliency_maps import PATCH_TEXT
from .family import ModelFamily, TextPadding, check_float32, check_style, evaluating, near, patch_grid
from .image_towers import image_tower
from .open_clip_options import as_named, check_sizes, follow_options, pooling_caution, with_activation
from .open_clip_texts import cached_folder, open_clip_texts
from .preprocessing import Preprocessing, from_open_clip

_CONFIG = "open_clip_config.json"
_PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")


@dataclass(frozen=True)
class _Architecture:
    """`title` for messages, the `model` configuration, `preprocessing` in open_clip's words, the `folder` of the
    snapshot that it is from, and `twin`: there is the same architecture with QuickGELU."""

    title: str
    model: dict[str, Any]
    preprocessing: dict[str, Any]
    cautions: tuple[str, ...] = ()
    folder: Path | None = None
    twin: bool = False


class OpenClipAdapter(ModelFamily):
    """`arch` is a name of open_clip, or an open_clip_config.json; by default the one in the checkpoint's folder."""

    warnings: tuple[str, ...] = ()

    @classmethod
    def load(
        cls,
        checkpoint: Path,
        *,
        arch: str | None = None,
        tokenizer: Path | None = None,
        text_encoder: Path | None = None,
        prompt_style: str = "clip",
        preprocess: Mapping[str, Any] | None = None,
    ) -> Self:
        """`preprocess` replaces what open_clip says of the architecture: `size`, `mean`, `std`, `interpolation`, and
        `resize_mode`, "shortest" or "squash". `tokenizer` and `text_encoder` are folders, for architectures with those
        of another model.

        Raises CheckpointError, ConfigError and MissingExtraError.
        """
        check_style(prompt_style)
        architecture = _architecture(arch, checkpoint)
        given = dict(preprocess or {})
        for key in given:
            if key not in (*_PREPROCESSING, "size"):
                hint = did_you_mean(key, (*_PREPROCESSING, "size"))
                raise ConfigError(f"{architecture.title}: 'preprocess' has no key '{key}': {hint}.")
        if "size" in given:
            architecture.model["vision_cfg"]["image_size"] = given.pop("size")
        architecture.preprocessing.update(given)
        source = read_checkpoint(checkpoint)
        tensors = canonical_tensors(source.tensors("logit_scale"), checkpoint)
        follow_options(architecture.model, tensors)
        model = _build(architecture, text_encoder)
        cautions = pooling_caution(tensors, model, architecture.model["text_cfg"])
        tensors = as_named(tensors, model)
        check_sizes(
            model, architecture.model["vision_cfg"].get("image_size", 224), tensors, checkpoint, architecture.title
        )
        install(model, tensors, path=checkpoint, model=architecture.title, names=source.names())
        record = with_activation(source.record, source.path, architecture.model, architecture.title)
        made = cls._describe(model, architecture, tokenizer, prompt_style, record)
        made.warnings += cautions
        return made

    @classmethod
    def _describe(
        cls, model: Any, architecture: _Architecture, folder: Path | None, prompt_style: str, record: Any
    ) -> Self:
        entry = from_open_clip({"size": model.visual.image_size, **architecture.preprocessing}, architecture.title)
        context = int(architecture.model["text_cfg"].get("context_length", 77))
        spec, padding = open_clip_texts(architecture.model, architecture.title, folder, architecture.folder)
        made = cls._connected(model, architecture.title, entry, (spec, padding), context)
        made.checkpoint, made.prompt_style, made.warnings = record, prompt_style, architecture.cautions
        if architecture.twin and "read from" not in record.activation:
            made.warnings += (
                f"'{architecture.title}' computes GELU; OpenAI's weights and others trained with QuickGELU need "
                f"'{architecture.title}-quickgelu', and no checkpoint says which it is",
            )
        return made

    @classmethod
    def of_model(cls, model: Any, width: int) -> Self:
        """A model that open_clip made, with the weights that it has now and will have: they are not copied. Texts are
        ids [T, context] of its own tokenizer; `width`: of those that the tokenizer gives.

        Raises ConfigError (no model of open_clip, weights that are not float32, an image tower whose patches cannot be
        read, pictures that are not square) and MissingExtraError.
        """
        library = required("open_clip.model", "This family")
        title = f"this {type(model).__name__}"
        for name in ("visual", "encode_image", "encode_text", "logit_scale"):
            if not hasattr(model, name):
                raise ConfigError(
                    f"{title} is no model of open_clip, because it has no '{name}'; give the model that "
                    "open_clip.create_model returns, which is `module` of a DistributedDataParallel."
                )
        check_float32(model, title)
        ways = {key: value for key, value in library.get_model_preprocess_cfg(model).items() if key in _PREPROCESSING}
        entry = from_open_clip({**_default(), **ways, "size": model.visual.image_size}, title)
        # A text tower of transformers states its table of positions (0 for T5), which texts need not fill.
        towers = hasattr(model, "text") and hasattr(model.text, "config")
        context = width if towers else getattr(model, "context_length", None) or model.text.context_length
        with evaluating(model):
            return cls._connected(model, title, entry, (TokenizerSpec("ready", ()), TextPadding()), int(context))

    @classmethod
    def _connected(
        cls, model: Any, title: str, entry: Preprocessing, words: tuple[TokenizerSpec, TextPadding], context: int
    ) -> Self:
        """The adapter of `model`, whose towers are run once."""
        tower, ids = image_tower(model.visual, title), torch.zeros((1, context), dtype=torch.int64)
        device = next(model.parameters()).device
        with torch.inference_mode():
            features = model.encode_text(ids.to(device), normalize=False)
        made = cls(
            module=model,
            name="open_clip",
            variant=label_stems([title])[0][:40].strip("-"),
            geometry=entry.geometry,
            mean=entry.mean,
            std=entry.std,
            saliency=Saliency("similarity", cls.maps[PATCH_TEXT]),
            grid=patch_grid(tower, model.encode_image, entry.geometry.size, title, device),
            text_shape=tuple(features.shape[1:]),
            text_inputs=("input_ids", "attention_mask"),
            context=context,
            vocabulary_size=int(getattr(model, "vocab_size", None) or model.text.vocab_size),
            tokenizer=words[0],
            checkpoint=None,
            logit_scale=1.0
            if getattr(model, "logit_bias", None) is not None
            else float(model.logit_scale.detach().exp()),
        )
        made.connect(tower, lambda ids: model.encode_text(ids, normalize=False), words[1])
        return made

    def resize(self, side: int) -> None:
        """By resampling what positions the tower has, as open_clip and timm do."""
        model: Any = self.module
        resize_tower(model.visual, side, self.name)
        self.grid = patch_grid(self.read_image, model.encode_image, side, self.name)

    def cautions(self) -> tuple[str, ...]:
        """What the architecture leaves open."""
        return self.warnings


def _architecture(arch: str | None, checkpoint: Path) -> _Architecture:
    beside = (checkpoint if checkpoint.is_dir() else checkpoint.parent) / _CONFIG
    if arch is None:
        if not beside.is_file():
            raise ConfigError(
                f"No architecture for {checkpoint}: give --arch NAME (`arch` in xbench.toml), such as ViT-B-16, or put "
                f"its {_CONFIG} into its folder."
            )
        return _from_file(beside)
    path = Path(arch)
    if path.suffix == ".json" or path.is_dir():
        return _from_file(path / _CONFIG if path.is_dir() else path)
    open_clip = required("open_clip", "This family")
    name = arch.replace("/", "-")
    model = open_clip.get_model_config(name) if ":" not in name else None
    if model is None:
        hint = near(name, open_clip.list_models(), "open_clip.list_models() has its names.")
        raise ConfigError(f"open_clip has no architecture '{arch}': {hint}")
    tags = open_clip.list_pretrained_tags_by_model(name)
    configurations = [open_clip.pretrained.get_pretrained_cfg(name, tag) for tag in tags]
    ways = [{key: tag[key] for key in _PREPROCESSING if key in tag} for tag in configurations]
    same = ways and all(way == ways[0] for way in ways)
    cautions = []
    if not same:
        cautions.append(
            f"open_clip does not say how pictures enter '{name}'; mean and std of CLIP, the shorter side resized by "
            "bicubic interpolation and the centre cut are assumed (change them in the option preprocess)"
        )
    twin = f"{name}-quickgelu" in open_clip.list_models()
    ways_in, snapshot = _default() | (dict(ways[0]) if same else {}), beside.parent if beside.is_file() else None
    return _Architecture(name, model, ways_in, tuple(cautions), snapshot, twin)


def _default() -> dict[str, Any]:
    from open_clip.transform import PreprocessCfg

    default = PreprocessCfg()
    return {key: getattr(default, key) for key in _PREPROCESSING}


def _from_file(path: Path) -> _Architecture:
    required("open_clip", "This family")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        model = content.get("model_cfg", content)
        parts = {"embed_dim", "vision_cfg", "text_cfg"} - set(model)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"The architecture {path} cannot be read: {error}; give a name, or the path of an {_CONFIG}."
        ) from error
    if parts:
        raise ConfigError(f"{path} is no configuration of open_clip: it has no '{sorted(parts)[0]}'.")
    ways = {key: value for key, value in content.get("preprocess_cfg", {}).items() if key in _PREPROCESSING}
    title = path.resolve().parent.name if path.name == _CONFIG else path.stem
    return _Architecture(title, model, _default() | ways, folder=path.parent if path.name == _CONFIG else None)


def _build(architecture: _Architecture, text_encoder: Path | None) -> Any:
    """The untrained model, as open_clip's `create_model` builds it. Downloads nothing."""
    from open_clip.coca_model import CoCa
    from open_clip.model import CLIP, CustomTextCLIP

    model = deepcopy(architecture.model)
    text = model["text_cfg"]
    if "timm_model_name" in model["vision_cfg"]:
        model["vision_cfg"]["timm_model_pretrained"] = False
    if "hf_model_name" in text:
        text["hf_model_pretrained"] = False
        text["hf_model_name"] = str(
            text_encoder or cached_folder(text["hf_model_name"], "config.json", architecture.title)
        )
    custom = model.pop("custom_text", False) or "hf_model_name" in text
    model_class = (CoCa if "multimodal_cfg" in model else CustomTextCLIP) if custom else CLIP
    try:
        return model_class(**model).eval()
    except Exception as error:  # of open_clip, timm or transformers, about a value of the configuration
        raise ConfigError(f"open_clip cannot build {architecture.title}: {short_reason(error)}.") from error
