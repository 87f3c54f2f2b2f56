"""A fitted model that goes on with more rows, or with fewer, without starting over."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from warmgp.checks import check_count, warn_user
from warmgp.data.arrays import check_inputs, check_targets, integer_rest, to_numpy
from warmgp.data.float32_resolution import too_fine
from warmgp.data.scaling import Standardizer
from warmgp.estimator.convergence import warn_of_solve
from warmgp.estimator.drift import Drift, Update
from warmgp.estimator.kept_update import KeptUpdate, update_mark
from warmgp.estimator.parameters import check_parameters
from warmgp.estimator.prepare import TrainingData
from warmgp.estimator.remarks import raised
from warmgp.estimator.row_weights import RowWeights, row_weights
from warmgp.estimator.several import Pattern, check_several
from warmgp.estimator.together import Together
from warmgp.estimator.trend import OrdinaryTrend, term_name
from warmgp.gradient import Pathwise
from warmgp.hyperparameters import Hyperparameters
from warmgp.operators import make_operator
from warmgp.planning.plan import Plan
from warmgp.planning.request import Request, is_auto
from warmgp.planning.threads import limited_threads
from warmgp.planning.updates import plan_update
from warmgp.posterior import Posterior
from warmgp.processes import writes
from warmgp.training.adam import Adam
from warmgp.training.carried_over import Carried, with_rows, without_rows
from warmgp.training.loop import TrainingResult, train_problem
from warmgp.training.outlying import weights_of
from warmgp.training.problem import Problem
from warmgp.training.state import Callback, StepRecord, TrainingOptions, TrainingState
from warmgp.training.vouched_noise import SHARE
from warmgp.trend import DependentTermError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Holds rows of a model in standardised units: x (n, d), y (n,) or (n, q) with its trend, and what is said of their
    noise."""

    x: FloatArray
    y: FloatArray
    said: RowWeights

    def followed_by(self, other: Rows) -> Rows:
        """Returns these rows and others after them."""
        said = self.said.followed_by(other.said, (len(self.x), len(other.x)))
        return Rows(np.concatenate([self.x, other.x]), np.concatenate([self.y, other.y]), said)

    def at(self, which: NDArray[Any]) -> Rows:
        """Returns some of the rows."""
        return Rows(self.x[which], self.y[which], self.said.at(which))

    @property
    def named(self) -> dict[str, FloatArray | None]:
        """The same by the names of the arguments of an update."""
        said = self.said
        return {"X": self.x, "y": self.y, "sample_weight": said.weights, "noise_variance": said.variances}


