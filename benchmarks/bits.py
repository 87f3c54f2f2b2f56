"""Fits and solves whose every bit is written down, so that a change of the code that should change nothing can show it.

    OMP_NUM_THREADS=1 python -m benchmarks.bits --out before.json     # before the change
    OMP_NUM_THREADS=1 python -m benchmarks.bits --against before.json # after it, on the same machine

Bits depend on the processor and on torch, so files are compared on one machine only. Only documented imports are used:
the same script runs before and after. Seconds are left out, and so are estimates, which are measured.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import warmgp
from warmgp import (
    RBF,
    AlternatingProjections,
    Cholesky,
    ChunkedOperator,
    ConjugateGradients,
    DenseOperator,
    Exact,
    GPRegressor,
    Hyperparameters,
    Matern12,
    Matern32,
    Matern52,
    Pathwise,
    Standard,
    StochasticGradientDescent,
    StoppingRule,
    TrainingOptions,
    train,
)

Bits = dict[str, str]
CASES: dict[str, Callable[[], Bits]] = {}
MEMORY = 2**33
TIMES = ("solver_seconds", "step_seconds")


def digest(*values: Any) -> str:
    """SHA-256 of arrays, tensors and text, shortened."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        if isinstance(value, np.ndarray):
            found.update(f"{value.shape} {value.dtype}".encode())
            found.update(np.ascontiguousarray(value).tobytes())
        else:
            found.update(repr(value).encode())
    return found.hexdigest()[:16]


def shown(solver: Any) -> str:
    """A solver's options, without one that earlier versions do not have."""
    return repr(solver).replace(", preconditioner=None", "")


def history(records: Any) -> str:
    """The records of all steps without their seconds and notes, which say the same in other words."""
    left_out = (*TIMES, "notes")
    return digest([{k: v for k, v in dataclasses.asdict(r).items() if k not in left_out} for r in records])


def data(n: int, d: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] ** 2 + noise * rng.standard_normal(n)


def of_model(model: GPRegressor, X: np.ndarray) -> Bits:
    new = np.random.default_rng(9).uniform(-3, 3, (50, X.shape[1]))
    mean, std = model.predict(new, return_std=True)
    plan = model.plan_
    return {
        "theta": digest(model.hyperparameters_.vector),
        "history": history(model.history_),
        "mean": digest(mean),
        "std": digest(std),
        "samples": digest(model.sample_y(new, 3)),
        "end": f"{model.stop_reason_} {model.n_steps_} {model.converged_} {digest(model.solve_error_)}",
        "plan": f"{shown(plan.solver)} {plan.gradient!r} {plan.rule} {plan.operator} {plan.dtype} {plan.init}",
    }


def fit(name: str, n: int = 400, d: int = 3, noise: float = 0.1, *, resume: int = 0, **settings: Any) -> None:
    """A case that fits an estimator; with ``resume`` it is interrupted at that step and goes on."""

    def run() -> Bits:
        X, y = data(n, d, noise)
        settings.setdefault("n_steps", 8)
        settings.setdefault("n_probes", 8)
        settings.setdefault("n_features", 200)
        given = {"random_state": 0, "memory_budget": MEMORY, "device": "cpu"} | settings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not resume:
                return of_model(GPRegressor(**given).fit(X, y), X)

            def interrupt(record: Any, state: Any) -> None:
                if record.step == resume:
                    raise KeyboardInterrupt

            with tempfile.TemporaryDirectory() as folder:
                given |= {"checkpoint": Path(folder) / "state.safetensors", "checkpoint_every": 1}
                with contextlib.suppress(KeyboardInterrupt):
                    GPRegressor(**given, callbacks=[interrupt]).fit(X, y)
                return of_model(GPRegressor(**given).fit(X, y), X)

    CASES[f"fit {name}"] = run


def trained(name: str, operator: type, options: TrainingOptions, dtype: torch.dtype = torch.float32) -> None:
    """A case that composes the parts."""

    def run() -> Bits:
        X, y = data(300, 4, 0.1)
        x = torch.as_tensor(X).to(dtype)
        theta = Hyperparameters.ones(4)
        generator = torch.Generator().manual_seed(3)
        held = (x[:40] + 0.1, torch.as_tensor(y[:40]).to(dtype))
        result = train(
            operator(x, Matern32(), theta), torch.as_tensor(y).to(dtype), options, generator=generator, validation=held
        )
        mean, variance = result.posterior.mean_and_variance(x[:50] + 0.01)
        return {
            "theta": digest(result.theta.vector),
            "history": history(result.history),
            "mean": digest(mean),
            "variance": digest(variance),
            "solution": digest(result.posterior.solution),
            "samples": digest(result.posterior.samples(x[:20])),
            "end": f"{result.final.iterations} {result.final.epochs} {result.final.stop_reason}",
            "generator": digest(generator.get_state()),
        }

    CASES[f"train {name}"] = run


