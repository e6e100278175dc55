"""CLIP ViT-B/32 and ViT-B/16 (Radford et al. 2021) with open_clip's towers (docs/parity.md §3.1).

OpenAI publishes no maps: saliency here is the cosine between each projected patch and the prompt, the project's own
definition. The checkpoint does not say which activation its weights were trained with; OpenAI's need QuickGELU, which
is what this adapter computes, so weights of other trainings (LAION, DataComp) do not belong here. Names and shapes do
not distinguish them: a file with another sha256 than OpenAI's gets a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ...engines.errors import CheckpointError
from ...engines.geometry import Geometry
from ..adapter import CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.matching import ModelTensors, renamed
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from ..checkpoints.stated_activation import QUICK, configured_activation, scripted_activation
from ..libraries import required
from ..tokenizing.reference import CLIP_BPE, clip_reference
from .layers.attention import PackedAttention
from .layers.gradient_attention import LastBlock, quick_gelu_slope
from .layers.positions import resize_tower
from .normalisation import CLIP_MEAN, CLIP_STD
from .published_checkpoints import PUBLISHED
from .saliency_maps import MAPS, PATCH_TEXT
from .two_towers import TwoTowers

if TYPE_CHECKING:
    from open_clip.model import CLIP

PATCHES = {"vit-b-32": 32, "vit-b-16": 16}
SIZE = 224
ANCHORS = ("visual.conv1.weight", "vision_model.embeddings.patch_embedding.weight")  # in every file, by its naming
# Scalars and masks of the TorchScript archives, and index buffers of old transformers releases; they are not weights.
NO_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask", "position_ids")
# In order; each is replaced where it occurs.
RENAMES = (
    ("vision_model.embeddings.patch_embedding.", "visual.conv1."),
    ("vision_model.embeddings.class_embedding", "visual.class_embedding"),
    ("vision_model.embeddings.position_embedding.weight", "visual.positional_embedding"),
    ("vision_model.pre_layrnorm.", "visual.ln_pre."),
    ("vision_model.post_layernorm.", "visual.ln_post."),
    ("vision_model.encoder.layers.", "visual.transformer.resblocks."),
    ("text_model.embeddings.token_embedding.", "token_embedding."),
    ("text_model.embeddings.position_embedding.weight", "positional_embedding"),
    ("text_model.final_layer_norm.", "ln_final."),
    ("text_model.encoder.layers.", "transformer.resblocks."),
    (".layer_norm1.", ".ln_1."),
    (".layer_norm2.", ".ln_2."),
    (".self_attn.", ".attn."),
    (".mlp.fc1.", ".mlp.c_fc."),
    (".mlp.fc2.", ".mlp.c_proj."),
)
TRANSPOSED = {"visual_projection.weight": "visual.proj", "text_projection.weight": "text_projection"}


class _BlockAttention(PackedAttention):
    """Replaces `nn.MultiheadAttention` in open_clip's blocks."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Self-attention: query, key and value are one tensor [B, N, C]; `attn_mask` [N, N] is added to the scores."""
        return super().forward(query, key, options.get("attn_mask"))[:2]


def build_clip(patch: int) -> CLIP:
    """open_clip's CLIP of ViT-B size with QuickGELU, untrained, its attention written out. Downloads nothing."""
    library = required("open_clip.model", "CLIP")
    vision = library.CLIPVisionCfg(layers=12, width=768, patch_size=patch, image_size=SIZE, output_tokens=True)
    text = library.CLIPTextCfg(layers=12, width=512, heads=8, context_length=77, vocab_size=49408)
    model: CLIP = library.CLIP(embed_dim=512, vision_cfg=vision, text_cfg=text, quick_gelu=True)
    model.attn_mask = None  # its size is fixed; encode_text makes the mask for the width it is given
    for tower in (model.visual.transformer, model.transformer):
        for block in tower.resblocks:
            block.attn = _BlockAttention(block.attn.embed_dim, block.attn.num_heads)
    return model


