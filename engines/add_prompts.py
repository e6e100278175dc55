"""New prompt sets for a bundle that exists, through its own tokenizer and text graph."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .bundle import Bundle, write_bundle
from .errors import BundleError
from .ort import TextEncoder
from .prompt_encoding import encode_sets, texts_per_query
from .prompt_files import PromptSets
from .prompts import PromptSet
from .tokenizing import bundle_tokenizer

__all__ = ["add_prompts", "encode_for"]


def encode_for(bundle: Bundle, sets: PromptSets, *, threads: int | None = None) -> list[PromptSet]:
    """The sets, encoded as the export would have done it.

    Raises BundleError (no tokenizer or text graph in the bundle), ConfigError (texts of a query), EngineError,
    MissingExtraError.
    """
    image, text = bundle.graph("image"), bundle.graph("text")
    words, encoder = bundle_tokenizer(bundle), TextEncoder.of(bundle, threads=threads)
    return encode_sets(sets, words, encoder, [tensor.name for tensor in text.inputs], texts_per_query(image, text))


def add_prompts(bundle: Bundle, sets: Sequence[PromptSet], *, replace: bool = False) -> Bundle:
    """Writes `bundle` again with `sets` in it, whole or not at all; returns it with its new digest.

    Everything else stays byte for byte. Raises BundleError when a set of that name is there and `replace` is false.
    """
    manifest = bundle.manifest
    if not replace and (taken := sorted({found.name for found in sets} & set(manifest.prompt_sets))):
        raise BundleError(
            f"{bundle.path} already has a prompt set '{taken[0]}'; rename yours or replace that one with --replace."
        )
    prompt_sets = {**manifest.prompt_sets, **{found.name: found.record() for found in sets}}
    with tempfile.TemporaryDirectory(prefix="xbench-prompts-") as folder:
        files = {name: bundle.path / name for name in manifest.files}
        for found in sets:
            found.save(Path(folder) / found.file)
            files[found.file] = Path(folder) / found.file
        return write_bundle(bundle.path, dataclasses.replace(manifest, prompt_sets=prompt_sets), files, replace=True)
