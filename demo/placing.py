"""Copies the demo from the package to a folder of the user, where its files lie as in demo/ of a checkout."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path

from ..engines.bundle import Bundle, write_bundle
from ..engines.errors import BundleError, ConfigError
from ..engines.user_files import entries

__all__ = ["MODEL", "PACKAGED", "place_bundle", "place_files"]

PACKAGED = Path(__file__).parent
"""The demo in the package."""
MODEL = "kad-demo"
_CONFIGURATION = "xbench.toml"
# The configuration first: a folder that has it is the demo's, also after a copy that was killed.
_FILES = (_CONFIGURATION, "DATA_CARD.md", "chestxdet10/**/*.*")


def place_files(folder: Path) -> Path:
    """Copies the configuration, the radiographs and their terms to `folder`; returns the configuration file there.

    Equal files there stay. Raises ConfigError, before anything is copied, where a file differs or the folder holds
    something else, and OSError.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file; give a folder.")
    if (folder / "run.json").exists():
        raise ConfigError(f"--out {folder} is a run directory; give another folder, which will hold the demo's own.")
    if entries(folder) and not (folder / _CONFIGURATION).exists():
        raise ConfigError(f"--out {folder} holds other files; give a new or empty folder.")
    sources = [path for pattern in _FILES for path in sorted(PACKAGED.glob(pattern))]
    waiting = []
    for source in sources:
        target = folder / source.relative_to(PACKAGED)
        if not target.exists():
            waiting.append((source, target))
        elif not target.is_file() or not filecmp.cmp(source, target, shallow=False):
            raise ConfigError(
                f"{target} exists and differs from the demo's file; nothing was changed. Give --out another folder."
            )
    for source, target in waiting:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed, so that a killed copy leaves no part of a file, which would differ at the next start.
        draft = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, draft)
        draft.replace(target)
    return folder / _CONFIGURATION


def place_bundle(bundles: Path) -> Bundle:
    """Copies the model's bundle to the folder `bundles`, unless one of the same checkpoint is there, e.g. a new export.

    A damaged one is replaced. Raises BundleError where the name is taken, or nothing can be written.
    """
    packaged, target = Bundle.load(PACKAGED / "bundles" / MODEL), bundles / MODEL
    if target.exists():
        try:
            there = Bundle.load(target)
        except BundleError:
            there = None
        if there is not None:
            if there.manifest.checkpoint == packaged.manifest.checkpoint:
                return there
            raise BundleError(f"{target} is the bundle of another model; give another folder with --out.")
    files = {name: packaged.path / name for name in packaged.manifest.files}
    return write_bundle(target, packaged.manifest, files, replace=True)
