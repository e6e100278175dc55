"""Prompts of a request -> a prompt set, encoded as the prompts of a bundle are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from ....engines.bundle import Bundle
from ....engines.prompts.prompt_files import FindingPrompts
from ....engines.prompts.prompt_set import PromptSet
from ..protocol.requests import OWN_SET

if TYPE_CHECKING:
    from ....engines.prompts.prompt_encoding import EncodeSets

Prompts = tuple[FindingPrompts, ...]


class OwnPrompts:
    """Encodes sets of own prompts and caches the `sets` used last, at most `limit` bytes of features.

    A set is encoded as a whole, as `xbench-fast prompts add` does it, so that answers are the same for a set in the
    bundle and in a request. The text graph is opened when it is first needed. Safe to call from several threads.
    """

    def __init__(self, bundle: Bundle, *, threads: int | None = None, sets: int = 64, limit: int = 64 << 20) -> None:
        self._bundle = bundle
        self._threads = threads
        self._sets = sets
        self._limit = limit
        self._kept: OrderedDict[Prompts, PromptSet] = OrderedDict()
        self._lock = threading.Lock()
        self._encoder: EncodeSets | None = None

    def encode(self, prompts: Prompts) -> PromptSet:
        """The set of `prompts`; equal requests share one.

        Raises what `prompt_encoder` raises.
        """
        with self._lock:
            encoded = self._kept.get(prompts)
            if encoded is None:
                encoded = self._encode(prompts)
                self._kept[prompts] = encoded
                self._shrink()
            else:
                self._kept.move_to_end(prompts)
            return encoded

    def __len__(self) -> int:
        return len(self._kept)

    def _encode(self, prompts: Prompts) -> PromptSet:
        if self._encoder is None:
            from ....engines.prompts.prompt_encoding import prompt_encoder

            self._encoder = prompt_encoder(self._bundle, threads=self._threads)
        return self._encoder({OWN_SET: prompts})[0]

    def _shrink(self) -> None:
        """Removes the oldest sets above the limits; the set in use stays, even if it is larger."""
        while len(self._kept) > 1 and (
            len(self._kept) > self._sets or sum(item.features.nbytes for item in self._kept.values()) > self._limit
        ):
            self._kept.popitem(last=False)
