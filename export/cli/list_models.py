"""`xbench-export --list`: models, their files, whether the files are present, and their licences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ...engines.bundle import sha256_of
from ..models.published_checkpoints import PUBLISHED, Published, PublishedVariant
from .models_in_config import ModelTable


def list_models(folder: Path | None, table: ModelTable, wanted: Collection[str] = ()) -> Iterator[str]:
    """Lines for the terminal. With a `folder` of checkpoints, each file is looked for there and its sha256 compared
    with the published one, where that is known. `table` adds the models of a configuration file; `wanted` are the
    models to list, by default all."""
    from ..models.families import FAMILIES
    from ..models.model_registry import MODELS
    from ..models.saliency_maps import MAPS

    for name in (*PUBLISHED, *(name for name in MODELS.names() if name not in PUBLISHED)):
        if wanted and name not in wanted:
            continue
        facts = PUBLISHED.get(name)
        if facts is None:
            yield f"{name}: installed by another package"
            continue
        yield f"{name}: {facts.title}"
        yield from _facts(facts, folder)
        for number, (choice, description) in enumerate(MAPS.get(name, {}).items()):
            yield f"  {'' if number else 'saliency':<9} {choice}{'' if number else ' (default)'}: {description}"
    if not wanted:
        families = ", ".join(FAMILIES.names())
        yield f"Of a family ({families}): any model, by its own configuration; see docs/add-a-model.md"
    for entry in table.entries.values():
        if wanted and entry.name not in wanted:
            continue
        what = f"of the family {entry.family}" if entry.family else entry.target
        yield f"{entry.name}: {what} (from {table.path})"
        path = entry.settings.get("checkpoint")
        if path is not None:
            yield f"  file      {path}: {'found' if path.exists() else 'not found'}"
    if folder is None:
        yield "Give --checkpoints DIR to see which of the files are there."


def _facts(facts: Published, folder: Path | None) -> Iterator[str]:
    for variant, published in facts.variants.items():
        yield f"  {variant:<9} {published.file}"
        if folder is not None:
            yield f"            {_presence(published, folder, facts.sha256)}"
    for file, digest in facts.sha256.items():
        yield f"  sha256    {file}: {digest}"
    if not facts.sha256:
        yield "  sha256    unknown"
    yield f"  where     {facts.where}"
    yield f"  licence   {facts.licence}"
    yield f"  text      {facts.text}"


def _presence(variant: PublishedVariant, folder: Path, sha256: Mapping[str, str]) -> str:
    path = variant.find(folder)
    if path is None:
        return f"not found; looked for {', '.join(variant.paths[-2:])} in {folder}"
    expected = sha256.get(path.name)
    if expected is None:
        return f"found: {path}"
    same = sha256_of(path) == expected
    return f"found: {path}, sha256 {'as published' if same else 'differs from the published one: get it again'}"
