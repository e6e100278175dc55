"""Finds files in the local Hugging Face cache; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path


def cached_file(repository: str, *names: str) -> Path | None:
    """The first of the files `names` of a repository that is in the cache (HF_HOME and HF_HUB_CACHE are honoured)."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    paths = (try_to_load_from_cache(repository, name) for name in names)
    return next((Path(path) for path in paths if isinstance(path, str)), None)
