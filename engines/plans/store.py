"""Provides the plan of a bundle: the stored one, or a new one. Plans lie in the bundle's `plans/`, or in the user's
cache when the bundle is read-only.

Every plan has a description, `<stem>.json`, with its key and its sha256. Nothing is added to the plan itself. This
detects damaged plans and plans with another key; it does not detect a plan that was replaced together with its
description, since bundle.json lists neither.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..bundle import PLANS, Bundle
from ..errors import EngineError
from .build import BuiltPlan, build_plan
from .family import Family
from .key import PlanKey

SCHEMA = 2
_NONE_YET = "there is none yet"


class PlanStore:
    """The plans of one bundle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def of(bundle: Bundle) -> PlanStore:
        """The store of `bundle`: `plans/` in it, or a folder of the user's cache where the bundle cannot be written."""
        inside = bundle.path / PLANS
        if os.access(inside if inside.is_dir() else bundle.path, os.W_OK) and not inside.is_symlink():
            return PlanStore(inside)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return PlanStore(cache / "xbench-fast" / "plans" / bundle.digest[:32])

    def load(self, key: PlanKey) -> tuple[bytes | None, str]:
        """The plan of `key`; without one that fits, None and why there is none."""
        described, source = self.folder / f"{key.stem}.json", self.folder / f"{key.stem}.plan"
        if described.is_symlink() or source.is_symlink():
            return None, f"{source} is a symbolic link"
        try:
            record: Any = json.loads(described.read_text(encoding="utf-8"))
            plan = source.read_bytes()
        except FileNotFoundError:
            return None, _NONE_YET
        except (OSError, ValueError) as error:
            return None, f"{described} cannot be read ({error})"
        if not isinstance(record, dict) or record.get("schema") != SCHEMA or not isinstance(record.get("key"), dict):
            return None, f"{described} was written by another version"
        changed = key.differences(record["key"])
        if changed:
            return None, f"it was built for something else: {'; '.join(changed)}"
        if record.get("sha256") != hashlib.sha256(plan).hexdigest():
            return None, f"{source} does not match its sha256, it was changed or damaged"
        return plan, ""

    def save(self, key: PlanKey, built: BuiltPlan) -> None:
        """Stores a plan, whole or not at all: the description is written last. Raises EngineError.

        A reader that finds the new plan with the old description sees that the sha256 does not match.
        """
        record = {
            "schema": SCHEMA,
            "key": asdict(key),
            "sha256": hashlib.sha256(built.plan).hexdigest(),
            "bytes": len(built.plan),
            "layers": {f"{layer} {dtype}": n for (layer, dtype), n in sorted(built.types.counts.items())},
        }
        target = self.folder / f"{key.stem}.plan"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if built.timing is not None:
                _write(self._timing(key), _with_checksum(built.timing))
            _write(target, built.plan)
            _write(self.folder / f"{key.stem}.json", json.dumps(record, indent=2).encode() + b"\n")
        except OSError as error:
            raise EngineError(f"The plan {target} cannot be written: {error.strerror}; make room there.") from error

    def timing(self, key: PlanKey) -> bytes | None:
        """The timing cache of earlier builds on this GPU with this library; None for a damaged one."""
        return _verified(self._timing(key))

    def kernels(self, key: PlanKey) -> bytes | None:
        """The kernels that TensorRT for RTX compiled when the plan ran before, None for damaged ones.

        The library checks that they fit.
        """
        return _verified(self._kernels(key))

    def keep_kernels(self, key: PlanKey, kernels: bytes) -> None:
        """Stores them for the next run; where that cannot be, the next run compiles them again."""
        with suppress(OSError):
            _write(self._kernels(key), _with_checksum(kernels))

    @contextmanager
    def building(self, key: PlanKey) -> Iterator[None]:
        """Held while a plan is built, so that a second process waits and then finds it."""
        import fcntl

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / f".{key.stem}.lock").open("w")
        except OSError as error:
            raise EngineError(f"Plans cannot be kept in {self.folder}: {error.strerror}.") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _kernels(self, key: PlanKey) -> Path:
        return self.folder / f"{key.stem}.kernels"

    def _timing(self, key: PlanKey) -> Path:
        return self.folder / f"{key.stem.rsplit('-', 2)[0]}.timing"


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
    plan, reason = store.load(key)
    if plan is None and not build:
        raise EngineError(
            f"{bundle.name} has no {key.precision} plan for {key.gpu.name} and {family.name} {family.version} "
            f"({reason}); leave --no-build out, or run xbench-export --backend {family.name} on this machine."
        )
    if plan is not None:
        return plan
    with store.building(key):
        plan, reason = store.load(key)  # another process may have built it in the meantime
        if plan is not None:
            return plan
        why = "" if reason == _NONE_YET else f" again, because {reason}"
        say(f"{bundle.name}: building its {key.precision} plan for {key.gpu.name}{why}; this takes minutes, once")
        graph, timing = bundle.file("image"), store.timing(key)
        built = build_plan(family, graph, key.profile, key.precision, timing=timing, capability=capability)
        store.save(key, built)
    return built.plan


def _with_checksum(data: bytes) -> bytes:
    """The data, and behind them their SHA-256: for files that no description names."""
    return data + hashlib.sha256(data).digest()


def _verified(source: Path) -> bytes | None:
    """What `_with_checksum` was given; None for a file that is damaged, without a checksum, a link, or not readable."""
    try:
        content = b"" if source.is_symlink() else source.read_bytes()
    except OSError:
        return None
    data = content[: -hashlib.sha256().digest_size]
    return data if content and _with_checksum(data) == content else None


def _write(target: Path, data: bytes) -> None:
    """Writes under a temporary name and renames."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", suffix=".part", dir=target.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.chmod(0o644)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
