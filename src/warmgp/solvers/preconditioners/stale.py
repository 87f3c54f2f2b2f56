"""P = H at an earlier θ: one whole Cholesky factor that preconditions many steps of training.

θ moves a little at each step of Adam, so the factor of an earlier H is nearly that of the present one: P⁻¹H has all
its eigenvalues near one, whatever the noise, and conjugate gradients need a handful of iterations where a low-rank
preconditioner needs hundreds. The factor costs n³/3 operations and n² numbers; it is worth that up to some ten thousand
points.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator, Origin
from warmgp.operators.dense import DenseOperator
from warmgp.solvers.triangular import solve_with_factor, triangular_inverse


@dataclass(frozen=True)
class Recipe:
    """What a factor is made again from after a resume, to the same bits."""

    theta: Hyperparameters
    double: bool = False
    half: bool = True  # X in float16, on a GPU

    def build(self, operator: KernelOperator) -> StaleFactor | None:
        """The factor, on the operator's data."""
        return StaleFactor.build(operator.at(self.theta), double=self.double, half=self.half)


@dataclass(frozen=True, eq=False)
class StaleFactor:
    """P⁻¹ of one H.

    Attributes
    ----------
    origin : Origin
        Of the H that was factored.
    factor : Tensor, (n, n)
        Its lower Cholesky factor L; or, where ``noise`` is given, X = σL⁻¹, with zeros up to a multiple of 8.
    noise : float or None
        σ, for P⁻¹ = XᵀX/σ². Products are fast on a GPU and substitution is not. No entry of X is above one, so float16
        holds it, which is precise enough for a preconditioner while the largest eigenvalue of H is below some 10⁶ σ².
    double : bool
        Whether H was factored in float64.
    """

    origin: Origin
    factor: Tensor
    noise: float | None = None
    double: bool = False

    @classmethod
    def build(cls, operator: KernelOperator, *, double: bool = False, half: bool = True) -> StaleFactor | None:
        """Factor H in float32, or in float64 where that fails; None where H is not positive definite.

        ``double`` does not try float32, which has failed before. On a GPU X is kept in float16, or where ``half`` is
        not wanted in the precision of the factor.
        """
        for dtype in (torch.float64,) if double else (torch.float32, torch.float64):
            if isinstance(operator, DenseOperator) and dtype == operator.dtype:
                H = operator.H.clone()
            else:
                dense = DenseOperator(operator.x.to(dtype), operator.kernel, operator.theta)
                H = dense.take()
                operator.entries_evaluated += dense.entries_evaluated
            L = H.mT  # by columns, as LAPACK works: in place, without a copy
            info = torch.empty((), dtype=torch.int32, device=H.device)
            torch.linalg.cholesky_ex(L, out=(L, info))
            if int(info) == 0:
                factor = cls(operator.origin, L, double=dtype == torch.float64)
                return factor if H.device.type == "cpu" else factor.inverted(torch.float16 if half else dtype)
        return None

    def successor(self, operator: KernelOperator) -> StaleFactor | None:
        """The factor that takes over when this one is of little help: of the operator's H, or where this one is of that
        H already, in the next precision; None after the last, or where H is not positive definite."""
        if not self.origin.same(operator.origin):
            return self.build(operator, double=self.double)
        if self.factor.dtype == torch.float16:
            return self.build(operator, double=self.double, half=False)
        return None if self.double else self.build(operator, double=True, half=False)

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.origin.theta, self.double, self.noise is None or self.factor.dtype == torch.float16)

    def inverted(self, dtype: torch.dtype) -> StaleFactor:
        """The same preconditioner by products with X = σL⁻¹ in that dtype."""
        noise, n = float(self.origin.theta.noise_scale), self.factor.shape[0]
        X = torch.zeros(_padded(n), _padded(n), dtype=dtype, device=self.factor.device)
        X[:n, :n] = triangular_inverse(self.factor).mul_(noise)
        return StaleFactor(self.origin, X, noise, self.double)

    def solve(self, R: Tensor) -> Tensor:
        """P⁻¹ R, (n, c)."""
        if self.noise is None:
            return solve_with_factor(self.factor, R.to(self.factor.dtype)).to(R.dtype)
        n, c = R.shape
        scale = R.abs().amax(0).clamp_min(torch.finfo(R.dtype).tiny)  # per column: float16 has few exponents
        scaled = torch.zeros(self.factor.shape[0], _padded(c), dtype=self.factor.dtype, device=R.device)
        scaled[:n, :c] = R / scale
        whole = self.factor.T @ (self.factor @ scaled)
        return whole[:n, :c].to(R.dtype) * (scale / self.noise**2)


def _padded(n: int) -> int:
    """The next multiple of 8: tensor cores want rows of whole 16 bytes."""
    return -(-n // 8) * 8
