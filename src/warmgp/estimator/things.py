"""What a model's inputs are to its user: things, each a column or what columns were said to be, with a length scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from warmgp.data.scaling import Standardizer
from warmgp.estimator.anisotropy import anisotropy_of
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
    def length_scales_(self) -> NDArray[np.float64]:
        """The length scale of each of ``columns_.things``, in its own units: km of a place, days of a date, (things,).

        A plain column has that of the column, a category steps between two values. With ``anisotropy="rotated"`` there
        are two: along the direction of the longest range, and across.
        """
        check_is_fitted(self, "hyperparameters_")
        turned = anisotropy_of(self.scaler_, self.hyperparameters_)
        if turned is not None:
            return np.array([turned.along, turned.across])
        scale = self.scaler_.x_scale
        lengths = self.hyperparameters_.length_scales.expand(len(scale)).numpy() * scale
        groups = self.scaler_.columns.groups
        return np.array([lengths[i[0]] * (1.0 if kind is None else kind.unit_length) for _, i, kind in groups])
