"""Stand-in weights: values that depend only on seed, tensor name and shape.

They let two implementations of one architecture be compared without a trained checkpoint. The scheme is the
same as for the goldens (docs/parity.md §2); only raw PCG64 output is used, whose stream NumPy keeps across versions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

M = TypeVar("M", bound="nn.Module")

_AT_ONCE = 1 << 15
"""Values that are made in one piece, which stays in the processor's cache."""


def _noise(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Uniform float32 values of mean 0 and variance 1: the upper 24 of every 64 bits, scaled to [-sqrt 3, sqrt 3)."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    stream = np.random.PCG64(int.from_bytes(digest[:8], "little"))
    values = np.empty(math.prod(shape), np.float32)
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        part[:] = stream.random_raw(len(part)) >> np.uint64(40)
        part *= np.float32(2.0**-23)
        part -= np.float32(1)  # exact
        part *= np.float32(math.sqrt(3.0))
    return values.reshape(shape)


def fill(name: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[Any]:
    """The stand-in value of the tensor called `name` in the published checkpoint.

    float32, except BatchNorm's step counters (int64 zero). Matrices and kernels get variance 1 / fan-in, scale vectors
    values around 1, everything else small values around 0, so signals keep their size through the network.
    """
    shape = tuple(shape)
    leaf = name.rpartition(".")[2]
    if leaf == "num_batches_tracked":
        return np.zeros(shape, np.int64)
    if leaf == "logit_scale":
        return np.full(shape, math.log(1 / 0.07), np.float32)
    noise = _noise(name, shape, seed)
    if leaf == "running_var":
        noise *= np.float32(0.25)
        noise += np.float32(1)
    elif leaf == "running_mean":
        noise *= np.float32(0.1)
    elif len(shape) > 1:
        noise /= np.float32(math.sqrt(math.prod(shape[1:])))
    elif leaf in ("weight", "gamma"):
        noise *= np.float32(0.1)
        noise += np.float32(1)
    else:
        noise *= np.float32(0.02)
    return noise


def image(name: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """A batch of already normalised input [B, C, H, W], about unit variance (also used for random text features)."""
    return _noise(name, tuple(shape), seed)


def stand_in_module(build: Callable[[], M], seed: int = 0, prefix: str = "") -> M:
    """The module that `build` returns, with stand-in values; for `prefix` see `fill_module`."""
    import torch

    with torch.device("meta"):
        module = build()
    fill_module(module, seed, prefix)
    return module


def fill_module(module: nn.Module, seed: int = 0, prefix: str = "") -> None:
    """Gives every tensor of `module` (which may be on the meta device) its stand-in value; evaluation mode.

    `prefix` goes before the module's names where those in the published file are longer.
    """
    import torch

    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    values = {name: torch.from_numpy(np.asarray(fill(prefix + name, shape, seed))) for name, shape in shapes.items()}
    module.load_state_dict(values, strict=True, assign=True)
    module.eval().requires_grad_(False)
