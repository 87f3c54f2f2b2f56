"""The hyperparameters θ = {σ, signal scale, length scales}, positive through softplus.

θ lives in float64 on the CPU whatever the data's device and dtype: there are d + 2 numbers, and the outer optimiser
must not lose digits. Operators cast what they need. The optimiser works on ν with θ = log(1 + exp ν), so

    ∂L/∂ν = ∂L/∂θ · sigmoid(ν)        with  sigmoid(ν) = 1 − exp(−θ).

The order of a flat vector is always ``[noise, signal, length_1, …]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


def inverse_softplus(theta: Tensor) -> Tensor:
    """Returns ν with softplus(ν) = θ, accurate for tiny and for large θ."""
    return theta + torch.log(-torch.expm1(-theta))


@dataclass(frozen=True)
class Units:
    """Holds what one standardised unit of hyperparameters is, in units of the data that they were found on.

    Attributes
    ----------
    y : float or None
        The unit of noise and signal; None where several targets have one each.
    x : tuple of float
        The unit of each input.
    """

    y: float | None
    x: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """Holds the noise scale σ, the signal scale and the length scales of one model, in float64 on the CPU.

    Attributes
    ----------
    noise_scale : Tensor, ()
        σ; the observation noise has variance σ².
    signal_scale : Tensor, ()
        Prior standard deviation of the function.
    length_scales : Tensor, (d,) or (1,)
        One per input, or a single one shared by all inputs.
    units : Units or None
        What they are in units of, where a model that was trained says so; None for whatever data they are used with.
    """

    noise_scale: Tensor
    signal_scale: Tensor
    length_scales: Tensor
    units: Units | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("noise_scale", "signal_scale", "length_scales"):
            value = torch.as_tensor(getattr(self, name), dtype=torch.float64).detach().cpu().clone()
            expected = 1 if name == "length_scales" else 0
            if value.ndim != expected:
                raise ValueError(f"{name} must have {expected} dimension(s), got shape {tuple(value.shape)}")
            if value.numel() == 0 or not bool(torch.isfinite(value).all()) or bool((value <= 0).any()):
                raise ValueError(f"{name} must be positive and finite, got {value.tolist()}")
            object.__setattr__(self, name, value)

    @classmethod
    def ones(cls, n_length_scales: int) -> Hyperparameters:
        """Returns the paper's start for small data: every hyperparameter is 1."""
        return cls.from_vector(torch.ones(2 + n_length_scales, dtype=torch.float64))

    @classmethod
    def from_vector(cls, vector: Tensor) -> Hyperparameters:
        """Returns the hyperparameters of a flat vector ``[noise, signal, lengths…]``."""
        return cls(vector[0], vector[1], vector[2:])

    @classmethod
    def from_unconstrained(cls, nu: Tensor) -> Hyperparameters:
        """Returns θ = softplus(ν)."""
        # the threshold keeps softplus exact where torch would switch to the identity at 20
        return cls.from_vector(torch.nn.functional.softplus(nu.to(torch.float64), threshold=36.0))

    @property
    def vector(self) -> Tensor:
        """The flat vector of θ, ``[noise, signal, lengths…]``, (2 + number of length scales,)."""
        return torch.cat([self.noise_scale[None], self.signal_scale[None], self.length_scales])

    @property
    def unconstrained(self) -> Tensor:
        """The ν with softplus(ν) = θ, in the order of ``vector``."""
        return inverse_softplus(self.vector)

    def chain_rule(self, gradient: Tensor) -> Tensor:
        """Turns ∂L/∂θ into ∂L/∂ν = ∂L/∂θ · (1 − exp(−θ))."""
        return gradient * -torch.expm1(-self.vector)

    def with_noise_floor(self, floor: float) -> Hyperparameters:
        """Returns the same θ, with σ raised to ``floor`` where it is below."""
        if float(self.noise_scale) >= floor:
            return self
        return Hyperparameters(
            torch.tensor(floor, dtype=torch.float64),
            self.signal_scale,
            self.length_scales,
        )

    def with_signal_within(self, ratio: float, follow: float) -> Hyperparameters:
        """Returns a θ whose signal is at most ``ratio`` times the noise; length scales fall by that power of the cut.

        With ``follow`` = 1/ν a Matérn-ν kernel stays what it is at short distances, signal²/ℓ^(2ν), which is all that
        dense data know of either.
        """
        cut = ratio * float(self.noise_scale / self.signal_scale)
        if cut >= 1.0:
            return self
        return Hyperparameters(self.noise_scale, cut * self.signal_scale, cut**follow * self.length_scales)

    def known_in(self, units: Units) -> Hyperparameters:
        """Returns the same hyperparameters with what they are in units of."""
        return replace(self, units=units)

    def in_units(self, units: Units, *, shared: bool) -> Hyperparameters:
        """Returns the same model in other units, for data of another spread; these where nobody knows their own.

        ``shared`` says whether all inputs have one length scale. It is the same model then only where their units
        change alike, and else the mean of what they change by counts, of its logarithm. Noise and signal stay as they
        are where they are, or are to be, those of several targets, each in units of its own spread.
        """
        if self.units is None or len(units.x) != len(self.units.x):
            return self
        y = 1.0 if self.units.y is None or units.y is None else self.units.y / units.y
        x = torch.tensor([old / new for old, new in zip(self.units.x, units.x, strict=True)], dtype=torch.float64)
        if shared:
            x = x[:1] if bool((x == x[0]).all()) else x.log().mean().exp()[None]
        lengths = self.length_scales * x
        return Hyperparameters(y * self.noise_scale, y * self.signal_scale, lengths, units)

    def equals(self, other: Hyperparameters) -> bool:
        """Says whether every number is the same, bit for bit."""
        return torch.equal(self.vector, other.vector)

    def check_dimension(self, d: int) -> None:
        """Raises unless these length scales fit inputs with d columns."""
        if self.length_scales.numel() not in (1, d):
            raise ValueError(
                f"length_scales has {self.length_scales.numel()} entries but the inputs have {d} columns; "
                f"give one per column, or a single shared one"
            )
