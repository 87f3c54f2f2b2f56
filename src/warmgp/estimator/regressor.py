"""GPRegressor: the scikit-learn estimator over everything below it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sklearn.base import BaseEstimator, RegressorMixin

from warmgp.estimator.fitting import Fitting
from warmgp.estimator.in_units import InUnits
from warmgp.estimator.insight import Insight
from warmgp.estimator.intervals import Intervals
from warmgp.estimator.predicting import Predicting
from warmgp.estimator.stored import Stored
from warmgp.estimator.updating import Updating
from warmgp.gradient import GradientEstimator
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.solvers import Solver
from warmgp.training.state import Callback


class GPRegressor(Fitting, Stored, Predicting, Intervals, InUnits, Insight, Updating, RegressorMixin, BaseEstimator):
    """Regresses by Gaussian processes, on ten thousand to millions of points.

    Hyperparameters maximise the marginal likelihood with Adam; its gradient comes from iterative solves that start at
    the last step's solutions, and whose probes become posterior samples. Small data (up to 500 points, more where
    that is clearly faster, and up to 8,000 on a GPU) are trained exactly. Every "auto" is decided once, before
    training, and can be read afterwards, like what came of it: ``print(model.plan_)``, ``print(model.report_)``.

    Parameters
    ----------
    kernel : {"auto", "matern12", "matern32", "matern52", "rbf"} or Kernel
        How smooth the function is. "auto" takes the one under which near points are most likely, and Matérn-3/2 where
        none is clearly better, or ``init`` gives hyperparameters.
    ard : bool
        Whether each input column has a length scale of its own, or all share one.
    columns : dict or None
        What columns are beyond plain numbers, by names or numbers: ``{("lat", "lon"): "geographic"}`` makes a place on
        the globe of two columns in degrees; ``{"hour": ("periodic", 24)}`` a circle; ``{"colour": "category"}``
        indicators of its values; ``{"when": "date"}`` days, and ``("date", "year", "week")`` circles for what repeats,
        too. Each thing has one length scale.
    missing : {"error", "mean"}
        What comes of missing cells in X: they are refused, or filled in by the column's mean, with an input that says
        so, in columns that have some in training.
    unknown_category : {"error", "zero"}
        What comes of a category's value that training has not seen: it is refused, or no indicator is set.
    anisotropy : {None, "rotated"}
        "rotated" finds, for two plain inputs, the direction of the longest range before training; length scales are
        then along that direction and across. None has them along the inputs.
    solver : {"auto", "cholesky", "cg", "ap", "sgd", "rap"} or Solver
        "auto" goes by the numbers of points and inputs, the memory, the device and its speed.
    gradient : {"auto", "exact", "standard", "pathwise"} or GradientEstimator
        "auto" is exact with Cholesky, pathwise otherwise.
    solver_warm_start : bool
        Whether each solve starts at the last step's solutions, with the same probes.
    n_probes : int
        Probe vectors, which are also the posterior samples behind ``std`` where it is not exact (see :meth:`predict`).
    n_features : int or "auto"
        Random features of the prior functions, an even number.
    tol : float
        Relative residual at which a solve has converged.
    max_epochs : float, None or "auto"
        Budget of a solve in epochs (products with the whole kernel matrix); None means until ``tol``.
    n_steps, learning_rate : number or "auto"
        The most steps of Adam, and their size. Numbers are taken literally, as in the paper. "auto" takes at most 200
        steps (30 after a start on a sample, none where they are dear) and stops when the likelihood has settled;
        their size is 0.1 (0.03 from 50,000 points without such a start), and relative for hyperparameters above 1.
    init : {"auto", "ones", "climb", "sample", "near", "subset"} or Hyperparameters
        Where training starts, in standardised units; ``hyperparameters_`` of another model know theirs, and are
        converted. "climb" climbs the likelihood itself, of at most 1,000 points, from several places ("auto" takes it
        for few points where steps are not named). "near" climbs the likelihood of points given near ones, and is for
        few inputs ("auto" takes it for up to three, above 2,500 points, with no step after it). "sample" trains on a
        random fifth of the points first (2,000 to 10,000 of them, 5,000 on a CPU); with projections "auto" takes 1,000,
        and then groups of near points; "subset" averages exact fits of neighbourhoods.
    noise_floor : float or "auto"
        The least noise scale, in standardised units. "auto" is 10⁻⁴ in training; where steps are left open, the model
        itself then has at least a fifth of the standard deviation to which the best known tenth of rows are known by
        all others, because a few rows that are there twice are no proof that there is no noise.
    learn_noise : bool
        Whether noise is learned beside what :meth:`fit` is told of it; otherwise its scale stays at ``noise_floor``.
    robust : bool
        Whether rows whose targets the others do not predict at all, outliers, lose weight before training, or are left
        out, by residuals of a rough model. See ``robust_weights_``, and the page on known errors.
    trend : None, "constant", "linear", "quadratic" or list of columns
        A trend beside the process, whose coefficients the data decide (universal kriging); a list of columns, by name
        or number, is an external drift, linear in those. It goes on outside the data. See ``trend_``.
    standardize : bool
        Whether inputs and targets are centred and scaled, which is undone in predictions.
    device : "auto", "cpu", "cuda", …
    dtype : {"auto", "float32", "float64"}
        "auto" is float32, checked against float64 at every step and left for it when that is not enough; float64 from
        the start for exact training, and where float32 does not tell the inputs apart.
    memory_budget : int or None
        Bytes that training may use; None for what is free.
    time_limit : float or None
        Seconds that ``fit`` may take. The plan then has fewer steps, and as many rows, drawn at random, as the time
        allows; the clock is kept in training. None for as long as it takes.
    checkpoint : path or None
        The file that keeps the state of training; a later ``fit`` with the same data and settings goes on from it to
        the same result, bit for bit on one CPU; with a higher ``n_steps`` it takes more steps. Remove the file to start
        anew. It belongs to one fit: leave it out in a cross-validation, whose fits would share the path. An ``update``
        with steps keeps one, too, in a file of its own.
    checkpoint_every : int
        Steps between checkpoints.
    callbacks : sequence of callables
        Called with (record, state) after every step; one that returns True ends training.
    verbose : bool
        Whether to show progress bars, of the training and of a start on part of the data.
    random_state : int, RandomState or None
        The seed of everything random, or what it is drawn from.

    Attributes
    ----------
    hyperparameters_ : Hyperparameters
        Those that training found, in standardised units.
    length_scales_, signal_std_, noise_std_ : ndarray, float, float
        The same in the units of X and y, the last two of each target where there are several;
        ``columns_.things`` has the names of what has a length scale.
    history_ : list of StepRecord
        The records of all steps.
    plan_ : Plan
        What was decided before training, and why: ``print`` it.
    report_ : Report
        What came of it: seconds, how training started, where float64 took over, where variances come from.
    posterior_ : Posterior
        The trained process in standardised units: mean, variance and functions at tensors of inputs.
    scaler_ : Standardizer
        The maps from the columns and units of X and y to standardised ones, and back; with a trend the unit of y is
        the standard deviation of what ordinary least squares leaves of it.
    columns_ : InputMap
        What the columns are, with what training learned of them: the values of categories, how dates are written.
    anisotropy_ : Anisotropy or None
        With ``anisotropy="rotated"`` the angle and the two ranges that were found, in units of X.
    trend_ : TrendCoefficients or None
        The coefficients of the trend with their standard errors, in the units of X and y: ``print`` it.
    robust_weights_ : ndarray of shape (n,), or None
        With ``robust=True`` the weights that rows were given, from 1 to 0 for those left out, beside what :meth:`fit`
        is told of them; ``report_`` names some.
    y_train_ : ndarray of shape (n,)
        The targets of the model's rows, in units of y: those that were used, and after them those of updates.
    updates_ : list of Update
        What :meth:`update` and :meth:`forget` have done since the fit, and what new rows have said of the model.
    n_steps_ : int
        Steps done.
    stop_reason_ : str
        Why the steps ended: "settled", "flat" (there was nothing to climb: the model explains nothing), "steps" (all of
        them were taken, and more might still help), "time" (of
        ``time_limit``), "callback", "interrupted", or "failed: …".
    converged_ : bool
        Whether the final solve met ``tol`` and predictions are as exact as promised: the mean within 0.1 predictive
        standard deviations of the exact one at the same hyperparameters (999 points of 1,000), checked in float64
        against the data as they came in.
    solve_error_ : float
        What that check found: how far the mean is from exact, as a root mean square over training points in units of
        the noise, which a predictive standard deviation is at least. It is an upper estimate.
    log_marginal_likelihood_value_, log_marginal_likelihood_error_ : float
        The log marginal likelihood at the final hyperparameters, in standardised units, and its standard error, 0 where
        it is exact. Computed when first asked for, and kept in ``likelihood_``. With a trend it is that of its
        estimated coefficients.
    loo_ : LeaveOneOut
        Every training row predicted from all others, in units of y; computed when first asked for. :meth:`diagnose`
        says what follows.
    y_train_, training_rows_ : ndarray of shape (n,)
        The targets that were trained on, in their units, (n, q) where there are several, and the numbers of their rows
        in X.
    kernel_ : Kernel
        The kernel of the model: the one that was given, or that the data have chosen.
    n_features_in_ : int
        The number of inputs.
    feature_names_in_ : ndarray of str
        Their names, where X had some.
    target_name_ : str or None
        The name of y, where it had one.
    target_names_ : tuple of str
        The names of several targets, "y0", "y1" and so on where y had none; empty for one target.
    n_targets_ : int
        The number of targets; :meth:`of_target` is the model of one of them.
    patterns_ : tuple of Pattern
        Of several targets those that are known in other rows than most values are, with their own posteriors.

    Examples
    --------
    >>> import numpy as np
    >>> from warmgp import GPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = GPRegressor(n_steps=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05)
    True
    """

    def __init__(
        self,
        kernel: str | Kernel = "auto",
        *,
        ard: bool = True,
        columns: Mapping[Any, Any] | None = None,
        missing: str = "error",
        unknown_category: str = "error",
        anisotropy: str | None = None,
        solver: str | Solver = "auto",
        gradient: str | GradientEstimator = "auto",
        solver_warm_start: bool = True,
        n_probes: int = 64,
        n_features: int | str = "auto",
        tol: float = 0.01,
        max_epochs: float | str | None = "auto",
        n_steps: int | str = "auto",
        learning_rate: float | str = "auto",
        init: str | Hyperparameters = "auto",
        noise_floor: float | str = "auto",
        learn_noise: bool = True, robust: bool = False,
        trend: str | Sequence[int | str] | None = None,
        standardize: bool = True,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        memory_budget: int | None = None,
        time_limit: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 10,
        callbacks: Sequence[Callback] = (),
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.ard = ard
        self.columns = columns
        self.missing = missing
        self.unknown_category = unknown_category
        self.anisotropy = anisotropy
        self.solver = solver
        self.gradient = gradient
        self.solver_warm_start = solver_warm_start
        self.n_probes = n_probes
        self.n_features = n_features
        self.tol = tol
        self.max_epochs = max_epochs
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.init = init
        self.noise_floor = noise_floor
        self.learn_noise, self.robust = learn_noise, robust
        self.trend = trend
        self.standardize = standardize
        self.device = device
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.time_limit = time_limit
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state
