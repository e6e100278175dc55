"""The operators of ONNX that run here, by name."""

from __future__ import annotations

from typing import Final

import torch

from . import arithmetic, elementwise, indexing, normalising, pooling, products, reducing, shaping
from .operators import Operator

_ELEMENTWISE: Final = {
    "Abs": Operator(torch.abs),
    "Cast": Operator(elementwise.cast),
    "CastLike": Operator(elementwise.cast_like, since=15),
    "Ceil": Operator(torch.ceil),
    "Clip": Operator(elementwise.clip, host=(1, 2)),
    "Cos": Operator(torch.cos),
    "Dropout": Operator(elementwise.dropout, host=(1, 2)),
    "Elu": Operator(elementwise.elu),
    "Erf": Operator(torch.erf),
    "Exp": Operator(torch.exp),
    "Floor": Operator(torch.floor),
    "Gelu": Operator(elementwise.gelu, since=20),
    "HardSigmoid": Operator(elementwise.hard_sigmoid),
    "HardSwish": Operator(elementwise.hard_swish, since=14),
    "Identity": Operator(elementwise.identity),
    "IsInf": Operator(elementwise.is_inf),
    "IsNaN": Operator(torch.isnan),
    "LeakyRelu": Operator(elementwise.leaky_relu),
    "Log": Operator(torch.log),
    "Mish": Operator(elementwise.mish, since=18),
    "Neg": Operator(torch.neg),
    "Not": Operator(torch.logical_not),
    "PRelu": Operator(elementwise.prelu),
    "Reciprocal": Operator(torch.reciprocal),
    "Relu": Operator(torch.relu),
    "Round": Operator(torch.round),
    "Sigmoid": Operator(torch.sigmoid),
    "Sign": Operator(torch.sign),
    "Sin": Operator(torch.sin),
    "Softplus": Operator(elementwise.softplus),
    "Softsign": Operator(torch.nn.functional.softsign),
    "Sqrt": Operator(torch.sqrt),
    "Tanh": Operator(torch.tanh),
}

_ARITHMETIC: Final = {
    "Add": Operator(torch.add),
    "And": Operator(torch.logical_and),
    "Div": Operator(arithmetic.divide),
    "Equal": Operator(torch.eq),
    "Greater": Operator(torch.gt),
    "GreaterOrEqual": Operator(torch.ge),
    "Less": Operator(torch.lt),
    "LessOrEqual": Operator(torch.le),
    "Max": Operator(arithmetic.largest),
    "Mean": Operator(arithmetic.average),
    "Min": Operator(arithmetic.smallest),
    "Mod": Operator(arithmetic.modulo),
    "Mul": Operator(torch.mul),
    "Or": Operator(torch.logical_or),
    "Pow": Operator(arithmetic.power),
    "Sub": Operator(torch.sub),
    "Sum": Operator(arithmetic.total),
    "Where": Operator(arithmetic.where),
    "Xor": Operator(torch.logical_xor),
}

_SHAPING: Final = {
    "Concat": Operator(shaping.concatenate),
    "ConstantOfShape": Operator(shaping.constant_of_shape, host=(0,)),
    "Expand": Operator(shaping.expand, host=(1,), grows=True),
    "Flatten": Operator(shaping.flatten),
    "Pad": Operator(shaping.pad, host=(1, 2, 3)),
    "Range": Operator(shaping.number_range),
    "Reshape": Operator(shaping.reshape, host=(1,)),
    "Slice": Operator(shaping.slice_axes, host=(1, 2, 3, 4)),
    "Split": Operator(shaping.split, host=(1,)),
    "Squeeze": Operator(shaping.squeeze, host=(1,)),
    "Tile": Operator(shaping.tile, host=(1,), grows=True),
    "Transpose": Operator(shaping.transpose),
    "Unsqueeze": Operator(shaping.unsqueeze, host=(1,)),
}

_INDEXING: Final = {
    "ArgMax": Operator(indexing.arg_max),
    "CumSum": Operator(indexing.cumulative_sum, host=(1,)),
    "Gather": Operator(indexing.gather, scalar=(1,)),
    "GatherElements": Operator(indexing.gather_elements),
    "Trilu": Operator(indexing.triangle, host=(1,), since=14),
}

_REDUCING: Final = {
    "LogSoftmax": Operator(reducing.log_softmax),
    "ReduceL1": Operator(reducing.l1, host=(1,)),
    "ReduceL2": Operator(reducing.l2, host=(1,)),
    "ReduceLogSumExp": Operator(reducing.log_of_sum, host=(1,)),
    "ReduceMax": Operator(reducing.greatest, host=(1,)),
    "ReduceMean": Operator(reducing.mean, host=(1,)),
    "ReduceMin": Operator(reducing.least, host=(1,)),
    "ReduceProd": Operator(reducing.product, host=(1,)),
    "ReduceSum": Operator(reducing.total, host=(1,)),
    "ReduceSumSquare": Operator(reducing.sum_of_squares, host=(1,)),
    "Softmax": Operator(reducing.softmax),
}

_LAYERS: Final = {
    "AveragePool": Operator(pooling.average_pool),
    "BatchNormalization": Operator(normalising.batch_norm),
    "Conv": Operator(products.convolution, kernels=True),
    "ConvTranspose": Operator(products.transposed_convolution),
    "Einsum": Operator(products.einsum),
    "Gemm": Operator(products.general_product),
    "GlobalAveragePool": Operator(pooling.global_average),
    "GlobalMaxPool": Operator(pooling.global_max),
    "GroupNormalization": Operator(normalising.group_norm, since=21),
    "InstanceNormalization": Operator(normalising.instance_norm),
    "LayerNormalization": Operator(normalising.layer_norm, since=17),
    "MatMul": Operator(torch.matmul),
    "MaxPool": Operator(pooling.max_pool),
    "Resize": Operator(pooling.resize, host=(1, 2, 3)),
}

OPERATORS: Final = _ELEMENTWISE | _ARITHMETIC | _SHAPING | _INDEXING | _REDUCING | _LAYERS
"""Operator -> how it is computed. `Constant`, `Shape` and `Size` need no computation: see `graph` and `compiler`."""
