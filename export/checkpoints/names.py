"""Names of tensors as training tools change them: prefixes, inserted parts and endings, and how to undo them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

_WRAPPERS: Final = {
    "_orig_mod",  # torch.compile
    "_checkpoint_wrapped_module",  # activation checkpointing and offloading of torch
    "_fsdp_wrapped_module",  # FSDP of torch and of fairscale
    "_fpw_module",  # FlattenParamsWrapper of fairscale and of torch 1.11
    "_forward_module",  # Lightning Fabric
    "_ddp_module",
}
"""Parts that only a wrapper adds: no model calls a part of itself so."""
_MAYBE_WRAPPERS: Final = {"module", "_module", "_original_module", "mod"}
"""Parts of DataParallel, Opacus, ONNX Runtime's training and old activation checkpointing, which a model may use too:
they are left out only where the model's own names show it."""

_FORMS: Final = (
    (
        r"lora_|(^|\.)base_layer\.|(^|\.)modules_to_save\.",
        "it also holds a LoRA adapter: merge it (merge_and_unload of peft) and save the state_dict",
    ),
    (
        r"(^|[._])flat_param(_\d+)?$",
        "it holds the flat parameters of FSDP: save the state_dict of the whole model (StateDictType.FULL_STATE_DICT)",
    ),
    (
        r"(^|\.)parametrizations\.",
        "its weights are parametrized: call torch.nn.utils.parametrize.remove_parametrizations and save it again",
    ),
    (
        r"weight_(orig|mask)$",
        "its weights are pruned or spectrally normalised: call torch.nn.utils.prune.remove or "
        "torch.nn.utils.remove_spectral_norm and save it again",
    ),
    (r"weight_[gv]$", "its weights are normalised: call torch.nn.utils.remove_weight_norm and save it again"),
    (
        r"\.(_packed_params\S*|SCB|weight_format|zero_point|absmax|quant_map|quant_state\S*|qweight|qzeros|scales)$",
        "its weights are quantised, which cannot be exported: save them in 16 or 32 bits",
    ),
)
"""Patterns of names that weights have after a transformation, and how to undo it."""


def plain_name(name: str) -> str:
    """The name without the parts that wrappers add at any depth, and without `module.` at its beginning."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":
        del parts[0]
    return ".".join(parts)


def without_wrappers(name: str) -> str:
    """The name without the parts that a wrapper may have added and a model may have."""
    *parts, leaf = plain_name(name).split(".")
    return ".".join([*(part for part in parts if part not in _MAYBE_WRAPPERS), leaf])


def has_word(name: str, word: str) -> bool:
    """Whether the lower-case `word` is a whole word of the name: between dots, underscores and the like."""
    return word in re.split(r"[^a-z0-9]+", name.lower())


def nearest_form(names: Iterable[str], tensors: Mapping[str, Tensor]) -> str:
    """How weights with these names were transformed, and how to undo it; empty for other names."""
    listed = list(names)
    for pattern, sentence in _FORMS:
        if name := next((name for name in listed if re.search(pattern, name)), None):
            return f"{sentence} (as {name} shows)"
    empty = [name for name, tensor in tensors.items() if tensor.ndim and not tensor.numel()]
    if empty and len(empty) * 2 > len(tensors):
        return (
            "most of its tensors are empty, as DeepSpeed ZeRO 3 leaves them in the states of the model: the weights "
            "are in the optimiser's states, and zero_to_fp32.py in the folder of the training joins them"
        )
    return ""


def place_of(needed: Mapping[str, Sequence[int]], tensors: Iterable[str], names: Iterable[str]) -> str:
    """Where the file with the tensors `names` has more of those `needed` than were found: under which prefix."""
    counts = Counter(prefix for name in names for prefix in _before(plain_name(name), needed))
    prefix, count = max(counts.items(), key=lambda item: (item[1], -len(item[0])), default=("", 0))
    if not prefix or 2 * count < len(needed) or count <= sum(name in needed for name in tensors):
        return ""
    subject = f"{count} of the {len(needed)} tensors that it needs are" if len(needed) > 1 else "it is"
    return f"{subject} under '{prefix}': save what is there alone, as the whole state"


def _before(name: str, needed: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """The prefixes of the name whose rest is one of `needed`."""
    for dot in re.finditer(r"\.", name):
        if name[dot.end() :] in needed:
            yield name[: dot.start()]
