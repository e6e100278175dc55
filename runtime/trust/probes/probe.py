"""What a probe is: forward passes for each image, or for each step, that become rows, and questions to these rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ....engines.registry import Registry

if TYPE_CHECKING:
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
    "image_hash": "image",
}
"""The columns that every probe has. A missing or unreadable image has one row, with a status other than "ok"."""

PROBES = Registry(
    "probe",
    {
        "repeat": f"{__package__}.repeat:RepeatProbe",
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
    """Options of probes.

    seed: of all random streams. seeds: how many times weights are randomised, with `seed` and the next ones. blocks:
    in how many steps. rule: `permute` or `redraw`. modes: of `randomisation`, in `MODES`. levels: of `stability`.
    """

    seed: int = 0
    seeds: int = 3
    blocks: int = 10
    rule: Rule = "permute"
    modes: tuple[str, ...] = ("cascade",)
    levels: Levels = "default"


@dataclass(frozen=True, eq=False)
class Question:
    """One line of the card: a score, or a difference of two, of each of P pairs.

    key: for files. text: what the value is, in words. findings, patients: of the pairs. values: float64 [P], NaN where
    a pair has no score; left_out: why -> how many of those. degenerate: bool [P], whether one of its maps is.
    criterion: None for a number without a verdict. line: the number on the card (docs/trust.md).
    """

    key: str
    text: str
    line: int
    findings: Sequence[str]
    patients: Sequence[str]
    values: NDArray[np.float64]
    degenerate: NDArray[np.bool_]
    criterion: Criterion | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a probe says of its rows. notes: lines below the table; facts: for trust.json, without NaN."""

    questions: Sequence[Question] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Probe(Protocol):
    """What both kinds of probes have; the module docstring of the package says how to write one."""

    name: str
    columns: Mapping[str, str]

    @property
    def settings(self) -> Mapping[str, Any]: ...

    def judge(self, rows: pa.Table, bundle: Bundle) -> Judgement:
        """rows: those with the status "ok"."""
        ...


@runtime_checkable
class ImageProbe(Probe, Protocol):
    """Changes the image, or nothing."""

    def passes(self, pairs: int, grid: tuple[int, int], findings: int) -> int:
        """Forward passes of an image with that many pairs, at most; findings: of the prompt set."""
        ...

    def rows(self, image: PreparedImage, model: AskedModel) -> Sequence[Row]: ...


@runtime_checkable
class SurveyProbe(ImageProbe, Protocol):
    """Changes each image in a way that depends on the model's answers about all of them as they are."""

    def survey(self, images: Sequence[PreparedImage], model: AskedModel) -> Sequence[Row]:
        """Rows about unchanged images, from one pass of each; they have all of `IDENTITY` and stand in a part file."""
        ...

    def surveyed(self, rows: Sequence[Row], grid: tuple[int, int]) -> ImageProbe:
        """The probe that knows these rows, those of `survey` about all images; grid: of the model's maps."""
        ...


@dataclass(frozen=True, eq=False)
class StepWork:
    """What a `StepProbe` works on.

    images: all of them, readable and with their pairs. ask: an open model of a bundle and a prompt set, to be used in a
    with statement; it runs on ONNX Runtime, and counts its passes.
    """

    bundle: Bundle
    prompts: PromptSet
    images: Sequence[PreparedImage]
    ask: Callable[[Bundle, PromptSet], AbstractContextManager[AskedModel]]
    batch: int


@runtime_checkable
class StepProbe(Probe, Protocol):
    """Changes the model: each step asks another one about all images, once. Step 0 is the model as it is."""

    def steps(self, bundle: Bundle) -> int: ...

    def begin(self, work: StepWork) -> Callable[[int], Sequence[Row]]:
        """Asks the model as it is, and returns the function step -> rows."""
        ...
