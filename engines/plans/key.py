"""The key of a TensorRT plan: everything that determines its content."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..backends.gpu import Gpu
from ..base import chosen_precision
from ..bundle import Bundle
from ..errors import EngineError
from ..quantised import engine_complaint
from .family import Family


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

    def differences(self, stored: Mapping[str, Any]) -> list[str]:
        """Which fields of a key differ from this one, in words; stored: it as JSON holds it, with lists for tuples."""
        return [
            f"{name} was {_words(stored.get(name))}, is {_words(value)}"
            for name, value in json.loads(json.dumps(asdict(self))).items()
            if stored.get(name) != value
        ]


def plan_key(bundle: Bundle, family: Family, gpu: Gpu, profile: Profile, *, tf32: bool = False) -> PlanKey:
    """The key of the bundle's plan. Raises EngineError for TF32 with a graph that is not float32, and for INT8 in
    another form than TensorRT's."""
    complaint = engine_complaint(bundle.manifest, bundle.name, family.name)
    if complaint is not None:
        raise EngineError(complaint)
    precision = chosen_precision(bundle, tf32=tf32)
    graph = bundle.manifest.files[bundle.graph("image").file].sha256
    return PlanKey(graph, precision, profile, gpu, family.name, family.version)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:12]
    return "unknown" if value is None else str(value)
