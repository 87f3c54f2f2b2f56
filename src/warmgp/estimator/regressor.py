"""GPRegressor: the scikit-learn estimator over everything below it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state

from warmgp.estimator import model_file
from warmgp.estimator.anisotropy import turned
from warmgp.estimator.convergence import warn_of_failure, warn_of_solve
from warmgp.estimator.in_units import InUnits
from warmgp.estimator.insight import Insight
from warmgp.estimator.intervals import Intervals
from warmgp.estimator.parameters import check_parameters
from warmgp.estimator.predicting import Predicting
from warmgp.estimator.prepare import TrainingData, plan_and_warn, plan_on, training_data
from warmgp.estimator.remarks import judged
from warmgp.estimator.report import report_of
from warmgp.estimator.robust import robust_noise, set_aside
from warmgp.estimator.smoothness import is_chosen, kernel_of, with_kernel
from warmgp.estimator.start import announce, begin, options_of, training_bar
from warmgp.estimator.stored import Stored
from warmgp.estimator.together import Together
from warmgp.estimator.units import given_start, known
from warmgp.estimator.updating import Updating
from warmgp.files.keeper import CheckpointKeeper
from warmgp.gradient import GradientEstimator
from warmgp.gradient.exact import log_marginal_likelihood
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import Kernel
from warmgp.likelihood import Likelihood
from warmgp.planning.plan import Plan
from warmgp.planning.threads import limited_threads
from warmgp.solvers import Solver
from warmgp.training.limits import Limits
from warmgp.training.loop import TrainingResult, train_problem
from warmgp.training.state import Callback, TrainingOptions


class GPRegressor(Stored, Predicting, Intervals, InUnits, Insight, Updating, RegressorMixin, BaseEstimator):
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
    noise_floor : float
        The least noise scale, in standardised units.
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
        anew. It belongs to one fit: leave it out in a cross-validation, whose fits would share the path.
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
        The same in the units of X and y; ``columns_.things`` has the names of what has a length scale.
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
        The targets that were trained on, in their units, and the numbers of their rows in X.
    kernel_ : Kernel
        The kernel of the model: the one that was given, or that the data have chosen.
    n_features_in_ : int
        The number of inputs.
    feature_names_in_ : ndarray of str
        Their names, where X had some.
    target_name_ : str or None
        The name of y, where it had one.

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
        noise_floor: float = 1e-4,
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

    # -- fitting -----------------------------------------------------------------------------------------------------
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> Self:
        """Trains on inputs X (n, d) and targets y (n,).

        The noise of row i has the variance σ²/w_i + e_i: σ² is learned, w is ``sample_weight`` (n,), by default one,
        and e is ``noise_variance`` (n,), the squares of known measurement errors in units of y. A weight of zero, or an
        infinite variance, leaves a row out. See the page on known errors.

        With ``validation=(X, y)`` every record of ``history_`` has the held-out ``metrics`` "rmse" and, with the
        pathwise or the exact gradient, "llh", in standardised units; :class:`warmgp.EarlyStopping` stops on them.

        Ctrl-C ends training. The model of the whole steps before is kept and can be used; ``KeyboardInterrupt`` then
        goes on, so that a cross-validation or a script ends, too.
        """
        before, accepted = dict(vars(self)), False
        try:
            with contextlib.ExitStack() as stack:
                plan, data, result = self._train(X, y, validation, sample_weight, noise_variance, stack)
                self._accept(plan, data, result)
                accepted = True  # whatever the last checkpoint says
        except BaseException:
            if not accepted:  # there is no model: nothing is changed
                self.__dict__.clear()
                self.__dict__.update(before)
            raise
        if result.stopped_early == "interrupted":
            raise KeyboardInterrupt(f"after {self.n_steps_} of {plan.n_steps} steps, whose model is kept")
        return self

    def plan(self, X: ArrayLike) -> Plan:
        """Returns how ``fit`` would train on such data, and what it should cost; ``print`` it. Nothing is trained."""
        return plan_on(self, check_parameters(self.get_params(deep=False)), X)

    def _train(
        self,
        X: ArrayLike,
        y: ArrayLike,
        validation: tuple[ArrayLike, ArrayLike] | None,
        weight: ArrayLike | None,
        variance: ArrayLike | None,
        stack: contextlib.ExitStack,
    ) -> tuple[Plan, TrainingData, TrainingResult]:
        """Checks, plans, resumes or starts, and trains; what has to be closed afterwards goes on the stack."""
        settings, began = check_parameters(self.get_params(deep=False)), time.perf_counter()
        team = stack.enter_context(Together(self.solver, self.device).speaking())
        noise = robust_noise(self, X, y, weight, variance)
        data = replace(training_data(self, X, y, validation, *noise), team=team.team)
        generator, drawn = torch.Generator(), int(check_random_state(self.random_state).randint(2**31 - 1))
        seed = team.decided(lambda: drawn)
        keeper = state = None
        if self.checkpoint is not None or team.team is not None:
            mark = model_file.made_from(self, data.as_given, seed)
            team.check_same(mark[1], self.checkpoint, self.time_limit)
        planned = partial(plan_and_warn, settings, data.x.shape, data.too_fine, data.known_noise)
        plan = team.planned(planned, len(data.x))
        if self.checkpoint is not None:
            keeper = CheckpointKeeper(self.checkpoint, self.checkpoint_every, *mark, generator)
            state, plan = team.resumed(keeper, plan, data.x.shape, mark, generator, stack)
        tied, chosen = data.scaler.columns.tied if self.ard else (), None
        lengths = data.x.shape[1] if self.ard else 1
        if state is None and is_chosen(settings):
            limits = Limits(self.noise_floor, tied=tied, learned=self.learn_noise)
            choose = partial(with_kernel, plan, settings, data, lengths=lengths, limits=limits, seed=seed)
            plan, chosen = team.chosen(choose, len(data.x))
        data = data.drawn(plan.rows, seed)
        stack.enter_context(limited_threads(plan.threads))
        verbose = self.verbose and team.first
        announce(plan, len(data.x), state.step if state else 0, shown=verbose)
        until = None if self.time_limit is None else began + self.time_limit
        kernel, options = kernel_of(plan, settings), replace(self._options(plan, until), tied=tied)
        if self.anisotropy is not None:
            data = turned(data, plan, kernel, options, seed)
        problem = data.problem(plan, kernel, Hyperparameters.ones(lengths), plan.dtype)
        if state is None:
            generator.manual_seed(seed)
            given = given_start(self.init, data.scaler, lengths)
            start = partial(begin, plan, options, problem, given, generator=generator, verbose=verbose, chosen=chosen)
            state = team.started(start, generator)
        elif state.solution is not None and state.solution.dtype != plan.dtype:  # it was promoted before
            problem = data.problem(plan, kernel, state.theta, state.solution.dtype)
        callbacks = team.callbacks(self.callbacks, stack)
        if keeper is not None:
            team.kept(keeper, state, plan, callbacks)
        if verbose:
            callbacks.append(stack.enter_context(training_bar(plan, state.step)))
        return plan, data, train_problem(problem, options, generator=generator, state=state, callbacks=callbacks)

    def _accept(self, plan: Plan, data: TrainingData, result: TrainingResult) -> None:
        """Publishes what training found, and warns where the final solve fell short or the model is no good."""
        warn_of_failure(result)
        self.updates_ = []
        self._publish(plan, data, result)
        self.stop_reason_, remarks = judged(self, plan, (data.x, data.y), result)
        self.report_ = replace(self.report_, remarks=(*remarks, *set_aside(self.robust_weights_)))
        warn_of_solve(plan, result)

    def _publish(self, plan: Plan, data: TrainingData, result: TrainingResult) -> None:
        """Sets what a training, or an update, has found."""
        final, posterior = result.final, result.posterior
        self.plan_ = plan
        self.report_ = report_of(plan, result)
        self.scaler_ = data.scaler
        self.posterior_ = posterior
        self.hyperparameters_ = known(result.theta, data.scaler)
        self.history_ = list(result.history)
        self.n_steps_ = len(self.history_)
        self.converged_ = final.converged and result.accuracy.suffices
        self.solve_error_ = result.accuracy.mean
        self.y_train_, self.training_rows_ = data.y_given, data.rows
        self.likelihood_ = None
        self.__dict__.pop("loo_", None)  # of an earlier fit
        if posterior.factor is not None:
            y = torch.as_tensor(data.y).to(device=plan.device, dtype=plan.dtype)
            self.likelihood_ = Likelihood(log_marginal_likelihood(y, posterior.solution[:, 0], posterior.factor))

    def _options(self, plan: Plan, until: float | None = None) -> TrainingOptions:
        """Returns the plan and the parameters as training takes them, which may last until that moment."""
        return options_of(
            plan, warm_start=self.solver_warm_start, noise_floor=self.noise_floor, n_samples=self.n_probes, until=until,
            learn_noise=self.learn_noise,
        )  # fmt: skip
