"""Adds prompt sets to an existing bundle."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..bundle import Bundle, change_bundle
from ..errors import BundleError
from ..manifest import Manifest
from .prompt_set import PromptSet


def check_names(bundle: Bundle, names: Iterable[str], *, replace: bool) -> None:
    """Raises BundleError when `bundle` has a set of one of the `names` and `replace` is false."""
    if not replace and (taken := sorted(set(names) & set(bundle.manifest.prompt_sets))):
        raise BundleError(
            f"{bundle.path} already has a prompt set '{taken[0]}'; rename yours or replace that one with --replace."
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
        check_names(now, [found.name for found in sets], replace=replace)
        files = {name: now.path / name for name in now.manifest.files}
        for found in sets:
            found.save(folder / found.file)
            files[found.file] = folder / found.file
        prompt_sets = {**have, **{found.name: found.record() for found in sets}}
        return dataclasses.replace(now.manifest, prompt_sets=prompt_sets), files

    return change_bundle(bundle.path, added)


def _without_prompts(manifest: Manifest) -> Manifest:
    features = {record.file for record in manifest.prompt_sets.values()}
    files = {name: record for name, record in manifest.files.items() if name not in features}
    return dataclasses.replace(manifest, prompt_sets={}, files=files)
