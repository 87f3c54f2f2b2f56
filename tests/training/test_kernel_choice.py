"""Kernels chosen by the data: the right one on draws of each, resumed, told, and left alone when given."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gp_truth import h_matrix
from warmgp import GPRegressor, Hyperparameters, Matern52
from warmgp.data.synthetic import gp_sample
from warmgp.kernels import KERNELS
from warmgp.planning.decisions import TO_BE_CHOSEN
from warmgp.training import kernel_choice
from warmgp.training.kernel_choice import TOO_FEW, _above_noise, choose_kernel
from warmgp.training.near_likelihood import Terms

FAST: dict[str, Any] = {"n_steps": 2, "n_features": 100, "n_probes": 4, "random_state": 0, "device": "cpu"}


def chosen(kernel: str, n: int, d: int, seed: int, noise: float = 0.1) -> kernel_choice.KernelChoice:
    """What is chosen for a draw of a process with that kernel."""
    x, y = (torch.as_tensor(a) for a in gp_sample(n, d, kernel=kernel, noise=noise, length_scale=0.3 * d, seed=seed))
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    return choose_kernel(x, y, d, generator=torch.Generator().manual_seed(seed), is_map=d <= 3)


@pytest.mark.parametrize(("n", "d"), [(900, 2), (350, 2), (700, 5)])
@pytest.mark.parametrize("kernel", ["matern12", "matern32", "rbf"])
def test_draws_of_a_kernel_choose_it_or_its_neighbour(kernel: str, n: int, d: int) -> None:
    """Two draws each. With five inputs 700 points hardly tell neighbours apart, but the ends of the row they do."""
    allowed = {
        "matern12": {"matern12"} if d <= 3 else {"matern12", "matern32"},
        "matern32": {"matern32", "matern52"} if d <= 3 else {"matern12", "matern32", "matern52"},
        "rbf": {"matern52", "rbf"} if d <= 3 else {"matern32", "matern52", "rbf"},
    }[kernel]
    assert {chosen(kernel, n, d, seed).kernel.name for seed in (0, 1)} <= allowed


def drawn(kernel: str, n: int, d: int, ell: float, seed: int) -> kernel_choice.KernelChoice:
    """What is chosen for a draw at normal inputs, made here."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64)
    H = h_matrix(kernel, x, torch.tensor([0.1, 1.0, *[ell] * d], dtype=torch.float64))
    y = torch.linalg.cholesky(H) @ torch.randn(n, generator=g, dtype=torch.float64)
    return choose_kernel(x, y, d, generator=torch.Generator().manual_seed(seed), is_map=d <= 3)


def test_a_smooth_function_of_many_inputs_is_not_given_up() -> None:
    """Climbs of smoother kernels began where Matérn-3/2 ended, with hardly any noise, and ended in nothing: of twelve
    such draws ten chose Matérn-3/2."""
    assert [drawn("rbf", 900, 8, 3.0, seed).kernel.name for seed in (0, 1)] == ["rbf", "rbf"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_smooth_function_is_not_explained_by_a_rougher_kernel_with_much_signal(seed: int) -> None:
    """Matérn-3/2 ended at a signal of 30 and length scales of as many; smoother kernels that begin there found less."""
    rng = np.random.default_rng(seed)
    u = np.column_stack([rng.integers(0, 28, 800) / 27, rng.uniform(size=800), rng.integers(0, 30, 800) / 29])
    f = 1.5 * np.sin(2 * np.pi * u[:, 2]) * (2 * u[:, 2] - 1) + 0.2 * np.sin(2 * np.pi * u[:, 1])
    f += 0.8 * np.sin(4 * u[:, 2]) * np.cos(5 * u[:, 0])
    X = np.column_stack([u, rng.integers(0, 11, 800)])
    y = f / f.std() + 0.02 * rng.normal(size=800)
    x, y = (torch.as_tensor((part - part.mean(0)) / part.std(0)) for part in (X, y))
    choice = choose_kernel(x, y, 4, generator=torch.Generator().manual_seed(seed), is_map=False)
    assert choice.kernel.name == "rbf"


def test_noise_is_raised_only_where_that_makes_data_likelier() -> None:
    """Not for several targets that are explained; for what nothing explains, never to less likely than before."""
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(200, 2)))
    terms, kernel = Terms(torch.arange(200)[None], 200), KERNELS["matern52"]
    explained = torch.stack([torch.sin(2 * x[:, 0]), torch.cos(x[:, 1]), x.sum(1)], 1)
    explained = (explained - explained.mean(0)) / explained.std(0)
    theta = Hyperparameters(0.1, 1.0, [1.0, 1.0])
    assert _above_noise(x, explained, terms, kernel, theta, None) is theta
    noise = torch.as_tensor(1.3 * rng.normal(size=200))
    for start in (Hyperparameters(0.002, 3.0, [9.0, 9.0]), Hyperparameters(0.3, 1.0, [0.5, 0.5])):
        raised = _above_noise(x, noise, terms, kernel, start, None)
        before, after = (float(terms.densities(x, noise, kernel, one).mean()) for one in (start, raised))
        assert after >= before and 0.3 < float(raised.noise_scale) <= 1.0


