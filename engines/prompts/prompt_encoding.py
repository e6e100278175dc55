"""Prompts to text features, through a bundle's own text graph.

A set is encoded and run as one: in a model with self-attention over the queries, the scores of a finding depend on
which others are asked with it (docs/parity.md §3.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..manifest import GraphSpec
from ..tokenizing.batch import Tokenizer
from .prompt_files import SEPARATOR, FindingPrompts
from .prompt_set import PromptSet

__all__ = ["Encoder", "assemble", "encode_sets", "query_texts", "texts_per_query"]

_CHUNK = 32


class Encoder(Protocol):
    """Token ids (and mask) to features, as `engines.backends.ort.TextEncoder` does it."""

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None = None) -> NDArray[np.float32]: ...


def texts_per_query(image: GraphSpec, text: GraphSpec) -> int:
    """How many texts make one query: the image graph's features of a query hold so many of the text graph's.

    Raises ConfigError when the two do not fit.
    """
    query, one = image.inputs[1].shape[1:], text.outputs[0].shape[1:]
    sizes = [size for size in (*query, *one) if isinstance(size, int)]
    if len(sizes) == len(query) + len(one) and query[len(query) - len(one) :] == one:
        return math.prod(size for size in query[: len(query) - len(one)] if isinstance(size, int))
    raise ConfigError(f"The image graph takes text features {list(query)}, the text graph gives {list(one)}.")


def query_texts(query: str, count: int) -> list[str]:
    """The `count` texts of a query; a single text serves for all of them.

    Raises ConfigError when the query has another number of texts.
    """
    texts = query.split(SEPARATOR)
    if len(texts) not in (1, count):
        raise ConfigError(
            f"The prompt '{texts[0]}' has {len(texts)} texts, but this model takes {count} a query: give a list of "
            f"{count}, or a single text."
        )
    return texts * count if len(texts) == 1 else texts


def encode_sets(
    sets: Mapping[str, Sequence[FindingPrompts]],
    tokenizer: Tokenizer,
    encoder: Encoder,
    inputs: Sequence[str],
    per_query: int = 1,
) -> list[PromptSet]:
    """Encodes every distinct text once through the exported text graph; returns one PromptSet per set, in order.

    `inputs` names the inputs of the text graph; the mask is passed only to a graph that takes one. Features are
    [Q, D...], or [Q, per_query, D...] where a query is several texts. Queries stand in the order of the findings, the
    positive texts of a finding before its negative ones. Raises ConfigError (number of texts).
    """
    queries = {text for entries in sets.values() for entry in entries for text in _all_texts(entry)}
    split = {query: query_texts(query, per_query) for query in queries}
    ordered = (text for entries in sets.values() for entry in entries for text in _all_texts(entry))
    # Texts of similar length go together: a text is padded to the longest of its batch, and a book has hundreds.
    distinct = sorted(dict.fromkeys(text for query in ordered for text in split[query]), key=len)
    rows = []
    for start in range(0, len(distinct), _CHUNK):
        batch = tokenizer(distinct[start : start + _CHUNK])
        rows.append(np.asarray(encoder.run(batch.ids, batch.mask_for(inputs)), dtype=np.float32))
    features = np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)
    index = {text: row for row, text in enumerate(distinct)}
    found = []
    for name, entries in sets.items():
        places = [[index[text] for text in split[query]] for entry in entries for query in _all_texts(entry)]
        rows_of = np.asarray(places, dtype=np.intp)
        found.append(assemble(name, entries, features[rows_of if per_query > 1 else rows_of[:, 0]]))
    return found


def _all_texts(entry: FindingPrompts) -> tuple[str, ...]:
    return entry.positive + entry.negative


def assemble(name: str, entries: Sequence[FindingPrompts], features: NDArray[np.float32]) -> PromptSet:
    """The set of `entries` with features [Q, D...], a row a query: finding by finding, positive texts first."""
    return PromptSet(
        name=name,
        findings=tuple(entry.finding for entry in entries),
        texts=tuple(text for entry in entries for text in _all_texts(entry)),
        finding_of=np.asarray([n for n, entry in enumerate(entries) for _ in _all_texts(entry)], dtype=np.int32),
        polarity=np.asarray(
            [sign for entry in entries for sign in (1,) * len(entry.positive) + (-1,) * len(entry.negative)],
            dtype=np.int8,
        ),
        features=features,
        status=tuple(entry.status for entry in entries),
    )
