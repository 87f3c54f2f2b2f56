"""What ``fit`` does: checks, plans, resumes or starts, trains, and publishes what came of it."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from warmgp.checks import check_count, warn_user
from warmgp.data.scaling import Standardizer
from warmgp.estimator.anisotropy import turned
from warmgp.estimator.convergence import warn_of_failure, warn_of_solve
from warmgp.estimator.drift import Update
from warmgp.estimator.parameters import check_parameters, floor_of
from warmgp.estimator.patterns import by_pattern, told_of_patterns
from warmgp.estimator.prepare import TrainingData, plan_and_warn, plan_on, training_data
from warmgp.estimator.remarks import judged
from warmgp.estimator.report import Report, report_of
from warmgp.estimator.robust import robust_noise, set_aside
from warmgp.estimator.settings_json import made_from
from warmgp.estimator.several import Pattern, unlike
from warmgp.estimator.smoothness import is_chosen, kernel_of, with_kernel
from warmgp.estimator.start import announce, begin, options_of, training_bar
from warmgp.estimator.together import Together
from warmgp.estimator.units import given_start, known
from warmgp.files.keeper import CheckpointKeeper
from warmgp.gradient.exact import log_marginal_likelihood
from warmgp.hyperparameters import Hyperparameters
from warmgp.likelihood import Likelihood
from warmgp.planning.plan import Plan
from warmgp.planning.request import Settings, is_auto
from warmgp.planning.threads import limited_threads
from warmgp.planning.time_limit import SOLVED_SHARE
from warmgp.posterior import Posterior
from warmgp.training.limits import Limits
from warmgp.training.loop import TrainingResult, train_problem
from warmgp.training.state import Callback, StepRecord, TrainingOptions
from warmgp.training.vouched_noise import SHARE

Others = tuple[tuple[TrainingData, Plan, TrainingResult], ...]
"""Targets that are known in rows of their own, with the plan of their solve and what it found."""


class Fitting:
    """Fits an estimator: what it needs of it are its parameters."""

    solver: Any
    device: Any
    init: Any
    anisotropy: str | None
    ard: bool
    solver_warm_start: bool
    n_probes: int
    noise_floor: float | str
    learn_noise: bool
    random_state: Any
    time_limit: float | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    callbacks: Sequence[Callback]
    verbose: bool
    plan_: Plan
    report_: Report
    scaler_: Standardizer
    posterior_: Posterior
    hyperparameters_: Hyperparameters
    history_: list[StepRecord]
    n_steps_: int
    converged_: bool
    solve_error_: float
    y_train_: NDArray[np.float64] | None
    training_rows_: NDArray[np.int64] | None
    likelihood_: Likelihood | None
    updates_: list[Update]
    robust_weights_: NDArray[np.float64] | None
    target_names_: tuple[str, ...]
    patterns_: tuple[Pattern, ...]

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> Self:
        """Trains on inputs X (n, d) and targets y (n,), or (n, q) for several targets that share one kernel.

        The noise of row i has the variance σ²/w_i + e_i: σ² is learned, w is ``sample_weight`` (n,), by default one,
        and e is ``noise_variance`` (n,), the squares of known measurement errors in units of y. A weight of zero, or an
        infinite variance, leaves a row out. See the page on known errors.

        With ``validation=(X, y)`` every record of ``history_`` has the held-out ``metrics`` "rmse" and, with the
        pathwise or the exact gradient, "llh", in standardised units; :class:`warmgp.EarlyStopping` stops on them.

        Several targets are standardised each by itself. Values of some may be missing (NaN), in at most eight different
        sets of rows; hyperparameters then come from the targets with the most values that are known in the same rows.
        See the page on several targets.

        Ctrl-C ends training. The model of the whole steps before is kept and can be used; ``KeyboardInterrupt`` then
        goes on, so that a cross-validation or a script ends, too.
        """
        before, accepted = dict(vars(self)), False
        try:
            with contextlib.ExitStack() as stack:
                plan, data, result, others = self._train(X, y, validation, sample_weight, noise_variance, stack)
                self._accept(plan, data, result, others)
                accepted = True  # whatever the last checkpoint says
        except BaseException:
            if not accepted:  # there is no model: nothing is changed
                self.__dict__.clear()
                self.__dict__.update(before)
            raise
        if result.stopped_early == "interrupted":
            raise KeyboardInterrupt(f"after {self.n_steps_} of {plan.n_steps} steps, whose model is kept")
        return self

    def plan(self, X: ArrayLike, n_targets: int = 1) -> Plan:
        """Returns how ``fit`` would train on such data, and what it should cost; ``print`` it. Nothing is trained.

        ``n_targets`` is the number of columns of y.
        """
        check_count("n_targets", n_targets)
        return plan_on(self, check_parameters(self._parameters()), X, n_targets)

    def _train(
        self,
        X: ArrayLike,
        y: ArrayLike,
        validation: tuple[ArrayLike, ArrayLike] | None,
        weight: ArrayLike | None,
        variance: ArrayLike | None,
        stack: contextlib.ExitStack,
    ) -> tuple[Plan, TrainingData, TrainingResult, Others]:
        """Checks, plans, resumes or starts, and trains; what has to be closed afterwards goes on the stack."""
        settings, began = check_parameters(self._parameters()), time.perf_counter()
        team = stack.enter_context(Together(self.device).speaking())
        noise = robust_noise(self, X, y, weight, variance)
        data, others = by_pattern(replace(training_data(self, X, y, validation, *noise), team=team.team))
        generator, drawn = torch.Generator(), int(check_random_state(self.random_state).randint(2**31 - 1))
        seed = team.decided(lambda: drawn)
        keeper = state = None
        if self.checkpoint is not None or team.team is not None:
            mark = made_from(self, data.as_given, seed)
            team.check_same(
                mark[1], checkpoint=self.checkpoint, time_limit=self.time_limit, noise_floor=self.noise_floor
            )
        planned = partial(plan_and_warn, settings, data.x.shape, data.too_fine, data.known_noise, data.n_targets)
        plan = team.decided(planned)
        if self.checkpoint is not None:
            keeper = CheckpointKeeper(self.checkpoint, self.checkpoint_every, *mark, generator, team.team)
            state, plan = team.resumed(keeper, plan, data.x.shape, stack)
        tied, chosen = data.scaler.columns.tied if self.ard else (), None
        lengths = data.x.shape[1] if self.ard else 1
        if state is None and is_chosen(settings):
            limits = Limits(floor_of(self.noise_floor), tied=tied, learned=self.learn_noise)
            choose = partial(with_kernel, plan, settings, data, lengths=lengths, limits=limits, seed=seed)
            plan, chosen = team.decided(choose)
        data = data.drawn(plan.rows, seed)
        stack.enter_context(limited_threads(plan.threads))
        verbose = self.verbose and team.first
        announce(plan, len(data.x), state.step if state else 0, shown=verbose)
        until = None if self.time_limit is None else began + SOLVED_SHARE * self.time_limit
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
            team.kept(keeper, state, plan, len(data.x), callbacks)
        if verbose:
            callbacks.append(stack.enter_context(training_bar(plan, state.step)))
        result = train_problem(problem, options, generator=generator, state=state, callbacks=callbacks)
        if keeper is not None:
            keeper.gather()
        del problem  # whose H may be as large as that of the next
        plan = _told(plan, told_of_patterns(self.target_names_, data, others))
        apart = partial(self._solved_apart, settings, data.scaler.angle, plan, result, team, until)
        return plan, data, result, tuple((one, *apart(one, seed + 1 + j)) for j, one in enumerate(others))

    def _solved_apart(
        self,
        settings: Settings,
        angle: float,
        first: Plan,
        trained: TrainingResult,
        team: Together,
        until: float | None,
        data: TrainingData,
        seed: int,
    ) -> tuple[Plan, TrainingResult]:
        """Solves once for targets that are known in rows of their own, with the hyperparameters that were found."""
        kernel, theta = trained.posterior.kernel, trained.theta
        if first.rows and first.rows < len(data.x):
            data = data.drawn(first.rows, seed)
        data = data.turned(angle) if angle else data
        given = replace(settings, kernel=kernel, init=theta, n_steps=0, time_limit=None)
        planned = partial(plan_and_warn, given, data.x.shape, "", data.known_noise, data.n_targets)
        plan = team.decided(planned)
        options = replace(self._options(plan, until), signal_ratio=math.inf)  # θ is the same for all
        problem = data.problem(plan, kernel, theta, plan.dtype)
        generator = torch.Generator().manual_seed(seed)
        state = begin(plan, options, problem, theta, generator=generator)
        return plan, train_problem(problem, options, generator=generator, state=state)

    def _accept(self, plan: Plan, data: TrainingData, result: TrainingResult, others: Others = ()) -> None:
        """Publishes what training found, and warns where the final solve fell short or the model is no good."""
        warn_of_failure(result)
        self.updates_ = []
        self.which_ = data.which or (0,)
        self.patterns_ = tuple(Pattern(one.which, found.posterior, one.rows, one.y_given) for one, _, found in others)
        self._publish(plan, data, result)
        self.stop_reason_, remarks = judged(self, plan, (data.x, data.y), result)
        apart = ((one.which, one.posterior) for one in self.patterns_)
        if told := unlike(self.target_names_, [(self.which_, self.posterior_), *apart]):
            remarks = (*remarks, told)
            if is_auto(self._parameters()["n_steps"]):  # who names few steps has not asked for all there is to learn
                warn_user(told)
        self.report_ = replace(self.report_, remarks=(*remarks, *set_aside(self.robust_weights_)))
        warn_of_solve(plan, result)
        for _, own, found in others:
            self.likelihood_ = None  # which is that of the first pattern alone
            self.converged_ = self.converged_ and found.final.converged and found.accuracy.suffices
            self.solve_error_ = max(self.solve_error_, found.accuracy.mean)
            seconds = (self.report_.seconds or 0.0) + found.state.elapsed + found.final.seconds
            self.report_ = replace(self.report_, seconds=seconds)
            warn_of_solve(own, found)

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
            solved = posterior.solution[:, : posterior.n_targets]
            self.likelihood_ = Likelihood(log_marginal_likelihood(y, solved, posterior.factor))

    def _parameters(self) -> dict[str, Any]:
        """Returns the parameters by their names."""
        return self.get_params(deep=False)  # type: ignore[attr-defined]

    def _options(self, plan: Plan, until: float | None = None) -> TrainingOptions:
        """Returns the plan and the parameters as training takes them, which may last until that moment."""
        open_ = is_auto(self.noise_floor) and self.learn_noise and plan.settle  # neither noise nor steps are named
        return options_of(
            plan, warm_start=self.solver_warm_start, noise_floor=floor_of(self.noise_floor), n_samples=self.n_probes,
            until=until, learn_noise=self.learn_noise, vouched_share=SHARE if open_ else 0.0,
        )  # fmt: skip


def _told(plan: Plan, reason: str) -> Plan:
    """Returns a plan with one more reason, if there is one."""
    return replace(plan, why=(*plan.why, reason)) if reason else plan