def read_clip(path: Path, patches: Mapping[str, int]) -> tuple[CLIP, str, CheckpointRecord]:
    """The network of a checkpoint, its variant of `patches` (pixels of a patch by variant), and the file's record.
    Raises CheckpointError."""
    source = read_checkpoint(path)
    tensors = ModelTensors(canonical_tensors(source.tensors(*ANCHORS), path), path, "CLIP", source.names())
    patch = tensors.shape("visual.conv1.weight", dimensions=4)[-1]
    variant = next((name for name, size in patches.items() if size == patch), None)
    if variant is None:
        raise CheckpointError(f"{path} is a CLIP with patches of {patch} pixels; known are {', '.join(patches)}.")
    with torch.device("meta"):
        module = build_clip(patch)
    tensors.install(module)
    return module, variant, quick_activation(source.path, source.record, source.names())


def text_vectors(model: CLIP, ids: Tensor) -> Tensor:
    """int64 [T, N], padded with 0 -> float32 [T, 512], not normalised.

    A position attends only to itself and those before it, so the tokens after the end token have no effect and no mask
    is used. The end token has the largest id; the first one counts.
    """
    places = torch.arange(ids.shape[1], device=ids.device)
    x = model.token_embedding(ids) + F.embedding(places, model.positional_embedding)
    later = places[None, :] > places[:, None]
    causal = torch.zeros_like(later, dtype=x.dtype).masked_fill(later, float("-inf"))
    x = model.ln_final(model.transformer(x, attn_mask=causal))
    rows = torch.arange(ids.shape[0], device=ids.device)
    features: Tensor = x[rows, ids.argmax(dim=-1)] @ model.text_projection
    return features


def image_vectors(model: CLIP, image: Tensor, *, values: bool = False) -> tuple[Tensor, Tensor]:
    """Class token [B, 512] and patches [B, N, 512], both after the final norm and the projection; with `values` the
    patches have value-value attention in the last block."""
    visual = model.visual
    if not values:
        pooled, tokens = visual(image)
        return pooled, tokens @ visual.proj
    x, last = _before_last(visual, image)
    y = x + last.attn.values(last.ln_1(x))
    y = y + last.mlp(last.ln_2(y))
    return visual._pool(last(x))[0] @ visual.proj, visual._pool(y)[1] @ visual.proj


