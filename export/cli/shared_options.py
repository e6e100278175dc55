"""What the options given with `--model all` mean for one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Shared"]


@dataclass(frozen=True)
class Shared:
    """`common` are passed on as they are; the rest goes to the models it is for."""

    common: Sequence[str]
    tokenizer: Path | None = None
    text_encoder: Path | None = None
    prompts: Sequence[Path] = ()

    def arguments(self, model: str) -> list[str]:
        """The arguments for `model`: of a folder its part for the model, if there is one, and files as they are."""
        found = [*self.common]
        if self.tokenizer is not None and (self.tokenizer / model).is_dir():
            found += ["--tokenizer", str(self.tokenizer / model)]
        if self.text_encoder is not None and model in ("mavl", "medklip"):
            found += ["--text-encoder", str(self.text_encoder)]
        for path in self.prompts:
            if not path.is_dir():
                found += ["--prompts", str(path)]
            elif (path / model).is_dir():
                found += ["--prompts", str(path / model)]
        return found
