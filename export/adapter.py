"""The adapter base class: all facts that the exporter needs to know about a model.

An adapter joins a loaded network with the facts that the bundle needs. The exporter, the parity check and the
tokenizers know a model only through it. This module does not import torch, so that command lines can list models.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from ..engines.errors import ConfigError
from ..engines.geometry import Geometry
from ..engines.registry import did_you_mean
from .libraries import required
from .models.model_registry import MODELS
from .models.saliency_maps import Mechanism, mechanism_of
from .resolution import at_resolution

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..engines.tokenizing import BackendTokenizer, TokenBatch
    from .tokenizing.reference import ReferenceOf, ReferenceTokenizer

Weights = Literal["published", "own", "stand-in", "demo"]
TokenizerKind = Literal["wordpiece", "clip-bpe", "tokenizer.json", "ready"]


@dataclass(frozen=True)
class CheckpointRecord:
    """Where the weights came from: file name (without folder) and sha256 of the whole file.

    `note` says what was read where the file or its folder holds several models. `activation`: of weights that do not
    state which GELU they were trained with, which one is computed, and why that one.
    """

    name: str
    sha256: str
    note: str = ""
    activation: str = ""

    def stored(self) -> dict[str, str]:
        """The entry `checkpoint` of bundle.json."""
        activation = {"activation": self.activation} if self.activation else {}
        return {"name": self.name, "sha256": self.sha256, **activation}


@dataclass(frozen=True)
class Saliency:
    """The source of the map: `attention` to the image, shares of 1 (raw variants: the scores before the softmax),
    `similarity` of patches and prompt: cosines, their softmax, or dot products, `activation`, what each cell adds to
    the logit, or `gradient`, attention weighted by the gradient of the logit; `description` says which. `smoothing`:
    the standard deviation, in cells, of the Gaussian by which `forward` smooths the map; 0 for a map that is not
    smoothed."""

    kind: Mechanism
    description: str
    smoothing: float = 0.0


@dataclass(frozen=True)
class TokenizerSpec:
    """How prompts are converted to token ids.

    `sources` are the official Hugging Face names (or the package) to look for, best first. `vocabulary` holds the
    word pieces themselves, in the order of their ids, when the checkpoint carries them (demo models).

    Of the kind "tokenizer.json" the whole tokenizer (BPE, Unigram, WordPiece or WordLevel) comes from the files of a
    folder, with their rules: casing, special tokens, the cut, the id that pads. Only `cleaning`, `sample` and
    `refuses_long` add to it.

    The rules of "wordpiece" belong to the model, not to a file: `separator` whether a text ends in [SEP],
    `special_words` whether "[SEP]" written out in a text is that token, `cleaning` the step before (a key of
    `engines.tokenizing.CLEANINGS`), `marks_continuations` whether pieces that continue a word get the mask 2. `ends`
    are the ids of [CLS] and [SEP], which help to identify a vocabulary. `sample` is a text and its ids, special tokens
    included: the export refuses a tokenizer that gives others. `refuses_long` ("clip-bpe"): a text longer than the
    context is an error, and is not cut. Without a sample the vocabulary must have as many pieces
    as the embedding table has rows, which is not so for all models: PubMedBERT's has 28895 pieces, its table 30522
    rows, as many as BERT's own.

    Of the kind "ready" is the tokenizer `ready`, which came with the model. `reference` is the tokenizer of the model's
    own library, or makes it of the vocabulary that was found; the export refuses a model whose texts get other ids.
    """

    kind: TokenizerKind
    sources: tuple[str, ...]
    lower_case: bool = True
    vocabulary: tuple[str, ...] | None = None
    separator: bool = True
    special_words: bool = False
    cleaning: str = ""
    marks_continuations: bool = False
    ends: tuple[int, int] | None = None
    sample: tuple[str, tuple[int, ...]] | None = None
    refuses_long: bool = False
    ready: BackendTokenizer | None = None
    reference: ReferenceTokenizer | ReferenceOf | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(TokenizerKind):
            hint = did_you_mean(self.kind, get_args(TokenizerKind))
            raise ConfigError(f"Unknown kind of tokenizer '{self.kind}': {hint}.")


@dataclass(kw_only=True, eq=False)
class Adapter(ABC):
    """A loaded model, in evaluation mode and float32, and what a bundle must know about it.

    `module` holds the network; its tensor names are the published ones. A constant that was not learnt, for example a
    smoothing filter, is one of its buffers with `persistent=False`. `text_shape` is the shape of one prompt's
    features, [D] for most models; `text_inputs` names the arguments of `encode_text`; `context` is the greatest
    number of tokens; `probability = sigmoid(logits)` for every model, and `cosine = logits / logit_scale` where the
    model is CLIP-like (`logit_scale` is 1.0 elsewhere).

    `averages_prompts` says that several prompts of a finding are one question: the mean of their features, which must
    not be normalised before. `texts_per_query` is above 1 where one prompt is several texts, each encoded separately;
    `text_shape` then begins with that number. `text_checkpoint` is the text encoder's file, if it is a separate one.
    `prompt_style` is the model whose built-in prompts are used, if it is not `name`.

    `grid`, `text_shape`, `context` and `vocabulary_size` may be left out: they are then found by running the model
    (export.model_sizes). `stand_in` is needed only for an export without a checkpoint.

    `maps` are the saliency maps the model can be exported with, by name, each with its description; the first is the
    official one. `map_name` is the selected one, empty for the official one.

    `weights` of a checkpoint is "published" when it is loaded; the export makes it "own" unless the file is known, or
    said, to be published, and says why in `weights_source`.

    `resized` says how the model takes another size than it was trained with (`Manifest.resized`).

    `findings` are all that a supervised model knows. It reads no text: it has neither `encode_text` nor `text_inputs`,
    and the text features of the i-th finding are row i of the identity matrix, by which `forward` selects.
    """

    variants: ClassVar[tuple[str, ...]] = ()
    maps: ClassVar[Mapping[str, str]] = {}
    more_options: ClassVar[tuple[str, ...]] = ()  # what `load` takes as **options

    module: nn.Module
    name: str
    variant: str
    geometry: Geometry
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    saliency: Saliency
    checkpoint: CheckpointRecord | None
    text_inputs: tuple[str, ...] = ()
    tokenizer: TokenizerSpec = TokenizerSpec("ready", ())
    findings: tuple[str, ...] = ()
    weights: Weights = "published"
    grid: tuple[int, int] = (0, 0)
    text_shape: tuple[int, ...] = ()
    context: int = 0
    vocabulary_size: int = 0
    logit_scale: float = 1.0
    texts_per_query: int = 1
    averages_prompts: bool = False
    text_checkpoint: CheckpointRecord | None = None
    prompt_style: str | None = None
    map_name: str = ""
    weights_source: str = ""
    resized: str = ""

    @classmethod
    @abstractmethod
    def load(cls, checkpoint: Path) -> Self:
        """Reads a published checkpoint; a subclass may add keyword options. Raises CheckpointError, ConfigError."""

    @classmethod
    def stand_in(cls, variant: str, seed: int) -> Self:
        """The model with deterministic stand-in weights, without any file. Raises ConfigError."""
        raise ConfigError(f"{cls.__name__} defines no 'stand_in', so it has no stand-in weights; give a checkpoint.")

    def __post_init__(self) -> None:
        if bool(self.text_inputs) == bool(self.findings):
            raise ConfigError(f"{self.name}: state either text_inputs or, for a supervised model, findings.")
        if not (self.text_shape and self.context and self.vocabulary_size and all(self.grid)):
            from .model_sizes import measure

            measure(self)

    @property
    def resolution(self) -> int:
        """Side in pixels of the picture that the image tower takes."""
        return self.geometry.size

    def resize(self, side: int) -> None:
        """Sets `module` and `grid` for pictures of `side` x `side` pixels. Raises ConfigError where that cannot be."""
        raise ConfigError(
            f"{self.name} takes pictures of {self.resolution} x {self.resolution} pixels alone, because its class "
            "defines no 'resize'; leave out the resolution."
        )

    @property
    def one_text_shape(self) -> tuple[int, ...]:
        """Shape of what `encode_text` returns for one text: `text_shape`, or its part for one text of a query."""
        return self.text_shape[1:] if self.texts_per_query > 1 else self.text_shape

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read where a file or its folder holds several models."""
        records = (self.checkpoint, self.text_checkpoint)
        return tuple(dict.fromkeys(record.note for record in records if record is not None and record.note))

    def choose_map(self, name: str) -> None:
        """Selects the saliency map `name` of `maps`; a map other than the official one is added to the variant's name,
        and is not smoothed.

        Raises ConfigError for a name the model does not have.
        """
        if name not in self.maps:
            raise ConfigError(f"{self.name} has no saliency map '{name}': {did_you_mean(name, self.maps)}.")
        if name != next(iter(self.maps)):
            self.map_name, self.variant = name, f"{self.variant}-{name}"
            self.saliency = Saliency(mechanism_of(name, self.saliency.kind), self.maps[name])

    def rename(self, name: str) -> None:
        """Gives the model the name that the user chose; the built-in prompts of the original name stay."""
        self.prompt_style, self.name = self.prompt_style or self.name, name

    def cautions(self) -> tuple[str, ...]:
        """Warnings for the user: the assumptions of the adapter about the weights."""
        return ()

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """ids, mask: int64 [T, tokens], any width up to `context`. Returns float32 [T, *one_text_shape]."""
        raise ConfigError(f"{type(self).__name__} defines no 'encode_text'; a supervised model states its `findings`.")

    def encoder_ids(self, batch: TokenBatch) -> list[list[int]]:
        """The ids of each text as they enter the text encoder: int64 [T, tokens] without the padding that is masked."""
        return [row[mask > 0].tolist() for row, mask in zip(batch.ids, batch.mask, strict=True)]

    @abstractmethod
    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """image: float32 [B, 3, S, S], normalised; text: float32 [Q, *text_shape], what `encode_text` returns.

        Returns logits float32 [B, Q] and saliency float32 [B, Q, *grid], rows from the top.
        """


