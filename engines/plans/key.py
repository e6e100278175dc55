"""The key of a TensorRT plan: everything that determines its content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..backends.gpu import Gpu
from ..bundle import Bundle
from ..errors import EngineError


@dataclass(frozen=True)
class Profile:
    """Smallest, preferred and largest batch and number of queries."""

    batch: tuple[int, int, int]
    queries: tuple[int, int, int]

    def __post_init__(self) -> None:
        for name, (low, best, high) in (("batch", self.batch), ("queries", self.queries)):
            if not 1 <= low <= best <= high:
                raise EngineError(
                    f"The profile's {name} {low}, {best}, {high} is not in order; give 1 <= min <= opt <= max."
                )

    @staticmethod
    def of(bundle: Bundle, batch: int) -> Profile:
        """Up to `batch` images, or the bundle's `largest_batch` where that is smaller, and the queries of the bundle's
        largest prompt set, optimised for its typical set."""
        batch = bundle.manifest.batch_within(batch)
        sizes = sorted(len(record.texts) for record in bundle.manifest.prompt_sets.values()) or [16]
        return Profile((1, batch, batch), (1, sizes[len(sizes) // 2], max(sizes[-1], 2)))


@dataclass(frozen=True)
class PlanKey:
    """Everything that determines a plan.

    graph: sha256 of the ONNX file. precision: of that graph, "fp32" also meaning no TF32; "tf32" for a float32 graph
    whose products may round their inputs to TF32. library, version: family and version of TensorRT.
    """

    graph: str
    precision: str
    profile: Profile
    gpu: Gpu
    library: str
    version: str

    @property
    def stem(self) -> str:
        """Name of the plan's files; two plans have the same name only if one replaces the other."""
        parts = (self.gpu.name, f"{self.library}-{self.version}", self.precision, f"batch{self.profile.batch[2]}")
        return "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part).strip("_").lower() for part in parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def differences(self, stored: Mapping[str, Any]) -> list[str]:
        """Which fields of a stored key differ from this one, in words."""
        mine = self.to_json()
        return [
            f"{field.name} was {_words(stored.get(field.name))}, is {_words(mine[field.name])}"
            for field in fields(self)
            if _plain(stored.get(field.name)) != _plain(mine[field.name])
        ]


def _plain(value: Any) -> Any:
    """The value as JSON stores it: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:12]
    return "unknown" if value is None else str(value)
