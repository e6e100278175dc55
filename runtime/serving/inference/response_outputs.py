"""Scores of the engine -> the outputs of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Scores
from ....metrics_gpu.sweep.maps import scaled_map
from ...evaluation.queries import Queries, prompt_mean
from ...reporting.gallery.overlay import OUTLINE, STRENGTH, blend, outline, png
from ...results.schema import GRID
from ..protocol.interface import OUTPUTS
from ..protocol.request_errors import BadRequest
from ..protocol.requests import Answer, Request
from ..protocol.tensors import bytes_array
from .film_answers import OBJECT_OUTPUTS, dicom_output
from .request_images import DISPLAY_SIDE, Prepared, shown
from .served_models import Selection, ServedModel

ANSWER_LIMIT: Final = 256 << 20  # bytes; an answer is held in memory as a whole

_FAST: Final = 1  # compression of PNG: an answer waits for it


def check_answer_size(outputs: frozenset[str], images: int, findings: int, grid: tuple[int, int]) -> None:
    """Raises BadRequest when the answer would not fit in memory together with the others."""
    pixels = {"saliency_full": 4 * GRID * GRID, "mask": GRID * GRID, "saliency": 4 * grid[0] * grid[1]}
    pixels["overlay"] = DISPLAY_SIDE * DISPLAY_SIDE
    size = images * findings * sum(pixels.get(name, 0) for name in outputs)
    size += images * DISPLAY_SIDE * DISPLAY_SIDE * ("preview" in outputs)
    if size > ANSWER_LIMIT:
        raise BadRequest(
            f"The answer would hold about {size >> 20} MiB, the limit is {ANSWER_LIMIT >> 20}; ask for fewer images, "
            "findings or outputs."
        )


def build_answer(
    request: Request, model: ServedModel, selection: Selection, images: Sequence[Prepared], scores: Scores
) -> Answer:
    """The answer to a request: scores logits float32 [N, Q] and saliency [N, Q, h, w] are of its N images.

    A finding's logit and map are the means over its positive prompts, as in an evaluation; so are the probabilities
    (docs/metrics.md §7).
    """
    values = _Outputs(request, model, selection, images, scores)
    if request.highest_only:
        selection = selection.only(int(np.argmax(np.nan_to_num(values.probabilities()[0], nan=-1.0))))
        values = _Outputs(request, model, selection, images, scores)
    return Answer(
        model=model.name,
        version=model.version,
        prompt_set=selection.prompts.name,
        findings=selection.queries.findings,
        tau=request.tau,
        outputs={name: getattr(values, name)() for name in OUTPUTS if name in request.outputs},
        id=request.id,
    )


class _Outputs:
    """Each public method is the output of that name; shared values are computed once.

    BYTES are object arrays, as NumPy strings would drop zero bytes at the end.
    """

    def __init__(
        self, request: Request, model: ServedModel, selection: Selection, images: Sequence[Prepared], scores: Scores
    ) -> None:
        self._request = request
        self._model = model
        self._selection = selection
        self._tau = request.tau
        self._queries = selection.queries
        self._images = images
        self._scores = scores
        self._shape = len(images), len(selection.queries.findings)
        self._maps: list[NDArray[np.float32]] | None = None
        self._masks: list[NDArray[np.uint8]] | None = None

    def findings(self) -> NDArray[Any]:
        return np.array([name.encode() for name in self._queries.findings], object)

    def logits(self) -> NDArray[np.float32]:
        return self._means(self._queries.positive)

    def logits_negative(self) -> NDArray[np.float32]:
        return self._means(self._queries.negative)

    def probabilities(self) -> NDArray[np.float64]:
        from ....metrics_gpu.recognition.scores import probability

        return probability(self.logits())

    def probabilities_pair(self) -> NDArray[np.float64]:
        from ....metrics_gpu.recognition.scores import probability

        with np.errstate(invalid="ignore"):  # NaN where there is no negative prompt
            return probability(self.logits().astype(np.float64) - self.logits_negative())

    def saliency(self) -> NDArray[np.float32]:
        maps = _saliency(self._scores, self._queries)
        return np.stack(maps).reshape(*self._shape, *maps[0].shape)

    def saliency_full(self) -> NDArray[np.float32]:
        return np.stack(self._normalised()).reshape(*self._shape, GRID, GRID)

    def mask(self) -> NDArray[np.uint8]:
        return np.stack(self._binary()).reshape(*self._shape, GRID, GRID)

    def boxes(self) -> NDArray[np.float32]:
        count = self._shape[1]
        rows = [
            (index // count, index % count, *box)
            for index, (normalised, mask) in enumerate(zip(self._normalised(), self._binary(), strict=True))
            for box in regions(normalised, mask)
        ]
        return np.asarray(rows, np.float32).reshape(len(rows), 7)

    def overlay(self) -> NDArray[Any]:
        count = self._shape[1]
        pictures = []
        for index, (normalised, mask) in enumerate(zip(self._normalised(), self._binary(), strict=True)):
            display = self._images[index // count].display
            if display is not None:
                display = shown(display, DISPLAY_SIDE)
            pictures.append(b"" if display is None else draw_overlay(display, normalised, mask))
        return np.array(pictures, object).reshape(self._shape)

    def preview(self) -> NDArray[Any]:
        displays = [image.display for image in self._images]
        pictures = [b"" if item is None else png(shown(item, DISPLAY_SIDE), _FAST) for item in displays]
        return np.array(pictures, object)

    def dicom(self) -> NDArray[Any]:
        pixels = sum(image.size[0] * image.size[1] for image in self._images)
        each = sum(4 if kind == "map" else 1 for kind in set(self._request.kinds))  # bytes a pixel, about
        size = pixels * each * len(self._queries.findings)
        if size > ANSWER_LIMIT:
            raise BadRequest(
                f"The DICOM objects would hold about {size >> 20} MiB, the limit is {ANSWER_LIMIT >> 20}; ask for "
                "fewer films, findings or kinds."
            )
        outputs = {name: getattr(self, name)() for name in OBJECT_OUTPUTS}
        objects = dicom_output(self._request, self._model, self._selection, self._images, outputs)
        return bytes_array([made.content for made in objects])

    def sizes(self) -> NDArray[np.int32]:
        return np.asarray([image.size for image in self._images], np.int32)

    def frames(self) -> NDArray[np.float64]:
        return np.asarray([image.frame for image in self._images], np.float64)

    def _means(self, places: Sequence[NDArray[np.intp]]) -> NDArray[np.float32]:
        if all(queries.size == 1 for queries in places):
            return self._scores.logits.take(np.concatenate(places), axis=1)
        values = np.full(self._shape, np.nan, np.float32)
        for finding, queries in enumerate(places):
            if queries.size == 1:
                values[:, finding] = self._scores.logits[:, queries[0]]
            elif queries.size:
                values[:, finding] = [prompt_mean(logits[queries]) for logits in self._scores.logits]
        return values

    def _normalised(self) -> list[NDArray[np.float32]]:
        if self._maps is None:
            maps = _saliency(self._scores, self._queries)
            count = self._shape[1]
            frames = (self._images[index // count].frame for index in range(len(maps)))
            self._maps = [scaled_map(saliency, frame=frame) for saliency, frame in zip(maps, frames, strict=True)]
        return self._maps

    def _binary(self) -> list[NDArray[np.uint8]]:
        if self._masks is None:
            self._masks = [binary_mask(normalised, self._tau) for normalised in self._normalised()]
        return self._masks


def _saliency(scores: Scores, queries: Queries) -> list[NDArray[np.float32]]:
    """The map float32 [h, w] of every (image, finding), image by image."""
    return [prompt_mean(maps[positive]) for maps in scores.saliency for positive in queries.positive]


def binary_mask(normalised: NDArray[np.float32], tau: float) -> NDArray[np.uint8]:
    """uint8 of the map's shape: 1 where it is at least `tau`, compared as float32 (docs/metrics.md §3).

    For a map from `scaled_map` and tau = k / 100 these are exactly the pixels an evaluation counts as `area[k]`.
    """
    return (normalised >= np.float32(tau)).astype(np.uint8)


def draw_overlay(display: NDArray[np.uint8], normalised: NDArray[np.float32], mask: NDArray[np.uint8]) -> bytes:
    """PNG (RGB, as large as `display` uint8 [H, W]) with a map float32 [h, w] in 0..1 and a mask uint8 [h, w] of it.

    The map is enlarged bilinearly and the mask by repetition, so the outline encloses exactly the pixels of the mask.
    """
    from PIL import Image

    height, width = display.shape
    values = np.asarray(Image.fromarray(normalised).resize((width, height), Image.Resampling.BILINEAR), np.float64)
    inside = np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)) > 0
    values = np.clip(values, 0.0, 1.0)
    blended = blend(display, values, STRENGTH * values)
    # The picture's edge is no outline: a region that reaches it goes on.
    blended[outline(inside, max(1, round(max(height, width) / 512)), at_border=False)] = OUTLINE
    return png(blended, _FAST)


def regions(normalised: NDArray[np.float32], mask: NDArray[np.uint8]) -> list[tuple[float, float, float, float, float]]:
    """Boxes of the connected regions of `mask` (pixels that touch, also at corners), the highest peak first.

    Each is x0, y0, x1, y1 as fractions of the width and height (the box holds pixels x0 <= x < x1), and the largest
    value of the map inside.
    """
    from scipy import ndimage

    labels, count = ndimage.label(mask, np.ones((3, 3), np.int8))
    if count == 0:
        return []
    peaks = ndimage.maximum(normalised, labels, np.arange(1, count + 1))
    height, width = mask.shape
    boxes = [
        (x.start / width, y.start / height, x.stop / width, y.stop / height, float(peak))
        for (y, x), peak in zip(ndimage.find_objects(labels), peaks, strict=True)
    ]
    return sorted(boxes, key=lambda box: -box[4])
