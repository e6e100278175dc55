"""A bundle and the engine that runs it: scores of prepared pixels, and answers for single radiographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from .engines.base import EngineOptions, Scores
from .engines.bundle import Bundle
from .engines.errors import DataError, ImageError
from .engines.geometry import Geometry
from .engines.prompts.prompt_files import FindingPrompts
from .engines.select import open_engine as open_backend
from .options import FilePath
from .runtime.reporting.dicom.dicom_object import DEFAULT_KINDS, DicomObject
from .runtime.serving.inference.request_images import Prepared, prepare_file, prepare_grey
from .runtime.serving.inference.response_outputs import build_answer
from .runtime.serving.inference.served_models import ServedModel
from .runtime.serving.protocol.interface import BOX_COLUMNS
from .runtime.serving.protocol.requests import Request, check_request

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Prediction", "Predictor", "decoder_version", "open_engine", "prepare"]

Image = FilePath | NDArray[np.uint8]
Prompts = Mapping[str, str | Sequence[str]]
_OUTPUTS = frozenset({"logits", "probabilities", "saliency", "boxes"})


@dataclass(frozen=True)
class Prediction:
    """The outputs of a model for one radiograph and F findings; `xbench-fast serve` returns the same values.

    findings: F names. logits: float32 [F]. probabilities: float64 [F], sigmoid(logits). saliency: float32 [F, h, w],
    the model's own maps, not normalised. boxes: a row for each region of the map on the image that reaches the
    threshold: finding, x0, y0, x1, y1 as fractions of the image's width and height, peak (largest value inside, 0..1).
    """

    findings: tuple[str, ...]
    logits: NDArray[np.float32]
    probabilities: NDArray[np.float64]
    saliency: NDArray[np.float32]
    boxes: pd.DataFrame


class Predictor:
    """An opened bundle; use it in a with statement. `open_engine` returns one."""

    def __init__(self, bundle: Bundle, engine: str, threads: int | None, options: EngineOptions) -> None:
        self.bundle = bundle
        self._engine = open_backend(bundle, engine, threads=threads, options=options)
        self._model: ServedModel | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._engine)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def findings(self) -> dict[str, tuple[str, ...]]:
        """Prompt set -> its findings, in the order of their texts."""
        return {name: record.findings for name, record in self.bundle.manifest.prompt_sets.items()}

    def run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """logits float32 [B, Q] and saliency float32 [B, Q, h, w] of a batch.

        pixels: uint8 [B, 1, S, S], as `prepare` returns them. text: float32 [Q, D...], as `text` returns it. Raises
        EngineError for inputs that do not fit, and when the engine is not open or fails.
        """
        return self._engine.run(pixels, text)

    def prepare(self, image: Image) -> NDArray[np.uint8]:
        """A radiograph as the model's input, uint8 [1, 1, S, S]. Raises ImageError."""
        return prepare(image, self.bundle.manifest.geometry)

    def text(self, prompt_set: str | None = None, prompts: Prompts | None = None) -> NDArray[np.float32]:
        """The encoded texts of a prompt set of the bundle, or of `prompts`: float32 [Q, D...], see `predict`."""
        request = self._request(None, prompt_set, prompts)
        return self._served.select(request).prompts.features

    def predict(
        self,
        image: Image,
        findings: Sequence[str] | None = None,
        *,
        prompt_set: str | None = None,
        prompts: Prompts | None = None,
        tau: float = 0.5,
    ) -> Prediction:
        """Probabilities, saliency and boxes of one radiograph.

        image: a DICOM, PNG or JPEG file, or an array uint8 [H, W], bright = radio-dense. findings: of the prompt set,
        all of them by default. prompt_set: one of the bundle, by default the one with most findings. prompts: your
        texts instead, finding -> text or texts, for a bundle with a text encoder. tau: the threshold of boxes. Raises
        ImageError for an image that cannot be read, ServingError for a finding or set that does not exist, EngineError.
        """
        request = self._request(findings, prompt_set, prompts, tau)
        selection = self._served.select(request)
        prepared = _prepared(image, self.bundle.manifest.geometry)
        scores = self.run(prepared.pixels[None, None], selection.prompts.features)
        outputs = build_answer(request, self._served, selection, [prepared], scores).outputs
        return Prediction(
            findings=selection.queries.findings,
            logits=outputs["logits"][0],
            probabilities=outputs["probabilities"][0],
            saliency=outputs["saliency"][0],
            boxes=_boxes(outputs["boxes"], selection.queries.findings),
        )

    def dicom_objects(
        self,
        film: FilePath,
        findings: Sequence[str] | None = None,
        *,
        prompt_set: str | None = None,
        prompts: Prompts | None = None,
        tau: float = 0.5,
        kinds: Sequence[str] = DEFAULT_KINDS,
    ) -> list[DicomObject]:
        """The answer about one film as DICOM objects for an archive (docs/dicom.md); it needs the extra `dicom`.

        film: a DICOM file. findings: of the prompt set, by default the one with the highest probability. prompt_set,
        prompts: as for `predict`. tau: the threshold of the mask, the outline and the boxes. kinds: "overlay", "mask",
        "report", "fractions" and "map". Each object has `kind`, `finding`, `uid`, `series_uid`, `study_uid`,
        `class_uid`, and `content`, its file as bytes. Raises ImageError for a file that is no radiograph, DataError
        for a header that cannot be used, ServingError for an unknown finding, set or kind, EngineError, and
        MissingExtraError.
        """
        from .runtime.data.images.decode import read_bytes
        from .runtime.serving.inference.film_batches import answer_films, read_film

        request = self._request(findings, prompt_set, prompts, tau)
        request = replace(request, kinds=tuple(kinds), highest_only=findings is None)
        read = read_film(read_bytes(Path(film)), str(film), self.bundle.manifest.geometry)
        (made,) = answer_films(self._served, request, [read])
        if isinstance(made, DataError):
            raise made
        return made

    @property
    def _served(self) -> ServedModel:
        if self._model is None:
            self._model = ServedModel(self.bundle, self._engine)
        return self._model

    def _request(
        self, findings: Sequence[str] | None, prompt_set: str | None, prompts: Prompts | None, tau: float = 0.5
    ) -> Request:
        side = self.bundle.manifest.geometry.size
        entries = (
            None if prompts is None else tuple(FindingPrompts(name, _texts(text)) for name, text in prompts.items())
        )
        request = Request(
            model=self.bundle.name,
            pixels=np.zeros((1, 1, side, side), np.uint8),
            findings=None if findings is None else tuple(findings),
            prompt_set=prompt_set,
            prompts=entries,
            outputs=_OUTPUTS,
            tau=tau,
        )
        check_request(request)
        return request


