"""The form of an entry in the operator table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any


class Refusal(Exception):
    """Why an operator does not run a node, as the end of a sentence: "casts to ..."."""


@dataclass(frozen=True)
class Operator:
    """How an operator of ONNX is computed.

    run: takes ONNX's inputs in order, an absent one as None, and its attributes as keywords with ONNX's defaults.
    host: inputs that PyTorch needs as numbers, such as axes; given as a list, and must be known before the graph runs.
    scalar: inputs given as one number where they are a known scalar, else as tensors. kernels: takes a keyword
    `kernels`. grows: repeats its input, so that it is not computed ahead. since: the first opset with this meaning.
    """

    run: Callable[..., Any]
    host: tuple[int, ...] = ()
    scalar: tuple[int, ...] = ()
    kernels: bool = False
    grows: bool = False
    since: int = 13

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The attributes that `run` takes."""
        try:
            taken = inspect.signature(self.run).parameters.values()
        except ValueError:  # a function of PyTorch itself, of tensors alone
            return frozenset()
        return frozenset(p.name for p in taken if p.kind is p.KEYWORD_ONLY)