def solved(name: str, solver: Any, kernel: Any, noise: float, dtype: torch.dtype, operator: type, **rule: Any) -> None:
    """A case of three solves: from zero, at another θ with the state and solution of the first, and at that θ again."""

    def run() -> Bits:
        n, d = 257, 2
        X, y = data(n, d, 0.1, seed=5)
        x = torch.as_tensor(X).to(dtype)
        theta = Hyperparameters.from_vector(torch.tensor([noise, 1.0, 0.8, 1.1], dtype=torch.float64))
        moved = Hyperparameters.from_vector(torch.tensor([0.9 * noise, 1.1, 0.9, 1.2], dtype=torch.float64))
        generator = torch.Generator().manual_seed(1)
        b = torch.cat([torch.as_tensor(y)[:, None], torch.randn(n, 4, dtype=torch.float64, generator=generator)], 1)
        b = b.to(dtype)
        first = operator(x, kernel, theta)
        out: Bits = {}
        results = [solver.solve(first, b, rule=StoppingRule(**rule), generator=generator)]
        second = first.at(moved)
        for _ in range(2):
            last = results[-1]
            results.append(
                solver.solve(second, b, last.solution, rule=StoppingRule(**rule), generator=generator, state=last.state)
            )
        for k, r in enumerate(results):
            out[f"solution {k}"] = digest(r.solution)
            out[f"books {k}"] = (
                f"{r.iterations} {r.iteration_epochs!r} {r.overhead_epochs!r} {r.stop_reason} {r.residual_checked} "
                f"{r.residual_mean!r} {r.residual_probes!r} {len(r.notes)}"
            )
        return out

    CASES[f"solve {name}"] = run


