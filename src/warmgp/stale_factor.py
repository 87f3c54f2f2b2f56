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

from warmgp.operators.base import KernelOperator, Origin
from warmgp.operators.dense import DenseOperator
from warmgp.triangular import solve_with_factor, triangular_inverse


@dataclass(frozen=True, eq=False)
class StaleFactor:
    """P⁻¹ of one H.

    Attributes
    ----------
    origin : Origin
        Of the H that was factored.
    factor : Tensor, (n, n)
        Its lower Cholesky factor; on a GPU the inverse of that, because products are fast there and substitution is
        not.
    """

    origin: Origin
    factor: Tensor

    @classmethod
    def build(cls, operator: KernelOperator) -> StaleFactor | None:
        """Factor H in the operator's dtype, or in float64 where that fails; None where H is not positive definite."""
        for dtype in dict.fromkeys([operator.dtype, torch.float64]):
            if isinstance(operator, DenseOperator) and dtype == operator.dtype:
                H = operator.H.clone()
            else:
                dense = DenseOperator(operator.x.to(dtype), operator.kernel, operator.theta)
                H = dense.take()
                operator.entries_evaluated += dense.entries_evaluated
            info = torch.empty((), dtype=torch.int32, device=H.device)
            torch.linalg.cholesky_ex(H, out=(H, info))
            if int(info) == 0:
                return cls(operator.origin, H if H.device.type == "cpu" else triangular_inverse(H))
        return None

    def solve(self, R: Tensor) -> Tensor:
        """P⁻¹ R, (n, c)."""
        its = R.to(self.factor.dtype)
        if self.factor.device.type == "cpu":
            return solve_with_factor(self.factor, its).to(R.dtype)
        return (self.factor.T @ (self.factor @ its)).to(R.dtype)