class Updating:
    """Updates a fitted estimator: what it needs of it are the posterior, the targets, the scaler and the parameters."""

    posterior_: Posterior
    scaler_: Standardizer
    hyperparameters_: Hyperparameters
    history_: list[StepRecord]
    updates_: list[Update]
    y_train_: FloatArray | None
    robust_weights_: FloatArray | None
    target_names_: tuple[str, ...]
    patterns_: tuple[Pattern, ...]
    which_: tuple[int, ...]
    report_: Any
    device: Any
    checkpoint: Any
    callbacks: Any

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        n_steps: int = 0,
        *,
        sample_weight: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> Self:
        """Adds rows X (m, d) with targets y (m,), or (m, q), to a fitted model, and solves again from where it was.

        Units, columns and kernel stay those of the fit, and so do hyperparameters, unless they are to take ``n_steps``
        steps of Adam on all rows, by default small ones, of 0.02. ``sample_weight`` and ``noise_variance`` are for the
        new rows, as in :meth:`fit`. The posterior functions of the model go on: they are the same functions, given more
        data. The last of ``updates_`` says what it took, and what the model before thought of the new rows; where these
        are so unlikely that a new fit is due, that is warned of, and nothing else is done about it.

        Where the update fails or is interrupted before a step is done, the model stays as it was. With steps and the
        parameter ``checkpoint`` it keeps a checkpoint as :meth:`fit` does, in a file of its own: the same update of the
        same model, also of one that was loaded, goes on from it.

        Of several processes all have to call it, with the same rows and the same model.
        """
        check_is_fitted(self, "hyperparameters_")
        check_count("n_steps", n_steps, least=0)
        self._check_whole("update")
        began, old = time.perf_counter(), self._rows()
        new, weights = self._new_rows(X, y, sample_weight, noise_variance)
        posterior, scaler = self.posterior_, self.scaler_
        drift = Drift.of(
            posterior, torch.as_tensor(new.x), torch.as_tensor(new.y), new.said.row_noise(posterior.x.device),
            scaler.y_scale,
        )  # fmt: skip
        both = old.followed_by(new)

        def carry(problem: Problem, solved: bool) -> Carried:
            return with_rows(posterior, problem, self._generator(), solved=solved)

        result = self._go_on(both, len(new.x), n_steps, carry, new)
        if self.robust_weights_ is not None and weights is not None:
            self.robust_weights_ = np.concatenate([self.robust_weights_, weights])
        added = f"from the model of {len(old.x):,} rows, to which {len(new.x):,} came,"
        known = {"log_density": drift.density, "log_density_before": drift.before, "loss": drift.loss}
        self._note(added, began, result, added=len(new.x), **known, drifted=drift.is_far)
        if drift.is_far:
            told = drift.told(n_steps, self.target_names_)
            self.report_ = replace(self.report_, remarks=(*self.report_.remarks, told))
            if writes():
                warn_user(told)
        if result.stopped_early == "interrupted":
            raise KeyboardInterrupt(f"after {len(result.history)} of {n_steps} steps, whose model is kept")
        return self

    def forget(self, rows: ArrayLike) -> Self:
        """Takes rows out of a fitted model, by their numbers or a mask, and solves again from where it was.

        Rows are those of the model, counted from 0: those of :meth:`fit`, less what it left out, and after them those
        of every :meth:`update`; ``y_train_`` has their targets. Hyperparameters stay. Where it fails or is interrupted,
        the model stays as it was. Of several processes all have to call it.
        """
        check_is_fitted(self, "hyperparameters_")
        self._check_whole("forget")
        began, old, posterior = time.perf_counter(), self._rows(), self.posterior_
        gone = _which(rows, len(old.x))
        kept = torch.as_tensor(np.flatnonzero(~gone)).to(posterior.x.device)

        def carry(problem: Problem, solved: bool) -> Carried:
            return without_rows(posterior, problem, kept, self._generator(), solved=solved)

        result = self._go_on(old.at(~gone), int(gone.sum()), 0, carry)
        told = f"from the model of {len(old.x):,} rows, of which {int(gone.sum()):,} went,"
        self._note(told, began, result, forgotten=int(gone.sum()))
        return self

    def _check_whole(self, what: str) -> None:
        """Raises where targets are known in rows of their own: there is no such thing as the model's rows then."""
        if self.patterns_:
            raise ValueError(
                f"{what} is not for a model some of whose targets have missing values: fit it anew on all rows, or "
                f"{what} the models of single targets, model.of_target({self.target_names_[0]!r})"
            )

    # -- rows --------------------------------------------------------------------------------------------------------
    def _rows(self) -> Rows:
        """Returns the rows of the model; targets that an older file does not hold are H v_y, up to the last solve."""
        posterior = self.posterior_
        if self.y_train_ is not None:
            y = self.scaler_.y(self.y_train_)
        else:
            x = posterior.x.double()
            operator = make_operator("auto", x, posterior.kernel, posterior.theta, rows=posterior.noise)
            found = operator.matmul(posterior.solution[:, : posterior.n_targets].double())
            found = found[:, 0] if posterior.n_targets == 1 else found
            y = (found if posterior.trend is None else found + posterior.trend.mean(x)).cpu().numpy()
        return Rows(posterior.x.double().cpu().numpy(), y, RowWeights.of(posterior.noise))

    def _new_rows(
        self, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None, variance: ArrayLike | None
    ) -> tuple[Rows, FloatArray | None]:
        """Returns new rows, checked, in the units of the fit, and the weights that a robust model gives them, (m,)."""
        inputs = check_inputs(self, X)
        names, rest = self.target_names_, integer_rest(X)
        targets = check_targets(y, len(inputs), q=max(1, len(names)), known=names)
        check_several(self, names, targets, variance)
        said, used = row_weights(weight, variance, len(inputs), least=1)
        if used is not None:
            inputs, targets, rest = inputs[used], targets[used], None if rest is None else rest[used]
        x, scaler = self.scaler_.x(inputs, rest), self.scaler_
        new = Rows(x, scaler.y(targets), said.in_units(scaler.y_scale))
        if self.robust_weights_ is None:
            return new, None
        at = torch.as_tensor(x), torch.as_tensor(new.y)
        z = Drift.of(self.posterior_, *at, new.said.row_noise(self.posterior_.x.device), 1.0).z
        weights = weights_of(z.cpu().numpy())
        if not (weights > 0).any():
            raise ValueError(
                f"robust=True leaves out all {len(weights):,} new rows, whose targets the model does not predict at "
                "all: check their units, or fit anew with them"
            )
        lighter = (np.ones_like(weights) if new.said.weights is None else new.said.weights) * weights
        return replace(new, said=replace(new.said, weights=lighter)).at(weights > 0), weights

    # -- the solve ---------------------------------------------------------------------------------------------------
    def _go_on(self, rows: Rows, changed: int, n_steps: int, carry: Any, new: Rows | None = None) -> TrainingResult:
        """Solves for other rows from the posterior at hand, after so many steps; publishes what comes of it."""
        old, before = self.posterior_, dict(vars(self))
        if len(rows.x) < 2:
            raise ValueError(f"{len(rows.x)} rows are left to the model, and at least two are needed: keep more")
        accepted, generator = False, self._generator()
        try:
            with contextlib.ExitStack() as stack:
                team = stack.enter_context(Together(self.device).speaking())
                keeps = bool(n_steps) and new is not None and self.checkpoint is not None
                if keeps or team.team is not None:
                    mark = update_mark(self, old, {"X": rows.x} if new is None else new.named, n_steps)
                    team.check_same(mark[1], checkpoint=self.checkpoint, noise_floor=self.noise_floor)  # type: ignore[attr-defined]
                data = replace(self._data(rows), team=team.team)
                plan = team.decided(partial(self._plan, data, changed, n_steps))
                plan = replace(plan, device=old.x.device)  # each process has its own
                kept = None
                if keeps:
                    kept = KeptUpdate.of(self, mark, plan, rows.x.shape, generator, team, stack)
                    plan = kept.plan
                stack.enter_context(limited_threads(plan.threads))
                callbacks = team.callbacks(self.callbacks, stack)
                result = self._solved(data, plan, n_steps, old, carry, generator, kept, callbacks)
                history = list(self.history_)
                self._publish(plan, data, result)  # type: ignore[attr-defined]
                done = [replace(record, step=record.step + len(history)) for record in result.history]
                self.history_ = history + done
                self.n_steps_ = len(self.history_)
                accepted = True  # whatever the last checkpoint says
                warn_of_solve(plan, result)
        except BaseException:
            if not accepted:
                self.__dict__.clear()
                self.__dict__.update(before)
            raise
        return result

    def _data(self, rows: Rows) -> TrainingData:
        """Returns rows as training takes them: without the trend so far, whose functions are those of these rows."""
        scaler, trend, y, taken = self.scaler_, self.posterior_.trend, rows.y, None
        if trend is not None:
            x = torch.as_tensor(rows.x)
            names, asked = scaler.columns.input_names, self.trend  # type: ignore[attr-defined]
            try:
                basis = trend.to("cpu").basis.over(x)
            except DependentTermError as error:
                raise ValueError(
                    f"the rows that are left do not tell the trend's term {term_name(error.term, names)!r} from the "
                    "others: keep more rows"
                ) from error
            offset = torch.linalg.solve(trend.to("cpu").basis.into(basis), trend.estimates.cpu())
            taken = OrdinaryTrend(basis, offset.numpy(), asked, names)
            y = y - basis.at(x).numpy() @ taken.offset
        known = rows.said.variances is not None or not self.learn_noise  # type: ignore[attr-defined]
        fine = too_fine(scaler.columns, rows.x)
        numbers = np.arange(len(y))
        which = self.which_ if self.target_names_ else ()
        data = TrainingData(scaler, rows.x, y, None, {}, fine, taken, rows.said, known, numbers, y, which=which)
        return replace(data, y_given=data.targets)

    def _plan(self, data: TrainingData, changed: int, n_steps: int) -> Plan:
        """Returns how these rows are solved for; the model's own kernel, functions and hyperparameters are given."""
        posterior = self.posterior_
        here = {**self.get_params(deep=False), "device": posterior.x.device}  # type: ignore[attr-defined]
        settings = replace(
            check_parameters(here),
            kernel=posterior.kernel, init=self.hyperparameters_, n_steps=n_steps, n_probes=posterior.n_samples,
            n_features=posterior.prior.n_features, time_limit=None,
        )  # fmt: skip
        if isinstance(settings.gradient, Pathwise):  # whose numbers would go before those
            own = replace(settings.gradient, n_probes=posterior.n_samples, n_features=posterior.prior.n_features)
            settings = replace(settings, gradient=own)
        n, d = data.x.shape
        request = Request.of(n, d, settings, data.too_fine, data.known_noise, data.n_targets)
        return plan_update(request, changed)

    def _options_of_update(self, plan: Plan, n_steps: int) -> TrainingOptions:
        """Returns a plan as training takes it; the only steps are those that are asked for, and the noise they find is
        raised as that of a fit is."""
        options: TrainingOptions = self._options(plan)  # type: ignore[attr-defined]
        tied = self.scaler_.columns.tied if self.ard else ()  # type: ignore[attr-defined]
        named = not (is_auto(self.noise_floor) and is_auto(self.n_steps))  # type: ignore[attr-defined]
        open_ = self.learn_noise and not named  # type: ignore[attr-defined]
        return replace(
            options, n_steps=n_steps, n_samples=self.posterior_.n_samples, tied=tied,
            vouched_share=SHARE if n_steps and open_ else 0.0,
        )  # fmt: skip

    def _solved(
        self,
        data: TrainingData,
        plan: Plan,
        n_steps: int,
        old: Posterior,
        carry: Any,
        generator: torch.Generator,
        kept: KeptUpdate | None,
        callbacks: list[Callback],
    ) -> TrainingResult:
        """Carries the posterior over and trains from there, or from a checkpoint; in float64 at once where it was
        float64 before."""
        options, saved = self._options_of_update(plan, n_steps), kept.state if kept is not None else None
        double = old.x.dtype == torch.float64
        if saved is not None and saved.solution is not None:
            double = saved.solution.dtype == torch.float64
        problem = data.problem(plan, old.kernel, old.theta, torch.float64 if double else plan.dtype)
        if double and plan.dtype == torch.float32 and not options.n_steps:
            single = data.problem(plan, old.kernel, old.theta, torch.float32).operator
            problem = replace(problem, single=single)
        state = _start(problem, plan, options, old, carry, saved)
        if kept is not None:
            kept.watch(state, callbacks)
        result = train_problem(problem, options, generator=generator, state=state, callbacks=callbacks)
        if kept is not None:
            kept.keeper.gather()
        return result

    def _generator(self) -> torch.Generator:
        """Returns the generator of this update: of the model's functions, and of how often it was updated, alone."""
        mark = sha256(self.posterior_.prior.sin_weights[:8].double().cpu().numpy().tobytes())
        mark.update(f"{len(self.updates_)} {len(self.posterior_.x)}".encode())
        return torch.Generator().manual_seed(int.from_bytes(mark.digest()[:4], "little"))

    def _note(self, start: str, began: float, result: TrainingResult, **known: Any) -> None:
        """Keeps what was done in ``updates_`` and in the report."""
        seconds, rows = time.perf_counter() - began, len(self.posterior_.x)
        noise = result.noise_found
        more = () if noise is None else (raised(noise, float(result.theta.noise_scale)),)
        self.report_ = replace(self.report_, start=start, seconds=seconds, remarks=(*self.report_.remarks, *more))
        said = {"added": 0, "forgotten": 0, **known}
        done = Update(rows=rows, steps=len(result.history), epochs=result.final.epochs, seconds=seconds, **said)
        self.updates_ = [*self.updates_, done]


