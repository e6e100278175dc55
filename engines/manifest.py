"""The content of bundle.json as dataclasses (format: engines/README.md); manifest_json reads it.

msgspec checks the types and the limits of the fields when a file is read, not when Python code makes an object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta

from .errors import BundleError
from .geometry import Geometry
from .strict_json import CHECKSUM, checksum_of

SCHEMA = 1
SCHEMA_FIXED = 2
"""The schema of a bundle with `findings`, so that versions which expect texts refuse it."""

PAPER_MODELS = ("clip", "biomedclip", "medklip", "kad", "mavl", "carzero", "devide")
"""The models of the paper, in its order."""
MODEL_ORDER = (*PAPER_MODELS, "biovil", "biovil_t", "chexzero", "afloc", "xrv")
"""All known models in the order of tables and lists: the paper's, the later ones, the supervised one."""
COMPARED: Final = "compared"
"""The key of `text` with the record of the texts whose ids were compared with the model's own library; null
where the model names no library, missing in bundles of versions that compared none."""
OFFICIAL_MAP: Final = "official"
"""Value of `saliency["choice"]` in bundle.json for the map of a model's authors."""
_SMOOTHED: Final = {"biovil": 1.5, "biovil_t": 1.5, "afloc": 1.5}
"""Models whose official map is smoothed in the graph -> the standard deviation, in cells."""

Weights = Literal["published", "own", "stand-in", "demo", "randomised"]
Text = Annotated[str, Meta(min_length=1)]
Size = Annotated[int, Meta(ge=1, le=2**31)]
Side = Annotated[int, Meta(ge=1, le=1024)]


@dataclass(frozen=True)
class TensorSpec:
    """One graph input or output; a string in `shape` is a dynamic axis of that name."""

    name: Text
    dtype: Annotated[str, Meta(pattern=r"^(uint8|int64|float16|float32)\Z")]
    shape: tuple[Size | Text, ...]


@dataclass(frozen=True)
class GraphSpec:
    """An ONNX file of the bundle and its interface, in order."""

    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class PromptRecord:
    """The entry of a prompt set in bundle.json; the features are in `file`.

    `texts[q]` is asked for finding `findings[finding_of[q]]`, with polarity +1 (present) or -1 (absent).
    `status[f]` says where the words of a finding come from ("official", "adapted", "own", ...).
    """

    file: str
    findings: tuple[Text, ...]
    texts: tuple[Text, ...]
    finding_of: tuple[Annotated[int, Meta(ge=0)], ...]
    polarity: tuple[Annotated[int, Meta(ge=-1, le=1)], ...]
    status: tuple[Text, ...]


@dataclass(frozen=True)
class FileRecord:
    """Hash and size of one file."""

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    bytes: Annotated[int, Meta(ge=0, le=2**40)]


@dataclass(frozen=True)
class CalibrationImage:
    """One image that an INT8 graph was calibrated on: its name in its dataset and the sha256 of its file."""

    name: str
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


@dataclass(frozen=True)
class Quantisation:
    """How an INT8 graph was made.

    `form`: one of engines.quantised.FORMS. `method`: how ranges follow from the calibration images, "min-max" or
    "percentile P"; `data`: description of these images; `reader`: the version of their decoders, empty where
    the exporting version did not record it; `layers`: how many products are in int8; `kept_float`: names of the
    products that could be and are not; `compared_on`: the runtime and version that gave the numbers of the parity
    report; `not_on`: runtimes that give others (engines.quantised.OTHER_NUMBERS). Both are empty in older bundles.
    """

    form: Literal["vnni", "any-cpu", "tensorrt"]
    method: Text
    data: Text
    images: tuple[CalibrationImage, ...]
    layers: Annotated[int, Meta(ge=1)]
    kept_float: tuple[str, ...] = ()
    reader: str = ""
    compared_on: str = ""
    not_on: tuple[str, ...] = ()


class SaliencyFacts(TypedDict, total=False):
    """The map: its `kind` and `description`, `choice`, its name, and `smoothing`, the standard deviation in
    cells of the Gaussian by which the graph smooths it, 0 for none."""

    kind: str
    description: str
    choice: str
    smoothing: Annotated[float, Meta(ge=0, le=1024)]


def known_smoothing(model: str, saliency_map: str) -> float:
    """The smoothing of a bundle, or of the result of one, that does not state it, as older versions wrote them."""
    return _SMOOTHED.get(model, 0.0) if saliency_map == OFFICIAL_MAP else 0.0


