"""A model in memory, with weights that may still change, asked as its bundle would be: by the adapter's own forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engines.errors import ConfigError
from ..engines.geometry import Geometry
from ..engines.prompts.prompt_files import FindingPrompts
from .libraries import required
from .prompts.builtin import builtin_sets

if TYPE_CHECKING:
    from .adapter import Adapter

_STYLE = "clip"  # of the built-in prompts
Floats = NDArray[np.float32]
Encode = Callable[[list[str]], tuple[Any, Any]]


class LiveAdapter:
    """An adapter over the weights of a model as they are at each call.

    geometry: how the model's pictures are prepared. prompts: finding -> its built-in prompts. Calls run in evaluation
    mode and without gradients; afterwards each module is in the mode that it had.
    """

    def __init__(self, adapter: Adapter, encode: Encode, example: str) -> None:
        """`encode`: texts -> ids int64 [T, context] of the model's tokenizer, and their mask or None. `example`: where
        a tokenizer can be had, for messages."""
        from .onnx_graph import ImageGraph

        self.geometry: Geometry = adapter.geometry
        self.prompts: Mapping[str, FindingPrompts] = {
            entry.finding: entry for entry in chain.from_iterable(builtin_sets(_STYLE).values())
        }
        self._adapter, self._encode, self._example, self._graph = adapter, encode, example, ImageGraph(adapter)

    def scores(self, pixels: NDArray[np.uint8], texts: Sequence[str]) -> tuple[Floats, Floats]:
        """pixels uint8 [B, 1, S, S] and Q texts -> logits float32 [B, Q] and saliency float32 [B, Q, h, w].

        Raises ConfigError for a tokenizer whose ids do not fit the model.
        """
        import torch

        from .models.families.family import evaluating

        adapter = self._adapter
        device = next(adapter.module.parameters()).device
        ids, mask = (None if each is None else torch.as_tensor(each).long() for each in self._encode(list(texts)))
        assert ids is not None
        fits = ids.shape == (len(texts), adapter.context)
        if not fits or not 0 <= int(ids.min()) <= int(ids.max()) < adapter.vocabulary_size:
            raise ConfigError(
                f"The tokenizer gives ids {list(ids.shape)} up to {int(ids.max())}, and the model takes "
                f"[{len(texts)}, {adapter.context}] below {adapter.vocabulary_size}; give the model's own tokenizer, "
                f"for example {self._example}."
            )
        with torch.no_grad(), evaluating(adapter.module):
            self._graph.mean, self._graph.std = (
                statistic.to(device) for statistic in (self._graph.mean, self._graph.std)
            )
            features = adapter.encode_text(ids.to(device), None if mask is None else mask.to(device)).float()
            logits, saliency = self._graph(torch.from_numpy(np.ascontiguousarray(pixels)).to(device), features)
        return logits.float().cpu().numpy(), saliency.float().cpu().numpy()


def live_open_clip(model: Any, tokenizer: Callable[[list[str]], Any]) -> LiveAdapter:
    """A model that open_clip made, and its tokenizer: texts -> ids int64 [T, context].

    Raises ConfigError as `OpenClipAdapter.of_model`, and MissingExtraError.
    """
    for name in ("torch", "onnx", "open_clip"):
        required(name, "A model of open_clip")
    from .models.families.open_clip import OpenClipAdapter

    if not callable(tokenizer):
        raise ConfigError(
            f"The tokenizer of an open_clip model is called with texts, and {type(tokenizer).__name__} cannot be; give "
            "open_clip.get_tokenizer(NAME)."
        )
    import torch

    width = torch.as_tensor(tokenizer([""])).shape[-1]
    adapter = OpenClipAdapter.of_model(model, width)
    return LiveAdapter(adapter, lambda texts: (tokenizer(texts), None), "open_clip.get_tokenizer(NAME)")


def live_transformers(model: Any, processor: Any) -> LiveAdapter:
    """A CLIP or SigLIP of transformers, and its processor.

    Raises ConfigError as `TransformersAdapter.of_model`, and MissingExtraError.
    """
    for name in ("torch", "onnx", "transformers"):
        required(name, "A model of transformers")
    from .models.families.transformers import TransformersAdapter

    adapter = TransformersAdapter.of_model(model, processor)

    def encode(texts: list[str]) -> tuple[Any, Any]:
        """Filled on the right; the adapter fills them as the model was trained."""
        words = processor.tokenizer(
            texts,
            padding="max_length",
            padding_side="right",
            max_length=adapter.context,
            truncation=True,
            return_attention_mask=True,
        )
        return words["input_ids"], words["attention_mask"]

    return LiveAdapter(adapter, encode, "transformers.AutoProcessor.from_pretrained(NAME)")
