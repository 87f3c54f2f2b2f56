"""What the processes of the tests do; ``python workers.py FUNCTION FOLDER WORLD RANK`` is one of them."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import torch
import torch.distributed as dist
from torch import Tensor

from warmgp import GPRegressor, processes
from warmgp.cli.ranks import answered
from warmgp.cli.tables import open_table
from warmgp.gradient import Pathwise, Standard
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import get_kernel
from warmgp.operators import has_triton, make_operator
from warmgp.operators.base import KernelOperator
from warmgp.operators.row_noise import RowNoise
from warmgp.operators.sharded import Shard, ShardedOperator
from warmgp.processes import Team, TeamError
from warmgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    RecombinedProjections,
    Solver,
    StochasticGradientDescent,
    StoppingRule,
)
from warmgp.training.refinement import refined

PANEL = processes.PANEL
N = 211  # no multiple of the number of processes, nor of a block

SOLVERS: dict[str, Solver] = {
    "cholesky": Cholesky(),
    "cg": ConjugateGradients(preconditioner_rank=20),
    "cg0": ConjugateGradients(preconditioner_rank=0),
    "factor": ConjugateGradients(factor_after=2),
    "neighbours": ConjugateGradients(preconditioner_rank=10, neighbours=5),
    "ap": AlternatingProjections(block_size=30),
    "ap large": AlternatingProjections(block_size=120),  # a block is on several processes
    "sgd": StochasticGradientDescent(batch_size=40, learning_rate=0.1),
    "rap": RecombinedProjections(block_size=64),
}


def operator_of(
    kind: str, kernel: str, dtype: torch.dtype, n: int = N, *, weighted: bool = False, noise: float = 0.7
) -> tuple[KernelOperator, Tensor]:
    """Returns H of random points and targets, (n, 4)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    targets = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    rows = None
    if weighted:
        shares = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
        rows = RowNoise(shares, 0.1 * shares.flip(0))
    theta = Hyperparameters(noise, 1.2, [0.4, 0.7, 1.5])
    operator = make_operator(kind, x.to(dtype), get_kernel(kernel), theta, tile_entries=80**2, rows=rows)
    return operator, targets.to(dtype)


def team_operator(team: Team | None, *arguments: Any, **options: Any) -> tuple[KernelOperator, Tensor]:
    """Returns the same, divided among a team if there is one: targets by the rows of this process."""
    operator, targets = operator_of(*arguments, **options)
    operator = operator if team is None else ShardedOperator(operator, team)
    return operator, operator.part.own(targets)


# -- jobs --------------------------------------------------------------------------------------------------------------
def solutions(team: Team | None, everything: bool, panel: int = processes.PANEL) -> dict[str, Tensor]:
    """Returns solutions after a fixed number of iterations, and gradients, of what is compared: all solvers in both
    precisions with one kernel, or ``everything``. Arrays are gathered in panels of so many numbers."""
    found = {}
    processes.PANEL = panel
    for kernel in ("rbf", "matern12", "matern32", "matern52") if everything else ("matern32",):
        for kind in ("dense", "chunked") if kernel == "matern32" and everything else ("chunked",):
            for dtype in (torch.float32, torch.float64) if kind == "chunked" else (torch.float64,):
                operator, b = team_operator(team, kind, kernel, dtype)
                weighted, _ = team_operator(team, kind, kernel, dtype, weighted=True)
                name = f"{kernel} {kind} {dtype}"
                found |= products(operator, b, name)
                for solver in SOLVERS if kernel == "matern32" else ("cg", "rap"):
                    found[f"{solver} {name}"] = solved(solver, operator, b)
                    if kernel == "matern32":
                        found[f"{solver} {name} weighted and warm"] = solved(solver, weighted, b, 0.3 * b)
        found["corrected torch.float32"] = corrected(team, kernel)
    processes.PANEL = PANEL
    return found


def corrected(team: Team | None, kernel: str) -> Tensor:
    """Returns a solution in float64 that comes from corrections in float32, which it has the digits of."""
    double, b = team_operator(team, "chunked", kernel, torch.float64, noise=0.2)
    single, _ = team_operator(team, "chunked", kernel, torch.float32, noise=0.2)
    rule, solver = StoppingRule(1e-7), RecombinedProjections(block_size=64)
    result = refined(double, single, b, torch.zeros_like(b), rule, solver, generator=torch.Generator().manual_seed(5))
    assert result.converged
    return double.part.whole(result.solution)


