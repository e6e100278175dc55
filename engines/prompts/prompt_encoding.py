"""Encodes prompts as text features, with a bundle's own text graph or as names of the findings of a supervised model,
and adds the sets to a bundle.

A set is encoded and run as one: in a model with self-attention over the queries, the scores of a finding depend on
which others are asked with it (docs/parity.md §3.4).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..backends.ort_session import CPU_PROVIDER, graph_for_cpu, open_session
from ..bundle import Bundle, change_bundle
from ..errors import BundleError, ConfigError, EngineError
from ..manifest import GraphSpec, Manifest
from ..registry import did_you_mean
from ..tokenizing import bundle_tokenizer
from ..tokenizing.tokenizers import Tokenizer
from .prompt_files import SEPARATOR, FindingPrompts, PromptSets
from .prompt_set import PromptSet

EncodeSets = Callable[[PromptSets], list[PromptSet]]
_CHUNK = 32  # texts in one run of the text graph; bounds its memory


def prompt_encoder(bundle: Bundle, *, threads: int | None = None) -> EncodeSets:
    """What encodes sets of prompts for `bundle` as its export would have done it.

    Raises BundleError (no tokenizer or text graph in the bundle), EngineError and MissingExtraError; what it returns
    raises ConfigError (texts of a query, or a text that is no finding of a supervised model).
    """
    if bundle.manifest.findings:
        return partial(name_sets, bundle.manifest.findings)
    per_query = texts_per_query(bundle.graph("image"), bundle.graph("text"))
    words, encoder = bundle_tokenizer(bundle), TextEncoder.of(bundle, threads=threads)
    averaged = bundle.manifest.averages_prompts
    return lambda sets: encode_sets(sets, words, encoder, per_query, averaged=averaged)


class TextEncoder:
    """The text tower of a bundle on ONNX Runtime's CPU provider, a bf16 graph with results that are rounded."""

    def __init__(self, graph: Path, spec: GraphSpec, *, threads: int | None = None, precision: str = "fp32") -> None:
        self._session = open_session(graph_for_cpu(graph, precision), [CPU_PROVIDER], threads)
        self.inputs = [tensor.name for tensor in spec.inputs]

    @staticmethod
    def of(bundle: Bundle, *, threads: int | None = None) -> TextEncoder:
        """The encoder of a bundle. Raises BundleError if the bundle has no text graph."""
        precision = bundle.manifest.precision
        return TextEncoder(bundle.file("text"), bundle.graph("text"), threads=threads, precision=precision)

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Features float32 [T, D...] of token ids int64 [T, L] and, if the model takes one, mask int64 [T, L].

        Raises EngineError when the ids do not fit the graph.
        """
        given = {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}
        if sorted(given) != sorted(self.inputs):
            raise EngineError(f"The text graph takes {', '.join(self.inputs)}, not {', '.join(given)}.")
        try:
            features: NDArray[np.float32] = self._session.run(["features"], given)[0]
        except Exception as error:  # see open_session
            raise EngineError(f"The text graph failed: {error}") from error
        return features


def texts_per_query(image: GraphSpec, text: GraphSpec) -> int:
    """How many texts make one query: the image graph's features of a query hold this many of the text graph's.

    Raises ConfigError when the two do not fit.
    """
    query, one = image.inputs[1].shape[1:], text.outputs[0].shape[1:]
    sizes = [size for size in (*query, *one) if isinstance(size, int)]
    if len(sizes) == len(query) + len(one) and query[len(query) - len(one) :] == one:
        return math.prod(size for size in query[: len(query) - len(one)] if isinstance(size, int))
    raise ConfigError(f"The image graph takes text features {list(query)}, the text graph gives {list(one)}.")


def name_sets(findings: Sequence[str], sets: PromptSets) -> list[PromptSet]:
    """One PromptSet per set for a supervised model, whose texts are the names of its `findings`: features are one-hot.

    Raises ConfigError for any other text.
    """
    rows = dict(zip(findings, np.eye(len(findings), dtype=np.float32), strict=True))
    for text in chain.from_iterable(entry.texts for entries in sets.values() for entry in entries):
        if text not in rows:
            raise ConfigError(
                f"The model is supervised and reads no text, and '{text}' is none of its findings: "
                f"{did_you_mean(text, findings)}."
            )
    return [
        assemble(name, entries, np.stack([rows[text] for entry in entries for text in entry.texts]))
        for name, entries in sets.items()
    ]


def encode_sets(
    sets: Mapping[str, Sequence[FindingPrompts]],
    tokenizer: Tokenizer,
    encoder: TextEncoder,
    per_query: int = 1,
    *,
    averaged: bool = False,
) -> list[PromptSet]:
    """Encodes every distinct text once through the exported text graph; returns one PromptSet per set, in order.

    Features are [Q, D...], or [Q, per_query, D...] where a query is several texts. Queries are in the order of the
    findings, the positive texts of a finding before its negative ones. A query of a single text has it `per_query`
    times. averaged: all positive texts of a finding are one query, whose features are the mean of theirs, as are all
    negative ones. Raises ConfigError (number of texts).
    """
    if averaged:
        sets = {name: [entry.averaged() for entry in entries] for name, entries in sets.items()}
    split: dict[str, list[str]] = {}
    for query in chain.from_iterable(entry.texts for entries in sets.values() for entry in entries):
        texts = query.split(SEPARATOR)
        if len(texts) not in (1, per_query) and not averaged:
            raise ConfigError(
                f"The prompt '{texts[0]}' has {len(texts)} texts, but this model takes {per_query} a query: give a "
                f"list of {per_query}, or a single text."
            )
        split[query] = texts * per_query if len(texts) == 1 else texts
    # Texts of similar length go together: a text is padded to the longest of its batch, and a book has hundreds.
    distinct = sorted(dict.fromkeys(chain.from_iterable(split.values())), key=len)
    rows = []
    for start in range(0, len(distinct), _CHUNK):
        batch = tokenizer(distinct[start : start + _CHUNK])
        rows.append(np.asarray(encoder.run(batch.ids, batch.mask_for(encoder.inputs)), dtype=np.float32))
    features = np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)
    index = {text: row for row, text in enumerate(distinct)}
    encoded = []
    for name, entries in sets.items():
        text_rows = [[index[text] for text in split[query]] for entry in entries for query in entry.texts]
        if averaged:
            queries = np.stack([_mean(features[rows]) for rows in text_rows])
        else:
            rows_of = np.asarray(text_rows, dtype=np.intp)
            queries = features[rows_of if per_query > 1 else rows_of[:, 0]]
        encoded.append(assemble(name, entries, queries))
    return encoded


def _mean(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean over the texts [n, D...]."""
    return np.asarray(features.mean(axis=0, dtype=np.float64), np.float32)


