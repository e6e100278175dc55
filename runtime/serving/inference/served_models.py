"""Served models: each a bundle, the engine that runs it and its prompt sets; and all of them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Engine, EngineInfo, EngineOptions
from ....engines.bundle import Bundle
from ....engines.errors import ConfigError
from ....engines.prompts.prompt_set import PromptSet
from ....engines.registry import did_you_mean
from ...evaluation.queries import Queries
from ..protocol.request_errors import BadRequest, NotFound
from ..protocol.requests import Request
from .own_prompts import OwnPrompts

OpenEngine = Callable[..., AbstractContextManager[Engine]]

VERSION: Final = "1"
"""A bundle is served as the only version of its model; the metadata give its digest."""


@dataclass(frozen=True)
class Selection:
    """The selection of a request: the prompt set to run, and the queries of the findings to answer for."""

    prompts: PromptSet
    queries: Queries

    def only(self, position: int) -> Selection:
        """The same with one finding, the one at `position`."""
        queries, one = self.queries, slice(position, position + 1)
        return Selection(self.prompts, Queries(queries.findings[one], queries.positive[one], queries.negative[one]))


class ServedModel:
    """A model as the server uses it; `engine` is run by one thread at a time.

    `default_set` is used for a request that names no set: the one given, else the one with most findings.
    Raises ConfigError when a set of that name is not in the bundle, or the bundle has none; BundleError when a set
    cannot be read.
    """

    version = VERSION

    def __init__(self, bundle: Bundle, engine: Engine, *, default_set: str | None = None) -> None:
        self.bundle = bundle
        self.engine = engine
        self.name = bundle.name
        self.geometry = bundle.manifest.geometry
        self.grid = bundle.manifest.grid
        names = sorted(bundle.manifest.prompt_sets)
        if not names:
            raise ConfigError(f"The bundle {bundle.name} has no prompt set; add one with xbench-fast prompts.")
        if default_set is not None and default_set not in names:
            raise ConfigError(
                f"The bundle {bundle.name} has no prompt set '{default_set}': {did_you_mean(default_set, names)}."
            )
        self.prompt_sets: Mapping[str, PromptSet] = {name: bundle.prompt_set(name) for name in names}
        self.default_set = default_set or max(names, key=lambda name: len(self.prompt_sets[name].findings))
        self._full_selections = {name: self._selection(prompts, None) for name, prompts in self.prompt_sets.items()}
        self.own_prompts = OwnPrompts(bundle, threads=engine.threads)

    @property
    def info(self) -> EngineInfo:
        """The engine that runs it. Raises EngineError before the engine is opened."""
        return self.engine.info

    def select(self, request: Request) -> Selection:
        """The set and the findings of a request; own prompts are encoded here, which may take long.

        Raises BadRequest for a set or finding that does not exist, and what `OwnPrompts.encode` raises.
        """
        if request.prompts is not None:
            return self._selection(self.own_prompts.encode(request.prompts), request.findings)
        name = request.prompt_set or self.default_set
        if name not in self.prompt_sets:
            raise BadRequest(f"{self.name} has no prompt set '{name}': {did_you_mean(name, self.prompt_sets)}.")
        if request.findings is None:
            return self._full_selections[name]
        return self._selection(self.prompt_sets[name], request.findings)

    def _selection(self, prompts: PromptSet, findings: tuple[str, ...] | None) -> Selection:
        wanted = prompts.findings if findings is None else findings
        for finding in wanted:
            if finding not in prompts.findings:
                advice = "" if self.bundle.manifest.findings else "; give texts of your own as 'prompts'"
                raise BadRequest(
                    f"The prompt set '{prompts.name}' of {self.name} has no finding '{finding}': "
                    f"{did_you_mean(finding, prompts.findings)}{advice}."
                )
        return Selection(prompts, Queries.of(prompts, {finding: finding for finding in wanted}))

    def check_pixels(self, pixels: NDArray[np.uint8]) -> None:
        """Raises BadRequest unless `pixels` are uint8 [N, 1, S, S] of this model's geometry."""
        size = self.geometry.size
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != (1, size, size):
            raise BadRequest(
                f"{self.name} takes 'pixels' as uint8 [N, 1, {size}, {size}], not {pixels.dtype} {list(pixels.shape)}; "
                "send the file as 'image' to have it prepared."
            )


class Catalogue:
    """Opens the engines of bundles on entering and closes them on leaving.

    engine: a name `engines.select` knows, or "auto"; threads: of each engine; options: how each runs;
    default_set: prompt set of requests that name none. Entering raises BundleError, ConfigError,
    EngineError or MissingExtraError.
    """

    def __init__(
        self,
        bundles: Sequence[Path],
        *,
        engine: str = "auto",
        threads: int | None = None,
        options: EngineOptions | None = None,
        default_set: str | None = None,
        open_engine: OpenEngine | None = None,
    ) -> None:
        self._bundles = tuple(bundles)
        self._engine = engine
        self._threads = threads
        self._options = options
        self._default_set = default_set
        self._open_engine = open_engine
        self._stack = ExitStack()
        self._models: dict[str, ServedModel] = {}

    def __enter__(self) -> Self:
        from ....engines.select import open_engine

        opener = self._open_engine or open_engine
        with ExitStack() as stack:
            for path in self._bundles:
                bundle = Bundle.load(path)
                engine = stack.enter_context(opener(bundle, self._engine, threads=self._threads, options=self._options))
                self._models[bundle.name] = ServedModel(bundle, engine, default_set=self._default_set)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._models.clear()
        self._stack.close()

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """The open models, in the order of the bundles."""
        return self._models

    def get(self, name: str, version: str = "") -> ServedModel:
        """The model `name`. Raises NotFound for another name or version."""
        model = self._models.get(name)
        if model is None:
            raise NotFound(f"There is no model '{name[:200]}': {did_you_mean(name[:200], self._models)}.")
        if version not in ("", VERSION):
            raise NotFound(f"The model '{name}' has no version '{version[:200]}'; it has {VERSION}.")
        return model
