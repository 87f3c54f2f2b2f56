"""P = H at an earlier θ: one whole Cholesky factor that preconditions many steps of training.

θ moves a little at each step of Adam, so the factor of an earlier H is nearly that of the present one: P⁻¹H has all
its eigenvalues near one, whatever the noise, and conjugate gradients need a handful of iterations where a low-rank
preconditioner needs hundreds. The factor costs n³/3 operations and n² numbers; it is worth that up to some ten thousand
points.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warmgp.hyperparameters import Hyperparameters
from warmgp.operators.base import KernelOperator
from warmgp.operators.origin import Origin
from warmgp.operators.row_noise import Noise
from warmgp.schema import DOUBLE, TensorRule, check_tensors, expect, list_of, record, truth
from warmgp.solvers.base import Packed
from warmgp.solvers.preconditioners.base import Preconditioner, Preconditioning, Recipe
from warmgp.solvers.triangular import solve_with_factor, triangular_inverse


@dataclass(frozen=True)
class WholeFactor(Preconditioning):
    """Makes a whole factor of H, kept while the data stay. Conjugate gradients say when another takes its place."""

    name = "whole factor"
    fast = True

    def build(self, operator: KernelOperator) -> StaleFactor:
        made = StaleFactor.build(operator)
        if made is None:
            raise torch.linalg.LinAlgError(
                "H is not positive definite even in float64: raise noise_floor, or remove near-duplicate rows"
            )
        return made

    def unpack(self, tensors: Mapping[str, Tensor], content: Mapping[str, Any], shape: tuple[int, int]) -> StaleRecipe:
        record({}, {"factor": list_of(truth, 2)})(content, "")
        lengths = check_tensors(tensors, {"factor_theta": TensorRule(("t",), DOUBLE, positive=True)})["t"] - 2
        expect(lengths in (1, shape[1]), "factor_theta", f"{2 + shape[1]} or 3 numbers", 2 + lengths)
        return StaleRecipe(Hyperparameters.from_vector(tensors["factor_theta"]), *content.get("factor", ()))


@dataclass(frozen=True)
class StaleRecipe(Recipe):
    """Holds the θ and the precision of a factor, by which it is made again to the same bits."""

    theta: Hyperparameters
    double: bool = False
    half: bool = True  # whether the inverse is float16, on a GPU

    made_by = WholeFactor()

    def at(self, operator: KernelOperator) -> StaleFactor | None:
        return StaleFactor.build(operator.at(self.theta), double=self.double, half=self.half)

    def pack(self) -> Packed:
        return {"factor_theta": self.theta.vector}, {"factor": [self.double, self.half]}


@dataclass(frozen=True, eq=False)
class StaleFactor(Preconditioner):
    """Applies P⁻¹ of one whole H. There are two forms: by substitution, and by products.

    Attributes
    ----------
    origin : Origin
        The data and θ of the H that was factored.
    double : bool
        Whether H was factored in float64.
    """

    origin: Origin
    double: bool

    made_by = WholeFactor()

    @staticmethod
    def build(operator: KernelOperator, *, double: bool = False, half: bool = True) -> StaleFactor | None:
        """Factors H in float32, or in float64 where that fails; returns None where H is not positive definite.

        With ``double`` float32 is not tried: it has failed before. On a GPU the inverse of the factor is kept, in
        float16 or, without ``half``, in the precision of the factor.
        """
        for dtype in (torch.float64,) if double else (torch.float32, torch.float64):
            H = operator.dense(dtype)
            L = H.mT  # by columns, as LAPACK works: in place, without a copy
            info = torch.empty((), dtype=torch.int32, device=H.device)
            torch.linalg.cholesky_ex(L, out=(L, info))
            if int(info) == 0:
                factor = Substitution(operator.origin, dtype == torch.float64, L)
                return factor if H.device.type == "cpu" else factor.inverted(torch.float16 if half else dtype)
        return None

    def at(self, operator: KernelOperator) -> StaleFactor | None:
        """Returns itself at any θ of the same data; None for other data."""
        return self if self.origin.same_data(operator.origin) else None

    @property
    @abstractmethod
    def half(self) -> bool:
        """Whether the inverse is, or on a GPU would be, kept in float16."""

    @property
    def recipe(self) -> StaleRecipe:
        return StaleRecipe(self.origin.theta, self.double, self.half)

    def successor(self, operator: KernelOperator) -> StaleFactor | None:
        """Returns the factor that takes over when this one is of little help.

        That is one of the operator's H or, where this one is of that H already, one in the next precision; None after
        the last precision, and where H is not positive definite.
        """
        if not self.origin.same(operator.origin):
            return self.build(operator, double=self.double)
        return self._more_precise(operator)

    def _more_precise(self, operator: KernelOperator) -> StaleFactor | None:
        return None if self.double else self.build(operator, double=True, half=False)


@dataclass(frozen=True, eq=False)
class Substitution(StaleFactor):
    """Applies P⁻¹ = L⁻ᵀL⁻¹ by two substitutions with the lower Cholesky factor L, (n, n): the form for a CPU."""

    L: Tensor

    @property
    def half(self) -> bool:
        return True

    def apply(self, R: Tensor) -> Tensor:
        return solve_with_factor(self.L, R.to(self.L.dtype)).to(R.dtype)

    def inverted(self, dtype: torch.dtype) -> Products:
        """Returns the same preconditioner by products, with X in that dtype."""
        sigma, n = Noise(self.origin.theta, self.origin.rows).least_scale, self.L.shape[0]
        X = torch.zeros(_padded(n), _padded(n), dtype=dtype, device=self.L.device)
        X[:n, :n] = triangular_inverse(self.L).mul_(sigma)
        return Products(self.origin, self.double, X, sigma)


@dataclass(frozen=True, eq=False)
class Products(StaleFactor):
    """Applies P⁻¹ = XᵀX/σ² by two products: the form for a GPU, where they are fast and substitution is not.

    Attributes
    ----------
    X : Tensor
        σL⁻¹, (n, n), with zeros up to a multiple of 8; σ² is the least noise of a row. No entry of it is above one, so
        float16 holds it, which is precise enough for a preconditioner while the largest eigenvalue of H is below some
        10⁶ σ².
    sigma : float
    """

    X: Tensor
    sigma: float

    @property
    def half(self) -> bool:
        return self.X.dtype == torch.float16

    def apply(self, R: Tensor) -> Tensor:
        n, c = R.shape
        scale = R.abs().amax(0).clamp_min(torch.finfo(R.dtype).tiny)  # per column: float16 has few exponents
        scaled = torch.zeros(self.X.shape[0], _padded(c), dtype=self.X.dtype, device=R.device)
        scaled[:n, :c] = R / scale
        whole = self.X.T @ (self.X @ scaled)
        return whole[:n, :c].to(R.dtype) * (scale / self.sigma**2)

    def _more_precise(self, operator: KernelOperator) -> StaleFactor | None:
        if self.half:
            return self.build(operator, double=self.double, half=False)
        return super()._more_precise(operator)


def _padded(n: int) -> int:
    """Returns n rounded up to a multiple of 8: tensor cores want rows of whole 16 bytes."""
    return -(-n // 8) * 8
