"""The files below a folder of a dataset; hidden ones are none (`engines.user_files`, which other rooms use too)."""

from __future__ import annotations

from ....engines.user_files import entries, is_hidden, tree

__all__ = ["entries", "is_hidden", "tree"]
