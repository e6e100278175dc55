"""What a probe is: forward passes for each image, or for each step, that become rows, and questions to these rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ....engines.registry import Registry
from ....metrics_gpu.statistics.bootstrap import SEED
from ...host.declaring import described
from ...host.options import Count, Natural

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ....engines.bundle import Bundle
    from ....engines.prompts.prompt_set import PromptSet
    from ....metrics_gpu.trust.verdicts import Criterion
    from .asking import AskedModel
    from .probe_images import PreparedImage, Row

IDENTITY: Final[Mapping[str, str]] = {
    "case_id": "string",
    "patient_id": "string",
    "finding": "string",
    "status": "string",
    "image_hash": "binary",
}
"""The columns that every probe has. A missing or unreadable image has one row, with a status other than "ok"."""

PROBES = Registry(
    "probe",
    {
        "repeat": f"{__package__}.stable:RepeatProbe",
        "deletion": f"{__package__}.faithful:DeletionProbe",
        "region": f"{__package__}.region_deletion:RegionProbe",
        "prompts": f"{__package__}.prompted:PromptsProbe",
        "stability": f"{__package__}.stable:StabilityProbe",
        "randomisation": f"{__package__}.randomisation:RandomisationProbe",
    },
)
FLIPS: Final = "flips"
"""The question of `stability`; its value is a share."""

MODES: Final = ("cascade", "independent", "text")
"""What `randomisation` changes: weights from the output on, blocks of weights one by one, or the prompts."""
Rule = Literal["permute", "redraw"]
RULES: Final[tuple[Rule, ...]] = get_args(Rule)
"""How weights are randomised: the values of a tensor in another order, or drawn with their mean and deviation."""

Levels = Literal["default", "all"]
"""Changes of `stability`: those of the definition, or stronger and weaker ones too."""


@dataclass(frozen=True)
class ProbeOptions:
    """Options of probes. modes: in `MODES`."""

    seed: Natural = field(default=SEED, metadata=described("Seed of every random choice."))
    seeds: Count = field(
        default=3,
        metadata=described("Number of times that weights are randomised, with the seed and the ones after it."),
    )
    blocks: Count = field(default=10, metadata=described("Number of steps in which weights are randomised."))
    rule: Rule = field(
        default="permute",
        metadata=described(
            "Way to randomise weights: permute them, or redraw them from a normal distribution with their mean and "
            "standard deviation."
        ),
    )
    modes: tuple[str, ...] = ("cascade",)
    levels: Levels = field(
        default="default",
        metadata=described(
            "Changes of the image in the probe stability. all adds weaker and stronger ones, which are not judged."
        ),
    )


@dataclass(frozen=True, eq=False)
class Question:
    """One number of a line of the card: a score, or a difference of two, of each of P pairs.

    key: for files. text: the value in words. line: the number on the card (docs/trust.md). pairs: a data frame of P
    rows with `finding`, `patient_id` and `degenerate`, whether one of the pair's maps is. values: float64 [P], NaN
    where a pair has no score; left_out: why -> how many of those. criterion: None for a number without a verdict.
    """

    key: str
    text: str
    line: int
    pairs: pd.DataFrame
    values: NDArray[np.float64]
    criterion: Criterion | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Judgement:
    """The questions to the rows of a probe. notes: lines below the table; facts: for trust.json, without NaN."""

    questions: Sequence[Question] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Probe(ABC):
    """What both kinds of probes have; the module docstring of the package says how to write one."""

    name: str
    columns: Mapping[str, str]

    def __init__(self, options: ProbeOptions) -> None:
        self.options = options

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the rows depend on besides the bundle, the images and the code."""
        return {}

    @abstractmethod
    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """rows: those with the status "ok"."""


class ImageProbe(Probe):
    """Changes the image, or nothing."""

    @abstractmethod
    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        """Forward passes of an image with that many pairs, at most; findings: of the prompt set."""

    @abstractmethod
    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]:
        """Rows about one image, with all of `IDENTITY`."""


class SurveyProbe(ImageProbe):
    """Changes each image in a way that depends on the model's answers about all of them as they are."""

    @abstractmethod
    def survey(self, images: Sequence[PreparedImage], model: AskedModel) -> Sequence[Row]:
        """Rows about unchanged images, from one pass of each; they are kept in a part file."""

    @abstractmethod
    def surveyed(self, rows: Sequence[Row], grid: tuple[int, int]) -> ImageProbe:
        """The probe that knows these rows, those of `survey` about all images; grid: of the model's maps."""


@dataclass(frozen=True, eq=False)
class StepWork:
    """The inputs of a `StepProbe`.

    images: all of them, readable and with their pairs. ask: an open model of a bundle and a prompt set, to be used in a
    with statement; it runs on ONNX Runtime, and counts its passes.
    """

    bundle: Bundle
    prompts: PromptSet
    images: Sequence[PreparedImage]
    ask: Callable[[Bundle, PromptSet], AbstractContextManager[AskedModel]]
    batch: int


class StepProbe(Probe):
    """Changes the model: each step asks another one about all images, once. Step 0 is the model as it is."""

    @abstractmethod
    def steps(self, bundle: Bundle) -> int:
        """The number of steps."""

    @abstractmethod
    def begin(self, work: StepWork) -> Callable[[int], Sequence[Row]]:
        """Asks the model as it is, and returns the function step -> rows."""
