"""The prepared images of one dataset in several geometries: one decoding serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageError
from ...engines.geometry import Geometry
from ..datasets.base import Case
from .prepared import PreparedStore, load_once
from .prepared_keys import file_identity

__all__ = ["Filled", "PreparedSet"]

Filled = Literal["ready", "decoded", "missing", "unreadable"]


class PreparedSet:
    """One store per geometry, over the same cases. Use as a context manager.

    Safe in threads, as long as one case is not asked for by two of them at a time.
    """

    def __init__(self, stores: Sequence[PreparedStore], stack: ExitStack) -> None:
        self._stores = {store.geometry.key: store for store in stores}
        self._stack = stack

    @classmethod
    def open(
        cls,
        cache_root: Path,
        dataset_name: str,
        cases: Sequence[Case],
        geometries: Sequence[Geometry],
        *,
        reader: Callable[[Geometry], str] | None = None,
        wait: Callable[[Path], None] | None = None,
    ) -> PreparedSet:
        """Opens the stores as `PreparedStore.open` does; `reader`: what decodes for a geometry. Raises RunError."""
        distinct = {geometry.key: geometry for geometry in geometries}
        with ExitStack() as stack:
            # Always in one order: two processes that wait for each other's stores would wait for ever.
            stores = [
                stack.enter_context(
                    PreparedStore.open(
                        cache_root,
                        dataset_name,
                        cases,
                        distinct[key],
                        reader=reader(distinct[key]) if reader else None,
                        wait=wait,
                    )
                )
                for key in sorted(distinct)
            ]
            return cls(stores, stack.pop_all())

    def __enter__(self) -> PreparedSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def notes(self) -> list[str]:
        """Why a store keeps nothing, where one does not."""
        return [store.note for store in self._stores.values() if store.note]

    def stores(self, wanted: Callable[[Geometry], bool]) -> list[PreparedStore]:
        """The stores of the geometries that are `wanted`."""
        return [store for store in self._stores.values() if wanted(store.geometry)]

    def source(self, geometry: Geometry) -> Callable[[Case], tuple[NDArray[np.uint8], int, int]]:
        """A case's pixels uint8 [S, S], native height and width in one geometry; decoding is kept for all of them.

        The function raises FileNotFoundError, ImageError and RunError as `load_once` does.
        """
        wanted = self._stores[geometry.key]
        others = [store for store in self._stores.values() if store is not wanted]

        def read(case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
            return load_once(wanted.index(case), wanted, others)

        return read

    def fill(self, index: int) -> Filled:
        """Prepares one case in all geometries, and says what was to do. Raises RunError."""
        stores = list(self._stores.values())
        index = stores[0].slot(index)
        try:
            identity = file_identity(stores[0].path(index))
            wanted = next((store for store in stores if store.lacks(index, identity)), None)
            if wanted is not None:
                load_once(index, wanted, [store for store in stores if store is not wanted])
                return "decoded"
            stores[0].find(index, identity)
        except FileNotFoundError:
            return "missing"
        except ImageError:
            return "unreadable"
        return "ready"