def products(operator: KernelOperator, b: Tensor, name: str) -> dict[str, Tensor]:
    """Returns products with H of all rows, and gradients by both estimators."""
    part, some = operator.part, torch.arange(3, 203)
    found = {f"matmul {name}": part.whole(part.matmul(b)), f"rows {name}": part.rows_matmul(some, b)}
    new = torch.rand(300, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(b.dtype)
    found[f"cross {name}"] = part.cross_matmul(new, b)
    for gradient in (Pathwise(3, n_features=50), Standard(3)):
        draw = gradient.draw(operator, torch.Generator().manual_seed(3))
        targets = gradient.targets(operator, b[:, 0], draw)
        result = Cholesky().solve(operator, targets, rule=StoppingRule(1e-6))
        found[f"{gradient.name} gradient {name}"] = gradient.gradient(operator, result, targets)
    return found


def solved(solver: str, operator: KernelOperator, b: Tensor, start: Tensor | None = None) -> Tensor:
    rule, generator = StoppingRule(1e-14, 3.0), torch.Generator().manual_seed(5)
    return operator.part.whole(SOLVERS[solver].solve(operator, b, start, rule=rule, generator=generator).solution)


def fused(team: Team | None) -> dict[str, Tensor]:
    """Returns a product and gradients by Triton's kernels, of two arrays and of one; nothing where Triton is not."""
    if not has_triton():
        return {}
    operator, b = team_operator(team, "fused", "matern32", torch.float32)
    part, weights, other = operator.part, torch.ones(4), b.flip(1)
    return {
        "matmul torch.float32": part.whole(part.matmul(b)),
        "gradient torch.float32": part.quadratic_gradient(b, b, weights),
        "gradient of two torch.float32": part.quadratic_gradient(b, other, weights),
    }


def traffic(team: Team, sizes: tuple[int, ...]) -> dict[str, list[dict[str, int]]]:
    """Returns the bytes that 8 more iterations handed to collectives, by solver, for each number of rows."""
    found: dict[str, list[dict[str, int]]] = {}
    for name in ("ap", "sgd", "cg"):
        for n in sizes:
            operator, b = team_operator(team, "chunked", "matern32", torch.float32, n)
            per_iteration = {"ap": 30 / n, "sgd": 40 / n, "cg": 1.0}[name]
            counts = []
            for iterations in (4, 12):
                team.sent.clear()
                rule = StoppingRule(1e-14, iterations * per_iteration * 1.0001)
                SOLVERS[name].solve(operator, b, rule=rule, generator=torch.Generator().manual_seed(5))
                counts.append(dict(team.sent))
            found.setdefault(name, []).append({key: counts[1][key] - counts[0].get(key, 0) for key in counts[1]})
    return found


# -- fits --------------------------------------------------------------------------------------------------------------
FITS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "iterative": {"solver": "rap", "gradient": "pathwise", "n_steps": 3, "dtype": "float64", "kernel": "matern32"},
    "ap": {"solver": AlternatingProjections(block_size=50), "n_steps": 3, "gradient": "pathwise"},
    "cg": {"solver": ConjugateGradients(preconditioner_rank=20), "gradient": "standard", "n_steps": 3},
    "targets": {"solver": "cg", "gradient": "pathwise", "n_steps": 2, "kernel": "matern32"},
    "trend": {"solver": "cg", "gradient": "pathwise", "trend": "linear", "n_steps": 2, "kernel": "matern32"},
}


