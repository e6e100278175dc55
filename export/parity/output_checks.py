"""Checks what a wrapped graph returns for the probe pictures: outputs from which no right number can follow.

A graph that was exported from a model is compared with it. Nothing is known of a wrapped graph but its outputs, so
those are examined: whether maps show a place, whether logits depend on the text, whether they are logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from .alone import ProbeScores
from .checks import Floats

_SAME: Final = 1e-6
"""Values that differ by at most this part of the largest one count as equal: sums of float32 in another order."""

_SUM: Final = 1e-3
"""Largest deviation from 1 of the sum of probabilities."""

_SQUASHING: Final = {"Sigmoid", "HardSigmoid", "Softmax"}
_PASSING: Final = {
    "Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "ReduceMean", "Reshape", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze",
}  # fmt: skip
"""Operators that leave probabilities probabilities."""


def not_finite(scores: Sequence[ProbeScores]) -> str | None:
    """The first value that is not finite, in words; None if all are."""
    for answers in scores:
        for name, values in (("logits", answers.logits), ("saliency", answers.saliency)):
            if not np.isfinite(values).all():
                picture, query = (int(number) for number in np.argwhere(~np.isfinite(values))[0][:2])
                return (
                    f"{name} has a value that is not finite, for probe picture {picture + 1} and text {query + 1} of "
                    f"the prompt set '{answers.name}'; check the weights and the features"
                )
    return None


def refusal(scores: Sequence[ProbeScores], function: str) -> str | None:
    """The reason why no bundle can be made of a graph with these outputs; None without one.

    scores: all finite. function: what `last_function` says of the graph's logits.
    """
    if all(not answers.saliency.any() for answers in scores):
        return "every map is 0 everywhere; return the model's saliency in the output saliency"
    if all(_flat(answers).all() for answers in scores):
        return "every map has one value in all its cells and shows no place; return the model's saliency"
    judged = [ignores for answers in scores if (ignores := _ignores_text(answers)) is not None]
    if judged and all(judged):
        return (
            "the logits do not depend on the text: other text features, or another row of them, give the same values; "
            "connect the input text"
        )
    if (description := _probabilities(scores, function)) is not None:
        return (
            f"the logits are {description}, and probabilities are made of them by a sigmoid; return what the graph "
            "computes before that"
        )
    return None


def remarks(scores: Sequence[ProbeScores]) -> Iterator[str]:
    """What looks wrong in the outputs of a graph and can be right, each in a sentence."""
    if all(_within(answers.logits, 0, 1) for answers in scores):
        yield (
            "All logits of the probe pictures lie between 0 and 1; if they are probabilities, return what the graph "
            "computes before the sigmoid or softmax, since probabilities are made of logits by a sigmoid."
        )
    elif all(_within(answers.logits, 0, np.inf) for answers in scores):
        yield (
            "No logit of the probe pictures is below 0, which makes every probability 0.5 or more; check that they are "
            "no percentages or other scores."
        )
    if all(_equal(answers.logits, answers.logits[:1]) for answers in scores):
        yield "The logits of all probe pictures are the same; check that they depend on the input pixels."
    if all(_equal(answers.saliency, answers.saliency[:1]) for answers in scores):
        yield "The maps of all probe pictures are the same; check that they depend on the input pixels."
    several = [answers for answers in scores if _distinct(answers.text)]
    if several and all(_equal(answers.saliency, answers.saliency[:, :1]) for answers in several):
        yield "The maps of all texts are the same; a result then does not depend on the finding that is asked for."
    flat = np.concatenate([_flat(answers).reshape(-1) for answers in scores])
    if flat.any():
        yield f"{int(flat.sum())} of {len(flat)} maps of the probe pictures have one value in all their cells."


def last_function(graph: Any, output: str = "logits") -> str:
    """The operator that makes the values of `output` in an ONNX graph, behind operators that only move or average them;
    empty where they are an input or a constant."""
    makers = {name: node for node in graph.node for name in node.output}
    name = output
    while (node := makers.get(name)) is not None and node.op_type in _PASSING:
        name = node.input[0]
    return "" if node is None else str(node.op_type)


def _probabilities(scores: Sequence[ProbeScores], function: str) -> str | None:
    """Which probabilities the logits are: where an operator that makes some is behind them, or where the logits of
    all texts add up to 1."""
    if function in _SQUASHING and all(_within(answers.logits, 0, 1) for answers in scores):
        return f"probabilities, the values of a {function}"
    if function == "LogSoftmax":
        return "logarithms of probabilities, the values of a LogSoftmax"
    several = [answers for answers in scores if answers.logits.shape[1] > 1]
    if several and all(_within(answers.logits, 0, 1) and _adds_up(answers.logits) for answers in several):
        return "probabilities, whose sum over the texts is 1"
    if several and all(answers.logits.max() <= _SAME and _adds_up(np.exp(answers.logits)) for answers in several):
        return "logarithms of probabilities, whose sum over the texts is 1"
    return None


def _adds_up(values: Floats) -> bool:
    return bool((np.abs(values.sum(axis=1, dtype=np.float64) - 1) <= _SUM).all())


def _within(values: Floats, low: float, high: float) -> bool:
    return bool(values.min() >= low and values.max() <= high)


def _flat(scores: ProbeScores) -> Any:
    """Which maps have one value in all cells: bool [P, Q]."""
    span = np.ptp(scores.saliency, axis=(2, 3))
    return span <= _SAME * np.abs(scores.saliency).max(axis=(2, 3))


def _ignores_text(scores: ProbeScores) -> bool | None:
    """Whether other text features give the same logits, or different texts of one set do; None for a single text that
    has no other."""
    if _distinct(scores.text) and _equal(scores.logits, scores.logits[:, :1]):
        return True
    if scores.other_logits is None:
        return None
    return _equal(scores.logits[: len(scores.other_logits)], scores.other_logits)


def _distinct(text: Floats) -> bool:
    return len(text) > 1 and not _equal(text, text[:1])


def _equal(values: Floats, reference: Floats) -> bool:
    """Whether two arrays are equal but for the order of sums; `reference` may have one row for all."""
    scale = max(float(np.abs(values).max()), float(np.abs(reference).max()))
    return bool(np.abs(values.astype(np.float64) - reference).max() <= _SAME * scale)