@pytest.mark.whole
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_two_thousand_points_choose_the_kernel_that_they_were_drawn_from(kernel: str) -> None:
    """Three of four draws at least. Judged by 800 of the points, five of twenty of Matérn-5/2 chose Matérn-3/2."""
    assert sum(drawn(kernel, 2_000, 4, 2.1, seed).kernel.name == kernel for seed in range(4)) >= 3


def test_noise_alone_keeps_the_usual_kernel() -> None:
    rng = np.random.default_rng(0)
    x, y = torch.as_tensor(rng.normal(size=(600, 2))), torch.as_tensor(rng.normal(size=600))
    choice = choose_kernel(x, y, 2, generator=torch.Generator().manual_seed(0), is_map=True)
    assert choice.kernel.name == "matern32"


def test_a_few_points_keep_the_usual_kernel() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(TOO_FEW - 1, 2)), rng.normal(size=TOO_FEW - 1)
    model = GPRegressor(**FAST).fit(X, y)
    assert model.kernel_.name == "matern32" and "too few to tell" in str(model.plan_)


def test_the_plan_says_why_and_the_same_seed_chooses_the_same(tmp_path: Path) -> None:
    X, y = gp_sample(500, 2, kernel="matern12", noise=0.1, length_scale=0.5, seed=0)
    models = [GPRegressor(**FAST).fit(X, y) for _ in range(2)]
    assert models[0].kernel_.name == models[0].plan_.kernel == "matern12"
    told = "The kernel is Matérn-1/2 (rough): the data are likelier than with Matérn-3/2, by 0."
    assert models[0].plan_.why[0].startswith(told) and TO_BE_CHOSEN not in models[0].plan_.why
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))
    models[0].save(tmp_path / "model")
    again = GPRegressor.load(tmp_path / "model", device="cpu")
    assert again.kernel == "auto" and again.kernel_.name == "matern12" and again.plan_ == models[0].plan_
    np.testing.assert_array_equal(again.predict(X), models[0].predict(X))


def test_a_resumed_fit_keeps_its_kernel_and_chooses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = gp_sample(300, 2, kernel="matern12", noise=0.1, length_scale=0.5, seed=0)
    whole = GPRegressor(**{**FAST, "n_steps": 4}).fit(X, y)
    settings = {**FAST, "n_steps": 4, "checkpoint": tmp_path / "run", "checkpoint_every": 1}

    def interrupt(record: Any, state: Any) -> None:
        if state.step == 2:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        GPRegressor(**settings, callbacks=[interrupt]).fit(X, y)
    monkeypatch.setattr("warmgp.estimator.smoothness.choose_kernel", None)  # would raise
    resumed = GPRegressor(**settings).fit(X, y)
    assert resumed.kernel_.name == whole.kernel_.name == "matern12"
    np.testing.assert_array_equal(resumed.hyperparameters_.vector, whole.hyperparameters_.vector)


@pytest.mark.parametrize(
    "given", [{"kernel": "matern52"}, {"kernel": Matern52()}, {"init": Hyperparameters(0.1, 1.0, [1.0])}]
)
def test_nothing_is_chosen_where_a_kernel_or_hyperparameters_are_given(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmgp.estimator.smoothness.choose_kernel", None)
    X = np.random.default_rng(0).normal(size=(60, 2))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = GPRegressor(**given, **FAST).fit(X, X[:, 0])
    assert any("pass kernel=model.kernel_" in str(one.message) for one in warned) is ("init" in given)
    assert model.kernel_.name == ("matern32" if "init" in given else "matern52") and model.plan_.kernel == ""


def test_every_kernel_is_spelled() -> None:
    assert kernel_choice.SPELLED.keys() == KERNELS.keys()


def test_a_wrong_kernel_is_refused_with_all_names() -> None:
    with pytest.raises(ValueError, match=r'kernel must be one of .*matern32.* or "auto"'):
        GPRegressor("smooth").fit([[0.0], [1.0]], [0.0, 1.0])


def test_choosing_takes_a_small_part_of_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that are evaluated, each once for every term and evaluation: those of the climbs, and of judging them."""
    counts: list[int] = []
    from warmgp.operators import conditionals as module

    real = module._some

    def counted(x: Any, y: Any, groups: torch.Tensor, *rest: Any) -> Any:
        counts.append(groups.numel())
        return real(x, y, groups, *rest)

    monkeypatch.setattr(module, "_some", counted)
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(20_000, 2)))
    y = torch.sin(3 * x[:, 0]) + 0.1 * torch.as_tensor(rng.normal(size=20_000))
    choose_kernel(x, y, 2, generator=torch.Generator().manual_seed(0), is_map=True)
    terms = sum(counts) / 21
    assert 4 * 3_600 < terms < 60 * 1_200 + 4 * 3_600  # whatever the number of points


def test_noise_is_not_learned_by_heart_where_points_are_few_for_a_length_scale() -> None:
    """800 of 3,000 rows with 60 inputs, which explain a third of y: without a prior the climb ended at a tenth of the
    noise."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3_000, 60, generator=g, dtype=torch.float64)
    y = torch.tanh(x[:, 0]) + 0.5 * x[:, 1] * torch.tanh(x[:, 2]) + torch.randn(3_000, generator=g, dtype=torch.float64)
    y = (y - y.mean()) / y.std()
    found = choose_kernel(x, y, 60, generator=torch.Generator().manual_seed(0), is_map=False)
    assert float(found.theta.noise_scale) > 0.6  # 0.78 is true