def load_adapter(name: str, checkpoint: Path | str, **options: Any) -> Adapter:
    """The model `name` (a registered name or "path/to/file.py:Class") with the weights of `checkpoint`.

    Options that are None count as not given; with `resolution` every model takes pictures of that side. Raises
    CheckpointError (file), ConfigError (unknown model or option, a resolution that does not fit) and MissingExtraError
    (torch is not installed).
    """
    adapter = adapter_class(name)
    loaded = adapter.load(Path(checkpoint), **_checked_options(name, adapter.load, options))
    return at_resolution(loaded, options.get("resolution"))


def stand_in_adapter(name: str, variant: str | None = None, seed: int = 0, **options: Any) -> Adapter:
    """The model `name` with stand-in weights (a pure function of seed, tensor name and shape); reads no checkpoint.

    The default variant is the model's first; `options`: that the class takes. Raises
    ConfigError and MissingExtraError.
    """
    adapter = adapter_class(name)
    if not adapter.variants:
        raise ConfigError(
            f"The model '{name.rpartition(':')[2]}' names no 'variants', so it has no stand-in weights; give a "
            "checkpoint."
        )
    chosen = variant or adapter.variants[0]
    if chosen not in adapter.variants:
        raise ConfigError(f"The model '{name}' has no variant '{chosen}': {did_you_mean(chosen, adapter.variants)}.")
    made = adapter.stand_in(chosen, seed, **_checked_options(name, adapter.stand_in, options))
    return at_resolution(made, options.get("resolution"))


def _checked_options(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, all of which `function` takes; it need not take the resolution."""
    given = {key: value for key, value in options.items() if value is not None}
    parameters = inspect.signature(function).parameters.values()
    named = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
    more = adapter_class(name).more_options if len(named) < len(parameters) else ()
    options_of_class = [key for key in (*named, *more) if key not in ("checkpoint", "variant", "seed")]
    if "resolution" not in options_of_class:
        given.pop("resolution", None)
    if unknown := sorted(set(given) - set(options_of_class)):
        raise ConfigError(
            f"The model '{name.rpartition(':')[2]}' has no option '{unknown[0]}': "
            f"{did_you_mean(unknown[0], options_of_class)}."
        )
    return given


def adapter_class(name: str) -> type[Adapter]:
    """The class of the model `name`. Raises ConfigError (unknown, or no adapter) and MissingExtraError (no torch)."""
    required("torch", "A model")
    target = MODELS.load(name)
    if not (isinstance(target, type) and issubclass(target, Adapter)):
        raise ConfigError(f"'{name}' is not a model: {target!r} is not a subclass of xbench_fast.export.Adapter.")
    return target
