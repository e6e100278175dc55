"""The evaluation protocols (docs/protocols.md) and the published scorers of boxes (docs/detection.md §3) by name: what
--protocol names. Packages add some by the entry point groups xbench_fast.protocols and xbench_fast.scorers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...engines.errors import ConfigError, RunError
from ...engines.registry import did_you_mean
from ...metrics_gpu.detection.published.scorer import Scorer
from ...metrics_gpu.grounding.protocols import PROTOCOLS as BUILT_IN
from ...metrics_gpu.grounding.protocols import Protocol, protocol
from .named_objects import NamedObjects

PROTOCOLS: Final = NamedObjects("protocol", Protocol, {name: protocol(name) for name in BUILT_IN})

_PUBLISHED: Final = "xbench_fast.metrics_gpu.detection.published"
SCORERS: Final = NamedObjects(
    "scorer",
    Scorer,
    {
        "radvlm": f"{_PUBLISHED}.radvlm:RADVLM",
        "chexagent": f"{_PUBLISHED}.chexagent:CHEXAGENT",
        "radfact": f"{_PUBLISHED}.radfact:RADFACT",
        "radfact_boxes": f"{_PUBLISHED}.radfact:RADFACT_BOXES",
        "afloc": f"{_PUBLISHED}.afloc:AFLOC",
        "chex": f"{_PUBLISHED}.chex:CHEX",
        "acc50": f"{_PUBLISHED}.acc50:ACC50",
        "rodeo": f"{_PUBLISHED}.rodeo:RODEO",
        "grid_hit": f"{_PUBLISHED}.grid_hit:GRID_HIT",
        "coco": f"{_PUBLISHED}.coco_detection:COCO_SCORER",
    },
)
"""In the order in which tables print them."""


def find_protocol(name: str) -> Protocol:
    """The protocol of that name. Raises ConfigError for an unknown one, and for one that a package adds and breaks."""
    if name not in PROTOCOLS:
        raise ConfigError(f"Unknown protocol '{name}': {did_you_mean(name, PROTOCOLS)}.")
    return PROTOCOLS[name]


def stored_protocol(entry: Mapping[str, Any]) -> Protocol:
    """The protocol that a cell was evaluated by; `entry` is its entry in run.json.

    Raises ConfigError for an unknown one, and RunError where the code of a package's protocol is not what it was.
    """
    name = str(entry.get("protocol", "default"))
    found = find_protocol(name)
    code = PROTOCOLS.code(name)
    if code and entry["ingredients"].get("protocol") != code:
        raise RunError(
            f"{entry.get('model')} on {entry.get('dataset')} was evaluated by other code of the protocol '{name}'; "
            f"evaluate again with --protocol {name}."
        )
    return found
