"""All served models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from ....engines.base import Engine, EngineOptions
from ....engines.bundle import Bundle
from ..protocol.errors import NotFound
from ..protocol.requests import closest
from .models import VERSION, ServedModel

__all__ = ["Catalogue"]

OpenEngine = Callable[..., AbstractContextManager[Engine]]


class Catalogue:
    """Opens the engines of bundles on entering and closes them on leaving.

    engine: a name `engines.select` knows, or "auto"; threads: those of each engine; options: how each runs;
    default_set: prompt set that answers where a request names none. Entering raises BundleError, ConfigError,
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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._models.clear()
        self._stack.close()

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """The open models, in the order of the bundles."""
        return self._models

    def get(self, name: str, version: str = "") -> ServedModel:
        """The model `name`. Raises NotFound for another name or version."""
        found = self._models.get(name)
        if found is None:
            raise NotFound(f"There is no model '{name[:200]}': {closest(name[:200], self._models)}.")
        if version not in ("", VERSION):
            raise NotFound(f"The model '{name}' has no version '{version[:200]}'; it has {VERSION}.")
        return found