def _start(
    problem: Problem, plan: Plan, options: TrainingOptions, old: Posterior, carry: Any, saved: TrainingState | None
) -> TrainingState:
    """Returns the state to train from: the posterior carried over, or what a checkpoint has saved.

    A checkpoint of exact steps, which have no probes, does not hold the model's functions: they are carried over again.
    """
    direct = plan.solver.leaves_factor or options.exact_posterior
    probes = options.gradient.needs_factor or isinstance(options.gradient, Pathwise) or not options.n_steps
    if saved is not None:
        again = probes and saved.draw is None
        return replace(saved, draw=carry(problem, False).draw) if again else saved
    began = time.perf_counter()
    carried = carry(problem, not direct and options.starts_warm)
    nu = old.theta.unconstrained
    state = TrainingState(0, nu, Adam.zeros(nu.numel()), elapsed=time.perf_counter() - began)
    if not probes:  # steps have probes of their own
        return state
    at = None if carried.solution is None else old.theta
    return replace(state, draw=carried.draw, solution=carried.solution, solution_theta=at, trend=carried.trend)


def _which(rows: ArrayLike, n: int) -> NDArray[np.bool_]:
    """Returns which of n rows are meant by numbers or by a mask, (n,); refuses what no row has."""
    given = np.asarray(to_numpy(rows))
    if given.dtype == bool:
        if given.shape != (n,):
            raise ValueError(f"rows as a mask must have one value for each of the {n} rows, got shape {given.shape}")
        which = given
    else:
        numbers = np.atleast_1d(given)
        whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
        if len(numbers) and not whole:
            raise ValueError(f"rows must be whole numbers, counted from 0, or a mask, got {numbers.dtype} numbers")
        bad = (numbers < 0) | (numbers >= n)
        if bad.any():
            raise ValueError(f"rows must be from 0 to {n - 1}, those of the model, got {numbers[bad][0]}")
        which = np.zeros(n, dtype=bool)
        which[numbers.astype(np.int64)] = True
    if not which.any():
        raise ValueError("rows names no row to forget: give at least one")
    return which
