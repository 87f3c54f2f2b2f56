"""Sums of products in float32 that keep their digits: short ones in float32, and those of them in float64.

A solution has large entries of both signs that nearly cancel in H v. A library adds up a long row in float32, and what
it rounds away on the way is a multiple of what is left in the end: on 30,000 points of houseelectric with a noise of
0.034 products were off by 0.016, half a noise, though the entries of H in float32 are good enough for 0.0002. Panels of
256 columns, added in float64, are off by 0.002 for a tenth more time; entries that are turned to float64 first, by
0.0002 for twice the time. A stored H has plain sums: it is for fewer points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from warmgp.operators.indices import ranges

PANEL = 256
"""Columns whose products are added up in float32."""


def sum_dtype(V: Tensor) -> torch.dtype:
    """Returns the dtype that products with V are to be summed in: float64 for float32 on a CPU, else its own."""
    return torch.float64 if V.dtype == torch.float32 and V.device.type == "cpu" else V.dtype


def add_product(out: Tensor, A: Tensor, V: Tensor) -> None:
    """Adds A V to ``out``, panel by panel where ``out`` has more digits than A and V."""
    if out.dtype == V.dtype:
        out.addmm_(A, V)
        return
    for some in ranges(A.shape[1], PANEL):
        out += A[:, some] @ V[some]


def product(A: Tensor, V: Tensor) -> Tensor:
    """Returns A V, summed as :func:`add_product` does."""
    if sum_dtype(V) == V.dtype or A.shape[1] <= PANEL:
        return A @ V
    out = torch.zeros(A.shape[0], V.shape[1], dtype=sum_dtype(V), device=V.device)
    add_product(out, A, V)
    return out.to(V.dtype)
