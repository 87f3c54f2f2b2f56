"""Solutions carried over to more rows and to fewer: exact where all rows are near, good on a map, by dense algebra."""

from __future__ import annotations

import pytest
import torch

from gp_truth import h_matrix, toy
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import make_operator
from warmgp.operators.row_noise import RowNoise
from warmgp.solvers import new_rows
from warmgp.solvers.new_rows import grown, shrunk

THETA = Hyperparameters.from_vector(torch.tensor([0.1, 1.3, 0.5, 0.7], dtype=torch.float64))


def problem(n: int, d: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (n, d), H (n, n) and targets (n, 3)."""
    x, y = toy(n, d)
    H = h_matrix("matern32", x, THETA.vector)
    return x, H, torch.stack([y, y.flip(0), torch.cos(3 * x[:, 0])], 1)


@pytest.mark.parametrize("own_noise", [False, True])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_near_rows_that_are_all_rows_give_the_exact_solution(
    count: int, own_noise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_rows, "ROUNDS", count)  # every row knows of all before it
    x, H, b = problem(130)
    rows = None
    if own_noise:
        rows = RowNoise(torch.ones(130, dtype=torch.float64), torch.linspace(0, 0.1, 130, dtype=torch.float64))
        H = H + torch.diag(rows.known)
    old, operator = 130 - count, make_operator("chunked", x, get_kernel("matern32"), THETA, rows=rows)
    before = torch.linalg.solve(H[:old, :old], b[:old])
    residual = b[old:] - H[old:, :old] @ before
    found = grown(operator, residual, torch.Generator().manual_seed(0))
    found[:old] += before
    after = torch.linalg.solve(H, b)
    torch.testing.assert_close(found, after, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(shrunk(operator, after, old, torch.Generator()), before, rtol=1e-7, atol=1e-7)


def test_on_a_map_near_rows_tell_nearly_all() -> None:
    x, H, b = problem(900)
    old, operator = 810, make_operator("chunked", x, get_kernel("matern32"), THETA)
    before, after = torch.linalg.solve(H[:old, :old], b[:old]), torch.linalg.solve(H, b)
    start = torch.cat([before, torch.zeros(90, 3, dtype=torch.float64)])

    def energy(v: torch.Tensor) -> float:
        error = v - after
        return float((error * (H @ error)).sum().sqrt())

    found = start + grown(operator, (b - H @ start)[old:], torch.Generator().manual_seed(0))
    assert energy(found) < 0.02 * energy(start)
    fewer = shrunk(operator, after, old, torch.Generator().manual_seed(0))
    left = torch.linalg.vector_norm(b[:old] - H[:old, :old] @ fewer)
    assert left < 0.01 * torch.linalg.vector_norm(b[:old] - H[:old, :old] @ after[:old])


def test_rows_that_have_no_factor_are_left_to_the_solver() -> None:
    theta = Hyperparameters.from_vector(torch.tensor([1e-12, 1.0, 1.0], dtype=torch.float64))
    x = torch.zeros(6, 1, dtype=torch.float64)  # all coincide, and there is no noise
    operator = make_operator("chunked", x, get_kernel("rbf"), theta)
    found = grown(operator, torch.ones(2, 1, dtype=torch.float64), torch.Generator().manual_seed(0))
    assert torch.isfinite(found).all()