def weighed_attention(model: CLIP, image: Tensor, text: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Class token [B, 512], and the last attention to each patch, weighted by the gradient of the scaled cosine of each
    text [Q, 512]: [B, Q, N]."""
    visual = model.visual
    x, last = _before_last(visual, image)
    packed = F.linear(last.ln_1(x), last.attn.in_proj_weight, last.attn.in_proj_bias)
    mlp = last.mlp
    block = LastBlock(last.attn.heads, last.attn.out_proj, last.ln_2, mlp.c_fc, mlp.gelu, quick_gelu_slope, mlp.c_proj,
                      visual.ln_post, visual.proj)  # fmt: skip
    return block.weigh(x, packed, text, scale)


def _before_last(visual: Any, image: Tensor) -> tuple[Tensor, Any]:
    """What enters the last block, and the block."""
    x = visual._embeds(image)
    *blocks, last = visual.transformer.resblocks
    for block in blocks:
        x = block(x)
    return x, last


class ClipAdapter(TwoTowers):
    """OpenAI's weights, in any of the three published forms."""

    variants: ClassVar[tuple[str, ...]] = tuple(PATCHES)
    maps: ClassVar[Mapping[str, str]] = MAPS["clip"]
    module: CLIP

    @classmethod
    def load(cls, checkpoint: Path) -> Self:
        """Reads OpenAI's TorchScript archive, open_clip's file or the transformers file. Raises CheckpointError."""
        module, variant, record = read_clip(checkpoint, PATCHES)
        return cls._describe(module, variant, "published", record)

    @classmethod
    def stand_in(cls, variant: str, seed: int = 0) -> Self:
        """`variant` is "vit-b-32" or "vit-b-16"."""
        return cls._describe(stand_in_module(lambda: build_clip(PATCHES[variant]), seed), variant, "stand-in", None)

    @classmethod
    def _describe(cls, module: CLIP, variant: str, weights: Weights, record: CheckpointRecord | None) -> Self:
        cells = SIZE // PATCHES[variant]
        return cls(
            module=module,
            name="clip",
            variant=variant,
            weights=weights,
            geometry=Geometry("crop", SIZE, SIZE, "bicubic"),
            mean=CLIP_MEAN,
            std=CLIP_STD,
            grid=(cells, cells),
            saliency=Saliency("similarity", cls.maps[PATCH_TEXT]),
            logit_scale=float(module.logit_scale.exp()),
            text_shape=(module.text_projection.shape[1],),
            text_inputs=("input_ids",),
            context=module.positional_embedding.shape[0],
            vocabulary_size=module.token_embedding.num_embeddings,
            tokenizer=TokenizerSpec(
                "clip-bpe", ("open_clip",), cleaning="clip", sample=CLIP_BPE, reference=clip_reference
            ),
            checkpoint=record,
        )

    def resize(self, side: int) -> None:
        """By resampling the positions, as open_clip does."""
        resize_tower(self.module.visual, side, self.name)
        self.grid = self.module.visual.grid_size

    def cautions(self) -> tuple[str, ...]:
        """A warning that QuickGELU is assumed, unless the file is one of OpenAI's own or says so itself."""
        record = self.checkpoint
        if record is None or record.sha256 in PUBLISHED["clip"].sha256.values() or "read from" in record.activation:
            return ()
        return (
            f"{record.name} is none of OpenAI's own files (sha256), and no CLIP file states its activation: "
            "QuickGELU is assumed, as OpenAI's weights need it; LAION and DataComp weights have the same names and "
            "come out wrong, so do not export them",
        )

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N], padded with 0 -> float32 [T, 512], not normalised; no mask is used."""
        return text_vectors(self.module, ids)

    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Class token [B, 512] and patches [B, N, 512], both after the final norm and the projection."""
        return image_vectors(self.module, image)

    def encode_values(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The same class token, and the patches with value-value attention in the last block."""
        return image_vectors(self.module, image, values=True)

    def weigh_attention(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The same class token, and the last attention weighted by the gradient of the score."""
        return weighed_attention(self.module, image, text, self.scale())


def canonical_tensors(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors of any published CLIP file under OpenAI's names; unknown names pass unchanged.

    Raises CheckpointError when the file at `path` has one tensor under two names.
    """
    weights = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] not in NO_WEIGHTS}
    if any(name.startswith(("vision_model.", "text_model.")) for name in weights):
        return _from_transformers(weights, path)
    return weights


def quick_activation(path: Path, record: CheckpointRecord, names: Iterable[str]) -> CheckpointRecord:
    """The record of the CLIP file at `path` with the source of QuickGELU; for OpenAI's own files, the record unchanged.

    `names` are its tensors' names. Raises CheckpointError where the file, or the config.json in the folder of one of
    transformers, states another activation.
    """
    if record.sha256 in PUBLISHED["clip"].sha256.values():
        return record
    activation, source = scripted_activation(path), "read from TorchScript code"
    if not activation and any("vision_model." in name for name in names):
        activation, source = configured_activation(path), "read from config.json"
    if activation not in ("", QUICK):
        raise CheckpointError(
            f"{path} was trained with {activation} ({source}), and this model computes {QUICK}; export it with "
            "--family open_clip and its architecture, or the folder with --family transformers."
        )
    assumed = "assumed, because no CLIP file states it"
    return replace(record, activation=f"{QUICK}, {source if activation else assumed}")


def _from_transformers(weights: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    turned = {name: tensor.T if name in TRANSPOSED else tensor for name, tensor in weights.items()}
    tensors = renamed(turned, _rename, path=path)
    for name in [name for name in tensors if ".attn.q_proj." in name]:
        trio = [name.replace("q_proj", f"{part}_proj") for part in "qkv"]
        packed = name.replace("q_proj.", "in_proj_")
        if all(part in tensors for part in trio) and packed not in tensors:
            tensors[packed] = torch.cat([tensors.pop(part) for part in trio])
    return tensors


def _rename(name: str) -> str:
    if name in TRANSPOSED:
        return TRANSPOSED[name]
    for old, new in RENAMES:
        name = name.replace(old, new)
    return name
