"""Folders in which each process of a training left its part of the weights: the command that joins them.

They are not read here: their tables are pickles of the training's own classes, and ZeRO flattens the weights of all
layers into one tensor.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from ...engines.user_files import entries

_TABLE, _PART = ".metadata", ".distcp"
_SCRIPT, _LATEST = "zero_to_fp32.py", "latest"
_ZERO: Final = re.compile(r"(\w+_)?zero_pp_rank_\d+_mp_rank_\d+_(model|optim)_states\.pt")
_STATES: Final = re.compile(r"mp_rank_\d+_model_states\.pt")
_TRUST: Final = "it unpickles the folder, so run it only where you trust the folder's origin"


def joining_command(path: Path) -> str | None:
    """One sentence on a folder of torch.distributed.checkpoint or DeepSpeed, or on a file in one, with the command that
    joins its parts; None for anything else.

    Raises OSError for a folder that may not be listed.
    """
    if path.is_dir():
        folders = [*(inner for inner in entries(path) if inner.is_dir()), path]
        return next(filter(None, (found for one in folders for found in (_distributed(one), _deepspeed(one)))), None)
    if path.name == _TABLE or path.suffix == _PART:
        return _distributed(path.parent)
    return _deepspeed(path.parent) if _ZERO.fullmatch(path.name) else None


def _distributed(folder: Path) -> str | None:
    """About `.metadata` and `__0_0.distcp`, which FSDP, Lightning and accelerate write too."""
    table = (folder / _TABLE).is_file()
    if not table and not any(one.suffix == _PART for one in entries(folder)):
        return None
    if not table:
        return (
            f"{folder} holds the parts of a torch.distributed.checkpoint, and not its table, the hidden file {_TABLE}; "
            "copy the folder again with its hidden files."
        )
    command = f"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {shlex.quote(str(folder))} OUT.pt"
    return f"{folder} is a folder of torch.distributed.checkpoint; join its parts by {command} ({_TRUST})."


def _deepspeed(folder: Path) -> str | None:
    """About the folder of one step (`global_step100`), or the one above, which has `latest` and the script."""
    names = [one.name for one in entries(folder)]
    if any(map(_ZERO.fullmatch, names)):
        root = folder.parent if (folder.parent / _SCRIPT).is_file() or (folder.parent / _LATEST).is_file() else folder
    elif _SCRIPT in names:
        root = folder
    else:
        if _LATEST in names and (states := [one for one in folder.glob("*/*") if _STATES.fullmatch(one.name)]):
            return f"{folder} is a folder of DeepSpeed without ZeRO; give its file {min(states)}."
        return None
    script = shlex.quote(str(root / _SCRIPT)) if (root / _SCRIPT).is_file() else "-m deepspeed.utils.zero_to_fp32"
    command = f"python {script} {shlex.quote(str(root))} OUT"
    return f"{folder} is a folder of DeepSpeed ZeRO; join its parts by {command} ({_TRUST}), and give OUT."
