"""Facts about the built-in models' published checkpoints, of published.json; read without torch (docs/parity.md §3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import msgspec

from ...engines.manifest import MODEL_ORDER


@dataclass(frozen=True)
class PublishedVariant:
    """`file` describes the checkpoint; `paths` below a folder of checkpoints are searched for it, best first, for
    CheXzero folders. `findings` are the outputs of a supervised model that training had labels for."""

    file: str
    paths: tuple[str, ...]
    findings: tuple[str, ...] = ()

    def find(self, folder: Path) -> Path | None:
        """The checkpoint in `folder`, under the name it was published with."""
        return next((folder / path for path in self.paths if (folder / path).exists()), None)


@dataclass(frozen=True)
class Published:
    """Facts about one model: its variants as named by --variant and the licence terms.

    `sha256` maps a file's name to its digest, if known: as the authors state it, or as Hugging Face shows it for the
    file in their repository. `small` are further variants of the stand-in, `outputs` all findings of a
    supervised model.
    """

    title: str
    variants: dict[str, PublishedVariant]
    where: str
    licence: str
    text: str
    sha256: dict[str, str] = field(default_factory=dict)
    small: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """The variants of the stand-in, the default first."""
        return (*self.variants, *self.small)


def _read() -> dict[str, Published]:
    content = resources.files(__package__).joinpath("published.json").read_bytes()
    facts = msgspec.json.decode(content, type=dict[str, Published])
    return {name: facts[name] for name in sorted(facts, key=MODEL_ORDER.index)}


PUBLISHED = _read()
"""Model name -> facts, in the order of tables."""
