"""Scorers by the name that documentation uses; they live in :mod:`warmgp.estimator.scorers`."""

from warmgp.estimator.scorers import coverage_scorer, crps_scorer, log_density_scorer

__all__ = ["coverage_scorer", "crps_scorer", "log_density_scorer"]