def fill() -> None:
    single, double = "float32", "float64"
    for kernel in ("rbf", "matern12", "matern32", "matern52"):
        fit(f"exact {kernel}", 200, kernel=kernel, solver="cholesky", n_steps=6)
        fit(f"auto {kernel}", 150, 2, kernel=kernel, n_steps="auto")
    for solver in ("cg", "ap", "sgd"):
        for gradient in ("standard", "pathwise"):
            for dtype in (single, double):
                fit(f"{solver} {gradient} {dtype}", solver=solver, gradient=gradient, dtype=dtype)
        fit(f"{solver} cold", solver=solver, gradient="pathwise", solver_warm_start=False)
    for kernel in ("rbf", "matern12", "matern52"):
        fit(f"cg {kernel}", kernel=kernel, solver="cg", gradient="pathwise")
        fit(f"ap {kernel}", kernel=kernel, solver="ap", gradient="pathwise", ard=False)
    fit("promotion", 400, 2, 1e-4, solver="cg", kernel="rbf", gradient="pathwise", n_steps=40)
    fit("promotion of ap", 300, 2, 1e-3, solver=AlternatingProjections(100, grow_after=5.0), kernel="rbf", n_steps=30)
    fit("low noise float64", 400, 2, 1e-4, solver="cg", dtype=double, n_steps=30)
    fit("sample", 2400, 4, solver="cg", init="sample", n_steps=3)
    fit("sample auto", 2200, 2, solver="cg", init="sample", n_steps="auto", learning_rate="auto", n_features="auto")
    fit("subset", 160, 3, solver="ap", init="subset", n_steps=3)
    near = ConjugateGradients(20, pivot_every=5, neighbours=8)
    fit("neighbours", 500, 2, solver=near, gradient="pathwise")
    fit("neighbours 1/2", 500, 2, 1e-2, solver=near, gradient="pathwise", kernel="matern12", n_steps=20)
    fit("neighbours alone", 500, 1, solver=ConjugateGradients(0, neighbours=8), gradient="pathwise")
    whole = ConjugateGradients(0, factor_after=2)
    fit("whole factor", 500, 4, 1e-2, solver=whole, gradient="pathwise", n_steps=15)
    fit("whole factor low noise", 300, 2, 1e-4, solver=whole, gradient="pathwise", kernel="rbf", n_steps=40)
    fit("pivots", 500, 4, solver=ConjugateGradients(50, pivot_every=3), gradient="pathwise", n_steps=10)
    fit(
        "grown blocks", 400, 2, 1e-3, solver=AlternatingProjections(60, grow_after=3.0), gradient="pathwise", n_steps=20
    )
    fit("budget", 400, 3, 1e-3, solver="ap", max_epochs=5, gradient="pathwise", n_steps=10)
    fit("budget sgd", 400, 3, 1e-2, solver="sgd", max_epochs=5, gradient="pathwise", n_steps=10)
    fit("budget cg", 400, 3, 1e-3, solver=ConjugateGradients(10), max_epochs=5, gradient="pathwise", n_steps=10)
    fit("units", 300, 2, standardize=False, solver="cg", gradient="pathwise")
    fit("rate of sgd", 300, 2, solver=StochasticGradientDescent(100, learning_rate=20.0), gradient="pathwise")
    fit("settled", 300, 2, solver="cg", n_steps="auto", learning_rate="auto", gradient="pathwise")
    fit("plain prior", solver="cg", gradient=Pathwise(8, 200, prior="plain"))
    fit("exact prior", 200, solver="cg", gradient=Pathwise(8, 200, prior="exact"))
    fit("given", 300, 3, solver="cg", gradient="pathwise", init=Hyperparameters.ones(3))
    for name, solver, n, d, noise in (
        ("pivots", ConjugateGradients(50, pivot_every=3), 300, 4, 0.1),
        ("whole factor", whole, 300, 4, 1e-2),
        ("neighbours", near, 400, 2, 0.05),
        ("ap", AlternatingProjections(60, grow_after=3.0), 300, 2, 1e-2),
        ("sgd", StochasticGradientDescent(100), 300, 3, 0.1),
    ):
        fit(f"resume {name}", n, d, noise, resume=4, solver=solver, gradient="pathwise", n_steps=12)
    fit("resume standard", resume=3, solver="cg", gradient="standard")
    fit("resume exact", 200, resume=3, solver="cholesky")
    fit("resume promoted", 300, 2, 1e-4, resume=34, solver="cg", kernel="rbf", gradient="pathwise", n_steps=40)
    rule = StoppingRule(0.01)
    for operator in (DenseOperator, ChunkedOperator):
        for gradient in (Standard(6), Pathwise(6, 100)):
            for solver in (ConjugateGradients(20), AlternatingProjections(50), StochasticGradientDescent(60)):
                options = TrainingOptions(solver, gradient, rule=rule, n_steps=5, n_features=100)
                trained(f"{operator.__name__} {gradient.name} {solver.name}", operator, options)
        options = TrainingOptions(Cholesky(), Exact(), n_steps=5, n_samples=4, n_features=100)
        trained(f"{operator.__name__} exact", operator, options, torch.float64)
        options = TrainingOptions(
            ConjugateGradients(20), Pathwise(6, 100), n_steps=4, exact_posterior=True, relative_steps=True, refine=True
        )
        trained(f"{operator.__name__} exact posterior", operator, options)
    for kernel in (RBF(), Matern12(), Matern32(), Matern52()):
        for noise in (0.3, 0.01):
            for dtype in (torch.float32, torch.float64):
                for solver in (
                    Cholesky(), ConjugateGradients(30), ConjugateGradients(0), near, whole, AlternatingProjections(50),
                    AlternatingProjections(50, on_device=True), AlternatingProjections(20, grow_after=2.0),
                    StochasticGradientDescent(50),
                ):  # fmt: skip
                    slow = noise < 0.1 and solver.name in ("ap", "sgd")
                    whole_rule = {"tol": 1e-3, "max_epochs": 100.0} if slow else {"tol": 1e-3}
                    for operator, rule in ((DenseOperator, whole_rule), (ChunkedOperator, {"max_epochs": 7.0})):
                        name = f"{shown(solver)} {kernel.name} {noise} {dtype} {operator.__name__}"
                        solved(name, solver, kernel, noise, dtype, operator, **rule)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the bits here")
    parser.add_argument("--against", type=Path, help="compare with the bits in this file")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="say how long every case takes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    fill()
    before = json.loads(args.against.read_text())["cases"] if args.against else {}
    found: dict[str, Bits] = {}
    differ, began = [], time.perf_counter()
    for name, case in CASES.items():
        if args.only not in name:
            continue
        start = time.perf_counter()
        found[name] = case()
        if args.verbose:
            print(f"{time.perf_counter() - start:6.1f} s  {name}", flush=True)
        if args.against and before.get(name) != found[name]:
            then = before.get(name, {})
            parts = [part for part in found[name] if then.get(part) != found[name][part]]
            differ.append(name)
            print(f"differs: {name}: {', '.join(parts)}", flush=True)
            for part in parts:
                if part.startswith(("books", "end", "plan")):
                    print(f"  {then.get(part)}\n  {found[name][part]}", flush=True)
    kinds = {kind: sum(name.startswith(kind) for name in found) for kind in ("fit", "train", "solve")}
    print(f"{kinds['fit']} fits, {kinds['train']} trainings and {kinds['solve']} solves in three parts, "
          f"{time.perf_counter() - began:.0f} s")  # fmt: skip
    if args.against:
        print(f"{len(found) - len(differ)} of {len(found)} are the same to the bit")
    if args.out:
        made_by = {"warmgp": warmgp.__version__, "torch": torch.__version__, "numpy": np.__version__}
        args.out.write_text(json.dumps({"made_by": made_by, "cases": found}, indent=1) + "\n")
    return int(bool(differ))


if __name__ == "__main__":
    raise SystemExit(main())