def open_engine(
    bundle: FilePath,
    engine: str = "auto",
    *,
    threads: int | None = None,
    batch: int = 64,
    build: bool = True,
    tf32: bool = False,
) -> Predictor:
    """The engine of the bundle in the folder `bundle`, to be used in a with statement.

    engine: "tensorrt", "tensorrt-rtx", "torch", "onnxruntime-cuda", "onnxruntime-cpu", or "auto" for the first of these
    that runs here. threads: of the engine (all cores). On a GPU: batch, maximum images of one submission; build,
    whether a TensorRT plan may be built; tf32, whether float32 products may round their inputs. Raises BundleError,
    ConfigError, EngineError or MissingExtraError.
    """
    options = EngineOptions(max_batch=batch, build=build, tf32=tf32)
    return Predictor(Bundle.load(Path(bundle)), engine, threads, options)


def decoder_version() -> str:
    """The code and packages that the pixels of image files depend on, as one text.

    It changes when a file could be read in another way, so results from its pixels can be distinguished.
    """
    from .runtime.data.images.decode import reader_version

    return reader_version()


def prepare(image: Image, geometry: Geometry) -> NDArray[np.uint8]:
    """A radiograph as the input of a model of that geometry, uint8 [1, 1, S, S], as an evaluation makes it.

    image: a DICOM, PNG or JPEG file, or an array uint8 [H, W], bright = radio-dense. Raises ImageError.
    """
    return _prepared(image, geometry).pixels[None, None]


def _prepared(image: Image, geometry: Geometry) -> Prepared:
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 2 or 0 in image.shape:
            raise ImageError(f"An image must be uint8 [H, W], not {image.dtype} {list(image.shape)}.")
        return prepare_grey(image, geometry)
    from .runtime.data.images.decode import read_bytes

    return prepare_file(read_bytes(Path(image)), geometry, str(image))


def _texts(text: str | Sequence[str]) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else tuple(text)


def _boxes(rows: NDArray[np.float32], findings: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(BOX_COLUMNS)).drop(columns="image")
    frame["finding"] = [findings[int(index)] for index in frame["finding"]]
    return frame
