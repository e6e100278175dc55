"""A graph for inputs of one shape: a list of calls, each with the places it reads and fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """One call. inputs, outputs: places in the list of values; frees: places that no later step reads."""

    call: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...]


@dataclass(frozen=True)
class ExecutionPlan:
    """constants: the first values, on the device; the inputs follow them. outputs: places of the results."""

    constants: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    places: int
    outputs: tuple[int, ...]

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The results for inputs of the plan's shapes; one may share its memory with an input or a constant."""
        values: list[Any] = [*self.constants, *inputs]
        values.extend([None] * (self.places - len(values)))
        for step in self.steps:
            made = step.call(*[values[place] for place in step.inputs])
            if isinstance(made, Tensor):
                values[step.outputs[0]] = made
            else:
                for place, value in zip(step.outputs, made, strict=False):  # the last outputs may be left out
                    values[place] = value
            for place in step.frees:
                values[place] = None
        return [values[place] for place in self.outputs]