def table(n: int = N) -> tuple[Any, Any, Any]:
    """Returns inputs, targets and weights of a small table."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    y = 2.0 + X[:, 2] + np.sin(6 * X[:, 0]) + 0.2 * rng.normal(size=n)
    return X, y, 0.5 + rng.uniform(size=n)


def fits(team: Team | None, folder: str) -> dict[str, Any]:
    """Returns hyperparameters and predictions of fits by their names, and of one that is written and read again."""
    X, y, w = table()
    found = {}
    for name, settings in FITS.items():
        model = GPRegressor(**{"n_probes": 8, "n_features": 100, "random_state": 0, **settings})
        several = np.column_stack([y, np.where(np.arange(len(y)) < 30, np.nan, X[:, 1] - y**2)])  # one has gaps
        targets, held = several if name == "targets" else y, (X[:20] + 0.01, y[:20])
        model.fit(
            X, targets, validation=None if name == "targets" else held,
            sample_weight=w if name in ("ap", "trend") else None,
        )  # fmt: skip
        found[name] = model.hyperparameters_.vector.numpy(), *model.predict(X[:20], return_std=True)
        if name == "targets":
            answer = model.predict_together(torch.as_tensor(X[:20]), return_std=True)
            found["targets together"] = found[name][0], *(one.numpy() for one in answer)
        if name != "as it comes":
            told = np.array([value for record in model.history_ for value in record.metrics.values()])
            found[f"{name}, held-out rows"] = told, *found[name][1:]
    found |= updates(model)
    for name, X_new in (("together", X[:20]), ("together, as a table", pd.DataFrame(X[:20]).to_numpy().tolist())):
        found[name] = found["trend"][0], *model.predict_together(X_new, return_std=True)
    alone = model.predict(X[:20]) if team is None or team.first else found["trend"][1]  # one may ask by itself
    found["rank 0 alone"] = found["trend"][0], alone, found["trend"][2]
    path = Path(folder) / f"model-{team.size if team else 0}.warmgp"
    model.save(path)
    if team is not None:
        team.from_first(lambda: None)  # it is written by now
    found["read again"] = found["trend"][0], *GPRegressor.load(path).predict(X[:20], return_std=True)
    return found


def updates(model: GPRegressor) -> dict[str, Any]:
    """Returns what a model with a trend predicts after rows came, after steps on all, and after rows went."""
    X, y, _ = table()
    more = X[:50] * 0.9 + 0.05, y[:50] + 0.1
    model, found = copy.deepcopy(model), {}
    for name, change in (
        ("update", lambda: model.update(*more)),
        ("update with steps", lambda: model.update(*more, n_steps=2)),
        ("forget", lambda: model.forget(np.arange(0, 200, 7))),
    ):
        change()
        found[name] = model.hyperparameters_.vector.numpy(), *model.predict(X[:20], return_std=True)
    return found


class Watch:
    """Looks for arrays of all rows and more than a few columns while a model is trained: a callback of every process.

    It looks after every step and at most 8 times within solves and gradients, whenever something is summed over the
    processes, until the first array is gathered whole for the model. ``gathered`` has what that was.
    """

    everywhere = True

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.gathered: list[tuple[int, str]] = []
        self.steps = self.looks = 0
        add, whole = Team.sum, Shard.whole

        def watched(own: Team, values: Tensor) -> Tensor:
            if self.looks < 8 and not self.gathered:
                self.looks += 1
                self.look("within a solve or a gradient")
            return add(own, values)

        def noted(part: Shard, A: Tensor) -> Tensor:
            self.gathered.append((A.shape[1], str(A.dtype)))
            return whole(part, A)

        Team.sum, Shard.whole = watched, noted  # type: ignore[method-assign]
        self._back = add, whole

    def __call__(self, record: Any, state: Any) -> None:
        self.steps += 1
        self.look(f"after step {record.step}")
        self.looks = 0

    def look(self, when: str) -> None:
        """Notes what has memory for all rows, also where it is a view of some of them."""
        for one in gc.get_objects():
            if type(one) is Tensor and one.ndim == 2 and FEW < one.shape[1] <= MANY:
                held = one.untyped_storage().nbytes() // (one.element_size() * one.shape[1])
                if held >= MORE:
                    self.found.add(f"{tuple(one.shape)} of {held} rows {when}")

    def close(self) -> None:
        Team.sum, Shard.whole = self._back  # type: ignore[method-assign]


FEW, MANY = 4, 20  # columns of inputs and y, of which there are fewer, and of all systems, of which there are no more
MORE = 401  # rows, of which a look at float64 takes 256

WATCHED: dict[str, dict[str, Any]] = {
    "rap": {"solver": RecombinedProjections(block_size=64), "gradient": "pathwise", "trend": "quadratic"},
    "ap": {"solver": AlternatingProjections(block_size=40), "gradient": "pathwise", "dtype": "float64"},
    "cg": {"solver": ConjugateGradients(preconditioner_rank=0), "gradient": "standard"},
    "sgd": {"solver": StochasticGradientDescent(batch_size=40), "gradient": "pathwise", "max_epochs": 5},
}


def watched(team: Team, *names: str) -> dict[str, tuple[int, set[str], list[tuple[int, str]]]]:
    """Returns of fits by their names how many steps they have taken, which arrays of all rows there were meanwhile, and
    what was gathered at their end."""
    X, y, w = table(MORE)
    settings = {"n_probes": 8, "n_features": 100, "random_state": 0, "n_steps": 2, "kernel": "matern32", "init": "ones"}
    found = {}
    processes.PANEL = 1500
    for name in names:
        watch = Watch()
        held = X[:9] + 0.01, y[:9]
        GPRegressor(**settings, **WATCHED[name], callbacks=[watch]).fit(X, y, validation=held, sample_weight=w)
        watch.close()
        found[name] = watch.steps, watch.found, watch.gathered
    processes.PANEL = PANEL
    return found


def killed(team: Team, folder: str) -> str:
    """Fits until one of the processes dies in the middle; returns what the others are told, and after how long."""
    X, y, _ = table()

    solve, calls = ConjugateGradients.solve, [0]

    def counted(self: ConjugateGradients, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if team.rank == 2 and calls[0] == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return solve(self, *arguments, **options)

    ConjugateGradients.solve = counted  # type: ignore[method-assign]
    began = time.perf_counter()
    try:
        GPRegressor(**LONG, checkpoint=Path(folder) / "fit.ckpt", checkpoint_every=1).fit(X, y)
    except TeamError as error:
        return f"{time.perf_counter() - began:.0f} s: {error}"
    return "nothing"


LONG: dict[str, Any] = {
    "kernel": "matern32", "solver": ConjugateGradients(preconditioner_rank=20), "gradient": "pathwise", "n_probes": 8,
    "n_features": 100, "n_steps": 10, "random_state": 0, "dtype": "float64", "init": "ones",
}  # fmt: skip


def resumed(team: Team | None, folder: str) -> tuple[Any, int]:
    """Goes on from a checkpoint, or begins; returns the hyperparameters and the steps."""
    X, y, _ = table()
    model = GPRegressor(**LONG, checkpoint=Path(folder) / "fit.ckpt", checkpoint_every=1).fit(X, y)
    return model.hyperparameters_.vector.numpy(), model.n_steps_


def failed(team: Team) -> list[str]:
    """Solves with blocks of which one process cannot factor its own; returns what is raised."""
    if team.rank == 1:

        def fails(*_: Any) -> Any:
            raise torch.linalg.LinAlgError("the block is not positive definite")

        KernelOperator.block_in_float64 = fails  # type: ignore[method-assign]
    told = []
    for name in ("rap", "ap"):
        operator, b = team_operator(team, "chunked", "matern32", torch.float64)
        try:
            solved(name, operator, b)
        except torch.linalg.LinAlgError as error:
            told.append(str(error))
    return told


def parquet(team: Team, path: str) -> tuple[Any, int]:
    """Returns a table that the processes read together, and how many row groups this one has read."""
    read, count = pyarrow.parquet.ParquetFile.read_row_group, [0]

    def counted(self: Any, *arguments: Any, **options: Any) -> Any:
        count[0] += 1
        return read(self, *arguments, **options)

    pyarrow.parquet.ParquetFile.read_row_group = counted
    opened = open_table(path)
    opened.team = team
    return opened.read(opened.columns), count[0]


def answers(team: Team) -> tuple[list[float], list[float], str]:
    """Returns what the processes answer for five rows and for one, and what is raised where one of them cannot."""

    def doubled(X: Any, rows: range) -> dict[str, Any]:
        if team.rank == 1 and len(X) == 2:
            raise ValueError(f"row {rows[0]} has no answer")
        return {"mean": 2 * X["a"].to_numpy()}

    X = pd.DataFrame({"a": np.arange(5.0)})
    five, one = answered(X, range(1, 6), doubled), answered(X[:1], range(1, 2), doubled)
    try:
        answered(X[:4], range(1, 5), doubled)
    except ValueError as error:
        return five["mean"].tolist(), one["mean"].tolist(), str(error)
    return five["mean"].tolist(), one["mean"].tolist(), "nothing"


def other_data(team: Team) -> str:
    """Fits with other data on one rank; returns what is raised."""
    X, y, _ = table()
    try:
        GPRegressor(**LONG).fit(X, y + 1e-9 * (team.rank == 1))
    except TeamError as error:
        return str(error)
    return "nothing"


def several(team: Team, jobs: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Returns what several jobs return, by name: processes take longer to start than what they do here."""
    return {name: JOBS[name](team, *arguments) for name, arguments in jobs.items()}


JOBS: dict[str, Callable[..., Any]] = {
    "solutions": solutions, "traffic": traffic, "fits": fits, "killed": killed, "resumed": resumed,
    "other_data": other_data, "failed": failed, "parquet": parquet, "answers": answers,
    "several": several, "watched": watched, "fused": fused,
}  # fmt: skip


def main() -> None:
    function, folder, world, rank = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    result = JOBS[function](Team(), *pickle.loads((folder / "arguments").read_bytes()))
    (folder / f"result-{rank}").write_bytes(pickle.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
