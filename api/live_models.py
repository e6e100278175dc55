"""A model that is still trained, as the callable that `evaluate` takes in the place of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from .engines.errors import ConfigError
from .engines.geometry import Geometry
from .engines.prompts.prompt_encoding import assemble
from .engines.prompts.prompt_files import FindingPrompts
from .engines.registry import Registry, did_you_mean
from .runtime.evaluation.queries import Queries

__all__ = ["OpenClipModel", "TransformersModel", "open_clip_model", "transformers_model"]

# Named, not imported: this package does not depend on the exporter or on PyTorch.
_ADAPTERS: Final = Registry(
    "live model",
    {
        "open_clip": f"{__package__}.export.live:live_open_clip",
        "transformers": f"{__package__}.export.live:live_transformers",
    },
)
Floats = NDArray[np.float32]


class ModelInMemory:
    """A model with two towers in memory: what both libraries have in common."""

    _library: ClassVar[str]

    def __init__(self, model: Any, words: Any, given_prompts: Mapping[str, str | Sequence[str]] | None) -> None:
        prompts = _prompts(given_prompts or {})
        self._adapter = _ADAPTERS.load(self._library)(model, words)
        given = {name.casefold() for name in prompts}
        builtin = {name: entry for name, entry in self._adapter.prompts.items() if name.casefold() not in given}
        self._prompts: dict[str, FindingPrompts] = {**builtin, **prompts}
        self.geometry: Geometry = self._adapter.geometry

    def __call__(self, pixels: NDArray[np.uint8], findings: Sequence[str]) -> tuple[Floats, Floats]:
        """pixels uint8 [B, 1, S, S] and the names of Q findings -> logits float32 [B, Q] and saliency float32
        [B, Q, h, w], as the rows of a bundle have them: of the prompts that mean present, of several the means.

        Raises ConfigError for pixels of another size, for a finding without a prompt, and for a tokenizer that does not
        fit the model.
        """
        side = self.geometry.size
        if pixels.ndim != 4 or pixels.shape[1:] != (1, side, side):
            raise ConfigError(
                f"The model takes pixels [B, 1, {side}, {side}], not {list(pixels.shape)}; give evaluate the "
                "callable's own geometry."
            )
        entries = [FindingPrompts(name, self._texts(name)) for name in findings]
        texts = [text for entry in entries for text in entry.positive]
        logits, saliency = self._adapter.scores(pixels, texts)
        asked = assemble("live", entries, np.zeros((len(texts), 1), np.float32))
        queries = Queries.of(asked, {name: name for name in findings})
        of_case, of_finding = np.divmod(np.arange(len(pixels) * len(findings)), len(findings))
        maps = queries.maps(saliency, of_case, of_finding)
        return queries.logits(logits).positive, maps.reshape(len(pixels), len(findings), *maps.shape[1:])

    def _texts(self, name: str) -> tuple[str, ...]:
        """The positive prompts of a finding. A name that differs only in case is the same finding, as in a bundle."""
        entry = self._prompts.get(name)
        if entry is not None:
            return entry.positive
        near = {
            candidate.positive for finding, candidate in self._prompts.items() if finding.casefold() == name.casefold()
        }
        if len(near) == 1:
            return near.pop()
        raise ConfigError(
            f"CLIP has no built-in prompt for '{name}': {did_you_mean(name, self._prompts)}; give your own with "
            f"{self._library}_model(..., prompts={{NAME: TEXT}})."
        )


class OpenClipModel(ModelInMemory):
    """A model of open_clip as a live model for `evaluate`; `open_clip_model` returns one.

    geometry: how its pictures are prepared, for the option of `evaluate`. Each call asks the weights as they are, in
    evaluation mode and without gradients; afterwards each module is in the mode that it had.
    """

    _library = "open_clip"


class TransformersModel(ModelInMemory):
    """A CLIP or SigLIP of transformers as a live model for `evaluate`; `transformers_model` returns one.

    geometry: how its pictures are prepared. Calls are as those of an `OpenClipModel`.
    """

    _library = "transformers"


def open_clip_model(
    model: Any,
    tokenizer: Callable[[list[str]], Any],
    *,
    prompts: Mapping[str, str | Sequence[str]] | None = None,
) -> OpenClipModel:
    """The callable that `evaluate` needs for an open_clip model in memory, which may still be trained.

    model: as `open_clip.create_model` returns it, in float32 on any device; its weights are not copied. tokenizer: as
    `open_clip.get_tokenizer` returns it. prompts: finding -> text or texts, in the place of CLIP's built-in prompts
    (docs/parity.md §7) or next to them. The logit is the scaled cosine of image and prompt, the map the cosine of each
    patch and the prompt, as in the bundle of these weights (docs/parity.md §3.1).

    Raises ConfigError for a model whose patches cannot be read, and MissingExtraError without the extra export.
    """
    return OpenClipModel(model, tokenizer, prompts)


def transformers_model(
    model: Any, processor: Any, *, prompts: Mapping[str, str | Sequence[str]] | None = None
) -> TransformersModel:
    """The callable that `evaluate` needs for a CLIP or SigLIP of transformers in memory, which may still be trained.

    model: a `CLIPModel` or `SiglipModel` in float32 on any device; its weights are not copied. processor: as
    `AutoProcessor.from_pretrained` returns it, with `tokenizer` and `image_processor`. prompts: as of
    `open_clip_model`, and so are logit and map: those of the bundle of these weights.

    Raises ConfigError for another model, a processor that cannot be exported, and MissingExtraError without the extra
    export.
    """
    return TransformersModel(model, processor, prompts)


def _prompts(texts: Mapping[str, str | Sequence[str]]) -> dict[str, FindingPrompts]:
    given = {
        name: FindingPrompts(name, (text,) if isinstance(text, str) else tuple(text)) for name, text in texts.items()
    }
    for name, entry in given.items():
        if not entry.positive or not all(isinstance(text, str) and text.strip() for text in entry.positive):
            raise ConfigError(f"The prompts of '{name}' are no texts; give a text or several.")
    return given
