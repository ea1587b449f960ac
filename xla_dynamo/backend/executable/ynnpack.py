"""What XLA:CPU leaves to its library YNNPACK of a program of narrow products, such as a ConvNeXt's.

By itself XLA gives YNNPACK all products of matrices and all sums, with the norms before and after.
Where many rows meet a small matrix, Eigen, which is what XLA has for products otherwise, takes less
time, and a norm that is in one fusion with the product behind it takes longer than alone. Sums of
columns, which are in gradients, are YNNPACK's: XLA's own loops take 1.5 to 2 times as long.

Milliseconds on two cores of a Cascade Lake (jaxlib 0.10.2; 0.10.1, 0.11.2 and 0.12.0 are alike),
products of float32, of rows with a transposed matrix:

| rows, matrix | YNNPACK | Eigen |
|---|---|---|
| 8192, 48x192 | 1.76 | 1.44 |
| 8192, 64x256 | 2.78 | 2.51 |
| 6272, 96x384 | 3.93 | 3.02 |
| 4096, 128x512 | 4.54 | 4.07 |
| 2048, 96x384 | 1.20 | 1.05 |
| 1024, 256x1024 | 4.34 | 4.77 |
| 512, 768x3072 | 18.1 | 31.8 |
| 512, 64x256 | 0.33 | 0.50 |

Layer norm, product, GELU and product of 8192 x 48, as a program: 7.0, with Eigen's products and
XLA's own sums 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.jax_adapter import VERSION
from xla_dynamo.backend.lowering import host_kernels, host_products
from xla_dynamo.backend.lowering.host_kernels import FIRST_FACTORS
from xla_dynamo.backend.runtime.wrong_fusions import OPTION

aten = torch.ops.aten
_IS_KNOWN = (0, 10, 1) <= VERSION < (0, 13)
_AS_USUAL: Mapping[str, Any] = MappingProxyType({})
_NOTHING = MappingProxyType({OPTION: ""})
_SUMS = MappingProxyType({OPTION: "LIBRARY_FUSION_TYPE_REDUCE"})

_LEAST_WORK = 1e6  # products, of one that counts
_LEAST_SUMMED = 4096  # elements: YNNPACK gets no less
_SUMS_OF_DIMENSIONS = (aten.sum.dim_IntList, aten.mean.dim)
_CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)


def preferred(graph: Graph, platform: str) -> Mapping[str, Any]:
    """Options for XLA's compiler that suit a graph's products; none where XLA's choice does."""
    if platform != "cpu" or not _IS_KNOWN:
        return _AS_USUAL
    calls = fx.calls(graph)
    products = [
        (FIRST_FACTORS[call.target], *host_kernels.values(call))
        for call in calls
        if call.target in FIRST_FACTORS
    ]
    large = [each for each in products if math.prod(host_products.sizes(*each)) >= _LEAST_WORK]
    if not large or not all(host_products.is_narrow(*each) for each in large):
        return _AS_USUAL
    if any(call.target in _CONVOLUTIONS for call in calls):
        return _AS_USUAL
    return _SUMS if any(map(_sums_columns, calls)) else _NOTHING


def _sums_columns(call: Node) -> bool:
    """Whether rows are added up, so that memory is read across them."""
    if call.target is aten.native_layer_norm_backward.default:
        return True
    if call.target not in _SUMS_OF_DIMENSIONS:
        return False
    value, dims = call.all_input_nodes[0].meta["val"], fx.arguments(call)["dim"]
    summed = {dim % value.dim() for dim in dims or ()} if value.dim() else ()
    return bool(summed) and value.dim() - 1 not in summed and value.numel() >= _LEAST_SUMMED
