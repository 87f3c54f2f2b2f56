"""Products with few columns, and tiles in memory that is used again."""

from __future__ import annotations

import pytest
import torch

from warmgp.operators.scratch import Scratch
from warmgp.operators.tall import SLAB, tall_product


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("p", "q", "c"), [(1, 1, 1), (SLAB + 7, 33, 65), (5, 2 * SLAB + 1, 2), (SLAB, 3, 1)])
@pytest.mark.parametrize("turned", [False, True])
def test_it_is_the_product(p: int, q: int, c: int, dtype: torch.dtype, turned: bool) -> None:
    generator = torch.Generator().manual_seed(p)
    M = torch.randn(q, p, dtype=torch.float64, generator=generator).T if turned else None
    M = torch.randn(p, q, dtype=torch.float64, generator=generator) if M is None else M
    V = torch.randn(q, c, dtype=torch.float64, generator=generator)
    found = tall_product(M.to(dtype), V.to(dtype))
    assert found.is_contiguous() and found.dtype == dtype
    error = (found.double() - M @ V).norm() / (M @ V).norm()
    assert float(error) < (1e-5 if dtype == torch.float32 else 1e-14)


def test_scratch_is_the_same_memory_per_name() -> None:
    scratch = Scratch(torch.zeros(1, dtype=torch.float32))
    a, b = scratch.tile("a", 4, 5), scratch.tile("b", 4, 5)
    assert a.data_ptr() != b.data_ptr() and a.shape == (4, 5) and a.dtype == torch.float32
    assert scratch.tile("a", 2, 3).data_ptr() == a.data_ptr()  # a smaller tile fits
    larger = scratch.tile("a", 10, 10)
    assert larger.shape == (10, 10) and scratch.tile("a", 4, 5).data_ptr() == larger.data_ptr()