@dataclass(frozen=True)
class Manifest:
    """The content of bundle.json.

    `checkpoint` is {"name", "sha256"} or None for stand-in weights; `logit_scale` is what the graph multiplied the
    score by (cosine = logits / logit_scale; 1 for models whose score is no cosine); `parity` is the report of the
    export; `text` holds the tokenizer record and the context length; `precision` ("fp32", "fp16", "bf16", "int8") is
    the type of the graphs' weights and products, `quantisation` how an INT8 graph was made; `weights_source` why
    weights are known as published, in words: empty for others, and in bundles of versions that took every checkpoint
    for published; `not_learnt` names constants of the image graph that look like weights, such as a smoothing filter;
    `findings` are the only ones that a supervised model knows: it reads no text, and the text features of the i-th are
    row i of the identity matrix; `largest_batch` is the largest batch in which images of a wrapped graph were compared
    with the same images alone, and no engine gives the graph more: None where nothing states it,
    and at least 2, since the engine on the CPU computes pairs; `resized`: how a model takes pictures of another size
    than it was trained with, "positions resampled from 224" or "by size, trained at 224", empty for its own size.
    """

    model: Text
    variant: Text
    weights: Weights
    checkpoint: Mapping[str, str] | None
    geometry: Geometry
    grid: tuple[Side, Side]
    saliency: SaliencyFacts
    logit_scale: Annotated[float, Meta(gt=0, le=sys.float_info.max)]
    text: Mapping[str, Any]
    graphs: Mapping[str, GraphSpec]
    prompt_sets: Mapping[str, PromptRecord]
    opset: Annotated[int, Meta(ge=1, le=1000)]
    exporter: Mapping[str, str]
    parity: Mapping[str, Any]
    files: Mapping[str, FileRecord] = field(default_factory=dict)
    precision: str = "fp32"
    weights_source: str = ""
    quantisation: Quantisation | None = None
    not_learnt: tuple[Text, ...] = ()
    findings: tuple[Text, ...] = ()
    largest_batch: Annotated[int, Meta(ge=2, le=2**20)] | None = None
    resized: str = ""

    def batch_within(self, asked: int) -> int:
        """The number of images that the graph may get at once where `asked` are wanted."""
        return asked if self.largest_batch is None else min(asked, self.largest_batch)

    @property
    def averages_prompts(self) -> bool:
        """Whether several prompts of a finding are one question, the mean of their features."""
        return self.text.get("averages_prompts") is True

    @property
    def uncompared_texts(self) -> bool:
        """Whether a version that compared no texts exported the model of a library, by its tokenizer's record: from a
        folder, or CLIP's with a text graph that takes a mask, as no built-in model of CLIP's has."""
        record = self.text.get("tokenizer")
        if COMPARED in self.text or "text" not in self.graphs or not isinstance(record, dict):
            return False
        masked = any(tensor.name == "attention_mask" for tensor in self.graphs["text"].inputs)
        form, cleaning = record.get("kind"), record.get("cleaning")
        return (form == "tokenizer.json" and cleaning in (None, "open_clip")) or (form == "clip-bpe" and masked)

    @property
    def saliency_map(self) -> str:
        """The name of the exported map, `OFFICIAL_MAP` for the map of the model's authors."""
        return self.saliency.get("choice", OFFICIAL_MAP)

    @property
    def smoothing(self) -> float:
        """The standard deviation, in cells, of the Gaussian by which the graph smooths its map; 0 for none."""
        return self.saliency.get("smoothing", known_smoothing(self.model, self.saliency_map))

    def dump(self) -> bytes:
        """The bytes of bundle.json: the fields by name, the schema's number and a checksum; tuples become lists.

        Raises BundleError for values JSON cannot hold (NaN, infinity).
        """
        try:
            schema = SCHEMA_FIXED if self.findings else SCHEMA
            data: dict[str, Any] = {"schema": schema, **asdict(self), "geometry": self.geometry.to_json()}
            for key in ("weights_source", "quantisation", "not_learnt", "findings", "largest_batch", "resized"):
                if not data[key]:
                    del data[key]
            data[CHECKSUM] = checksum_of(data)
            text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise BundleError(f"bundle.json cannot be written: {error}.") from error
        return (text + "\n").encode()


def parity_summary(parity: Mapping[str, Any]) -> str:
    """A parity report in a few words: what was compared, the largest error and the allowed error."""
    if not {"compared", "needed", "tolerance", "passed"} <= parity.keys():
        return "none recorded"
    verdict = "passed" if parity["passed"] is True else "failed"
    limit = f"{parity['needed']:.1e} of {parity['tolerance']:.0e} allowed"
    return f"{verdict}: {parity['compared']} comparisons, error {limit}"
