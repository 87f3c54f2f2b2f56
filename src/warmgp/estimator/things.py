"""What a model's inputs are to its user: things, each a column or what columns were said to be, with a length scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.utils.validation import check_is_fitted

from warmgp.data.column_kinds import ColumnKind
from warmgp.data.scaling import Standardizer
from warmgp.hyperparameters import Hyperparameters


class Things:
    """Tells of a fitted estimator what its columns became; what it needs of it are the scaler and θ."""

    scaler_: Standardizer
    hyperparameters_: Hyperparameters
    missing: str

    def __sklearn_tags__(self) -> Any:
        """Returns scikit-learn's tags: whether missing cells are taken."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags

    @property
    def length_scales_(self) -> dict[str, float]:
        """The length scale of everything that a user named, in its own units: km of a place, days of a date.

        A plain column has that of the column, a category steps between two values. Turned inputs have none of their
        own: see ``anisotropy_``.
        """
        check_is_fitted(self, "hyperparameters_")
        if self.scaler_.angle:
            lengths = self.hyperparameters_.length_scales.expand(2).tolist()
            return {f"turned input {j + 1}": length for j, length in enumerate(lengths)}
        units = [1.0 if kind is None else kind.unit_length for _, _, kind in things(self)]
        return {name: length * unit for (name, length), unit in zip(_lengths(self), units, strict=True)}


def things(model: Any) -> tuple[tuple[str, tuple[int, ...], ColumnKind | None], ...]:
    """Returns (name, numbers of the inputs, kind or None) of everything that has a length scale; x0 without a name."""
    given = getattr(model, "feature_names_in_", None)
    names = [f"x{j}" for j in range(model.n_features_in_)] if given is None else [str(name) for name in given]
    return replace(model.scaler_.columns, names=tuple(names)).groups


def _lengths(model: Any) -> list[tuple[str, float]]:
    """Returns (name, length scale in units of the inputs) of every thing."""
    scale = model.scaler_.x_scale
    lengths = model.hyperparameters_.length_scales.expand(len(scale)).tolist()
    return [(name, lengths[inputs[0]] * float(scale[inputs[0]])) for name, inputs, _ in things(model)]
