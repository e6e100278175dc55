"""Which GELU the layers of a checkpoint compute, where the file, or a configuration in its folder, states it.

Weights have the same names and shapes with both. The code of a TorchScript archive is read as text and not run.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any, Final

from ...engines.strict_json import parse_json

QUICK, EXACT = "QuickGELU", "GELU"
_TANH: Final = "GELU by tanh"
_MOST_CODE: Final = 1 << 26  # bytes of code that are read; a compressed entry can grow without limit
_CALLS: Final = (
    (QUICK, re.compile(r"\bsigmoid\(")),  # x * sigmoid(1.702 x); no other layer of CLIP has a sigmoid
    (_TANH, re.compile(r"\bgelu\([^\n]*approximate=[\"']tanh")),
    (EXACT, re.compile(r"\bgelu\((?![^\n]*approximate=[\"']tanh)")),
)
_NAMES: Final = {"quick_gelu": QUICK, "gelu": EXACT, "gelu_new": _TANH, "gelu_pytorch_tanh": _TANH}


def scripted_activation(path: Path) -> str:
    """What the code of the TorchScript archive at `path` computes; empty for other files and for code with several
    activations or none.

    Raises OSError.
    """
    if not zipfile.is_zipfile(path):
        return ""
    activations, left = set[str](), _MOST_CODE
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if "/code/" not in f"/{name}" or not name.endswith(".py"):
                    continue
                with archive.open(name) as file:
                    text = file.read(left + 1).decode("utf-8", "replace")
                left -= len(text)
                if left < 0:
                    return ""
                activations |= {activation for activation, call in _CALLS if call.search(text)}
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):
        return ""
    return activations.pop() if len(activations) == 1 else ""


def configured_activation(path: Path) -> str:
    """The activation that transformers' config.json in the folder of the weights states for both towers of a CLIP;
    empty without that file, and where it states none.

    Its `hidden_act` is QuickGELU by default.
    """
    try:
        content: Any = parse_json((path.parent / "config.json").read_text(encoding="utf-8"))
        if content.get("model_type") != "clip":
            return ""
        towers = [content.get(f"{tower}_config") or {} for tower in ("vision", "text")]
        stated = {_NAMES.get(tower.get("hidden_act", "quick_gelu"), "") for tower in towers}
    except (OSError, ValueError, AttributeError, TypeError):
        return ""
    return stated.pop() if len(stated) == 1 else ""