def assemble(name: str, entries: Sequence[FindingPrompts], features: NDArray[np.float32]) -> PromptSet:
    """The set of `entries` with features [Q, D...], a row a query: finding by finding, positive texts first."""
    return PromptSet(
        name=name,
        findings=tuple(entry.finding for entry in entries),
        texts=tuple(text for entry in entries for text in entry.texts),
        finding_of=np.asarray([n for n, entry in enumerate(entries) for _ in entry.texts], dtype=np.int32),
        polarity=np.asarray(
            [sign for entry in entries for sign in (1,) * len(entry.positive) + (-1,) * len(entry.negative)],
            dtype=np.int8,
        ),
        features=features,
        status=tuple(entry.status for entry in entries),
    )


def check_names(bundle: Bundle, names: Iterable[str], *, replace: bool) -> None:
    """Raises BundleError when `bundle` has a set of one of the `names` and `replace` is false, and when two sets would
    differ in case alone: some file systems would keep one file for both."""
    given, have = set(names), set(bundle.manifest.prompt_sets)
    if not replace and (taken := sorted(given & have)):
        raise BundleError(
            f"{bundle.path} already has a prompt set '{taken[0]}'; rename yours or replace that one with --replace."
        )
    folded = {name.lower(): name for name in sorted(given | have)}
    for name in sorted(given | have):
        if folded[name.lower()] != name and not given.isdisjoint((name, folded[name.lower()])):
            raise BundleError(
                f"{bundle.path}: the prompt sets '{name}' and '{folded[name.lower()]}' differ only in case; rename "
                "yours."
            )


def add_prompts(bundle: Bundle, sets: Sequence[PromptSet], *, replace: bool = False) -> Bundle:
    """Writes `bundle` again with `sets`, encoded for it, and returns it with its new digest; whole or not at all.

    Sets that were added since the bundle was loaded stay, and all other files stay byte for byte. Raises BundleError
    when a set of that name exists and `replace` is false, or when the bundle is no longer the one that was loaded.
    """

    def added(now: Bundle, folder: Path) -> tuple[Manifest, Mapping[str, Path]]:
        if _without_prompts(now.manifest) != _without_prompts(bundle.manifest):
            raise BundleError(
                f"{bundle.path} was exported again while the prompts were encoded; run the same command again."
            )
        have = now.manifest.prompt_sets
        check_names(now, [prompts.name for prompts in sets], replace=replace)
        files = {name: now.path / name for name in now.manifest.files}
        for prompts in sets:
            prompts.save(folder / prompts.file)
            files[prompts.file] = folder / prompts.file
        prompt_sets = {**have, **{prompts.name: prompts.record() for prompts in sets}}
        return dataclasses.replace(now.manifest, prompt_sets=prompt_sets), files

    return change_bundle(bundle.path, added)


def _without_prompts(manifest: Manifest) -> Manifest:
    features = {record.file for record in manifest.prompt_sets.values()}
    files = {name: record for name, record in manifest.files.items() if name not in features}
    return dataclasses.replace(manifest, prompt_sets={}, files=files)
