"""A live model: a callable of the user's program, evaluated instead of a bundle (docs/python.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ...engines.base import Engine, EngineInfo, Scores
from ...engines.bundle import Bundle
from ...engines.errors import ConfigError, EngineError
from ...engines.geometry import Geometry
from ...engines.manifest import GraphSpec, Manifest, TensorSpec
from ...engines.prompts.prompt_set import PromptSet

LiveFunction = Callable[[NDArray[np.uint8], list[str]], tuple[Any, Any]]


@dataclass(frozen=True)
class LiveModel:
    """A model that is called, not exported.

    function: (pixels uint8 [B, 1, S, S], the names of Q findings) -> (logits [B, Q], saliency [B, Q, h, w]), floating
    point, NumPy arrays or tensors on any device; saliency on the model's grid, not normalised. Of a dataset that asks
    phrases it gets Q phrases, others for each batch. It is called in the thread that runs the evaluation. geometry: how
    pixels are prepared; S is its size. name: in tables. version: names the state of the model; results are reused only
    if it is given and equal. Raises ConfigError.
    """

    function: LiveFunction
    geometry: Geometry
    name: str
    version: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"A live model is a callable, and {type(self.function).__name__} is none.")
        if not self.name.strip() or ":" in self.name:
            raise ConfigError(f"A live model cannot be called '{self.name}'; give a name without a colon.")

    @property
    def description(self) -> str:
        """What the maps depend on, for the key of a result: different for each run if no version is given."""
        return f"live, version {self.version}" if self.version is not None else f"live, unnamed version {uuid4().hex}"


class LiveEngine(Engine):
    """Calls a live model for one list of findings, or for phrases (`ask_texts`), and checks what it returns. It has no
    real bundle: its `bundle` holds the geometry and the grid, and no file. `secret`: no message repeats the texts.

    The model is first called with one black image: this gives its grid, and shows errors before images are decoded.
    Raises EngineError.
    """

    def __init__(self, model: LiveModel, findings: Sequence[str], *, secret: bool = False) -> None:
        self._model = model
        self._findings = list(findings)
        self._secret = secret
        self._grid: tuple[int, int] | None = None
        side = model.geometry.size
        first = self.ask_texts(np.zeros((1, 1, side, side), np.uint8), self._findings).saliency
        grid = self._grid = first.shape[2], first.shape[3]
        super().__init__(Bundle(Path(model.name), _manifest(model, grid), digest=""))

    def run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """Scores of a batch, pixels uint8 [B, 1, S, S]; `text` is used only for the number of findings.

        Raises EngineError for outputs of another shape or type, and for logits that are not finite.
        """
        return self._run(pixels, text)

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        return self.ask_texts(pixels, self._findings)

    def ask_texts(self, pixels: NDArray[np.uint8], texts: Sequence[str]) -> Scores:
        """Scores of a batch and these findings or phrases. Raises EngineError as `run`."""
        name, wanted = self._model.name, (len(pixels), len(texts))
        # The function may keep what it gets, and the memory of a block is used again (`reading.read_ahead`).
        returned: object = self._model.function(pixels.copy(), list(texts))
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise EngineError(
                f"{name} returned {_type_name(returned)}; it must return two arrays, logits and saliency."
            )
        logits, saliency = (_floats(name, what, item) for what, item in zip(_OUTPUTS, returned, strict=True))
        if logits.shape != wanted or saliency.shape[:2] != wanted or saliency.ndim != 4 or 0 in saliency.shape:
            raise EngineError(
                f"{name} returned logits {list(logits.shape)} and saliency {list(saliency.shape)} for {wanted[0]} "
                f"image{'s' * (wanted[0] > 1)} and {wanted[1]} findings; they must be [{wanted[0]}, {wanted[1]}] and "
                f"[{wanted[0]}, {wanted[1]}, h, w]."
            )
        if self._grid not in (None, saliency.shape[2:]):
            raise EngineError(
                f"{name} returned saliency of {list(saliency.shape[2:])} cells, and of {list(self._grid or ())} "
                "before; its grid must stay the same."
            )
        if not np.isfinite(logits).all():
            image, finding = (int(n) for n in np.argwhere(~np.isfinite(logits))[0])
            raise EngineError(
                f"{name} returned a logit that is not finite (image {image} of the batch, "
                f"{'a phrase' if self._secret else repr(texts[finding])}); check its weights."
            )
        return Scores(logits, saliency)

    def _open(self) -> EngineInfo:
        return EngineInfo("live", "", "fp32", "a callable of the program that evaluates")

    def _close(self) -> None:
        """Does nothing: the model belongs to the caller."""


def one_query_each(findings: Sequence[str], name: str = "live") -> PromptSet:
    """One query for each finding: a live model gets the names and makes its own texts from them, and a case that is
    asked phrases has one for a finding."""
    count = len(findings)
    return PromptSet(
        name=name,
        findings=tuple(findings),
        texts=tuple(findings),
        finding_of=np.arange(count, dtype=np.int32),
        polarity=np.ones(count, np.int8),
        features=np.zeros((count, 1), np.float32),
        status=(name,) * count,
    )


_OUTPUTS = ("logits", "saliency")


def _manifest(model: LiveModel, grid: tuple[int, int]) -> Manifest:
    side, batch, findings = model.geometry.size, "batch", "findings"
    image = GraphSpec(
        file="",
        inputs=(TensorSpec("pixels", "uint8", (batch, 1, side, side)), TensorSpec("text", "float32", (findings, 1))),
        outputs=(
            TensorSpec("logits", "float32", (batch, findings)),
            TensorSpec("saliency", "float32", (batch, findings, *grid)),
        ),
    )
    return Manifest(
        model=model.name,
        variant="",
        weights="stand-in",
        checkpoint=None,
        geometry=model.geometry,
        grid=grid,
        saliency={},
        logit_scale=1.0,
        text={},
        graphs={"image": image},
        prompt_sets={},
        opset=0,
        exporter={},
        parity={},
    )


def _floats(name: str, what: str, value: Any) -> NDArray[np.float32]:
    """The values on the host as float32. Raises EngineError."""
    if hasattr(value, "detach"):  # PyTorch; types that NumPy does not know, such as bfloat16, widen without loss
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    elif hasattr(value, "__cuda_array_interface__"):
        value = value.get()
    if not hasattr(value, "shape"):
        raise EngineError(f"{name} returned {what} as {_type_name(value)}; return a NumPy array or a tensor.")
    array = np.asarray(value)
    if array.dtype.kind != "f":
        raise EngineError(f"{name} returned {what} of {array.dtype}; return floating-point numbers.")
    return np.ascontiguousarray(array, np.float32)


def _type_name(value: object) -> str:
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return f"{type(value).__name__}{size}"
