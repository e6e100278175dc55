"""Returns the plan for a bundle on this machine: the stored one if it fits, else a new one."""

from __future__ import annotations

from collections.abc import Callable

from ..backends.gpu import Gpu
from ..base import chosen_precision
from ..bundle import Bundle
from ..errors import EngineError
from ..quantised import engine_complaint
from .build import build_plan
from .family import Family
from .key import PlanKey, Profile
from .store import PlanStore


def plan_key(bundle: Bundle, family: Family, gpu: Gpu, profile: Profile, *, tf32: bool = False) -> PlanKey:
    """The key of the bundle's plan. Raises EngineError for TF32 with a graph that is not float32, and for INT8 in
    another form than TensorRT's."""
    complaint = engine_complaint(bundle.manifest, bundle.name, family.name)
    if complaint is not None:
        raise EngineError(complaint)
    precision = chosen_precision(bundle, tf32=tf32)
    graph = bundle.manifest.files[bundle.graph("image").file].sha256
    return PlanKey(graph, precision, profile, gpu, family.name, family.version)


def provide_plan(
    bundle: Bundle,
    family: Family,
    key: PlanKey,
    *,
    build: bool = True,
    capability: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> bytes:
    """The plan of `key`: the stored one, or a new one, which is then stored.

    A plan with another key, or a damaged one, is replaced, and `say` receives the reason; without `build` it is an
    error. Two processes build the plan only once. Raises EngineError.
    """
    store = PlanStore.of(bundle)
    found = store.load(key)
    if found.plan is None and not build:
        raise EngineError(
            f"{bundle.name} has no {key.precision} plan for {key.gpu.name} and {family.name} {family.version} "
            f"({found.reason}); leave --no-build out, or run xbench-export --backend {family.name} on this machine."
        )
    if found.plan is not None:
        return found.plan
    with store.building(key):
        found = store.load(key)
        if found.plan is not None:
            return found.plan
        why = "" if found.reason == "there is none yet" else f" again, because {found.reason}"
        say(f"{bundle.name}: building its {key.precision} plan for {key.gpu.name}{why}; this takes minutes, once")
        built = build_plan(
            family,
            bundle.file("image"),
            key.profile,
            key.precision,
            timing=store.timing(key),
            capability=capability,
        )
        store.save(key, built)
    return built.plan
