"""The prompts of each evaluated class, and what they give together: maps and logits as means over prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.prompts.prompt_set import PromptSet


@dataclass(frozen=True)
class Queries:
    """The queries of a prompt set for each evaluated class: indices into Q. `findings` are the class names. mirrored:
    the images are, so that their maps must be mirrored back."""

    findings: tuple[str, ...]
    positive: tuple[NDArray[np.intp], ...]
    negative: tuple[NDArray[np.intp], ...]
    mirrored: bool = False

    @staticmethod
    def of(prompts: PromptSet, findings: Mapping[str, str], *, mirrored: bool = False) -> Queries:
        """The queries of `findings`: class name -> finding, which must be one of `prompts`."""
        index = [prompts.findings.index(finding) for finding in findings.values()]
        return Queries(
            tuple(findings),
            tuple(np.flatnonzero((prompts.finding_of == i) & (prompts.polarity > 0)) for i in index),
            tuple(np.flatnonzero((prompts.finding_of == i) & (prompts.polarity < 0)) for i in index),
            mirrored,
        )

    def _upright(self, maps: NDArray[np.float32]) -> NDArray[np.float32]:
        """Maps [P, h, w] of the images, on the unchanged images."""
        return np.ascontiguousarray(maps[:, :, ::-1]) if self.mirrored else maps

    def by_prompts(self, of_finding: NDArray[np.intp]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """The entries of `of_finding` [P] grouped by the number n of positive prompts of their finding: for each n the
        places of its entries, [p], and their queries, [p, n]."""
        sizes = np.array([len(queries) for queries in self.positive], np.intp)[of_finding]
        groups = []
        for size in np.unique(sizes).tolist():
            places = np.flatnonzero(sizes == size)
            groups.append((places, np.stack([self.positive[at] for at in of_finding[places].tolist()])))
        return groups

    @cached_property
    def _single(self) -> NDArray[np.intp] | None:
        """The query of each finding, where each has one positive prompt."""
        return np.concatenate(self.positive) if all(len(prompts) == 1 for prompts in self.positive) else None

    def maps(
        self, saliency: NDArray[np.float32], of_case: NDArray[np.intp], of_finding: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """The maps of pairs, float32 [P, h, w], of saliency [B, Q, h, w]: means over positive prompts of a finding."""
        if self._single is not None:
            return self._upright(saliency[of_case, self._single[of_finding]])
        maps = np.empty((len(of_case), *saliency.shape[2:]), np.float32)
        for places, queries in self.by_prompts(of_finding):
            chosen = saliency[of_case[places, None], queries]
            maps[places] = prompt_mean(np.moveaxis(chosen, 1, 0))
        return self._upright(maps)

    def logits(self, logits: NDArray[np.float32]) -> Logits:
        """The logits of the findings, from the logits of all queries, float32 [B, Q]."""
        without = np.array([not queries.size for queries in self.negative], np.bool_)
        return Logits(_over_prompts(logits, self.positive), _over_prompts(logits, self.negative), without)


@dataclass(frozen=True, eq=False)
class Logits:
    """positive, negative: float32 [B, F], means over the prompts of a finding; `without`: bool [F], findings that have
    no negative prompts, whose `negative` means nothing."""

    positive: NDArray[np.float32]
    negative: NDArray[np.float32]
    without: NDArray[np.bool_]


def prompt_mean(values: NDArray[np.float32]) -> Any:
    """Mean over the first axis, taken in float64 and rounded once (docs/metrics.md §14, row 21).

    The values of a single prompt are unchanged.
    """
    return values[0] if len(values) == 1 else values.mean(axis=0, dtype=np.float64).astype(np.float32)


def _over_prompts(logits: NDArray[np.float32], queries: Sequence[NDArray[np.intp]]) -> NDArray[np.float32]:
    """float32 [B, F]: for each finding the mean over its queries, 0 for none, of logits [B, Q]; as `prompt_mean`."""
    if all(len(members) == 1 for members in queries):
        return logits[:, np.concatenate(queries)]
    means = np.zeros((len(logits), len(queries)), np.float32)
    for at, members in enumerate(queries):
        if members.size:
            chosen = np.ascontiguousarray(logits[:, members])
            means[:, at] = chosen[:, 0] if len(members) == 1 else chosen.mean(axis=1, dtype=np.float64)
    return means
