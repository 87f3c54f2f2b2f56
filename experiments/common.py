"""What the experiments share: data as tensors, test metrics from samples and exactly, records as JSON."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warmgp
from warmgp.data.datasets import Split, uci
from warmgp.gradient.features import FeaturePrior
from warmgp.operators import ChunkedOperator
from warmgp.posterior import Posterior
from warmgp.solvers.cholesky import factorise


def tensors(split: Split, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(x_train, y_train, x_test, y_test), standardised."""
    parts = (split.x_train, split.y_train, split.x_test, split.y_test)
    return tuple(torch.as_tensor(p).to(device=device, dtype=dtype) for p in parts)  # type: ignore[return-value]


def load(name: str, split: int, folder: str | None, device: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tensors(uci(name, split, folder=folder), device, dtype)


def scores(mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
    """RMSE and mean log-likelihood of y under N(mean, variance), in standardised units."""
    mean, variance, y = mean.double(), variance.double(), y.double()
    llh = -0.5 * ((y - mean).square() / variance + variance.log() + math.log(2 * math.pi))
    return {"rmse": float((y - mean).square().mean().sqrt()), "llh": float(llh.mean())}


def sample_scores(posterior: Posterior, x: Tensor, y: Tensor) -> dict[str, float]:
    """Test scores of the posterior as it is (from samples unless it is exact)."""
    mean, variance = posterior.mean_and_variance(x)
    return scores(mean, variance + posterior.noise_variance, y)


def exact_scores(posterior: Posterior, y_train: Tensor, x: Tensor, y: Tensor) -> dict[str, float]:
    """Test scores of exact float64 prediction at the posterior's θ."""
    operator = ChunkedOperator(posterior.x.double(), posterior.kernel, posterior.theta)
    return exact_scores_at(operator, y_train, x, y)


def exact_scores_at(operator: ChunkedOperator, y_train: Tensor, x: Tensor, y: Tensor) -> dict[str, float]:
    """Test scores of exact prediction with a float64 operator on the training points."""
    factor = factorise(operator)
    v = torch.cholesky_solve(y_train.double()[:, None], factor)
    unused = FeaturePrior.draw(operator.kernel, operator.x.shape[1], 2, 1, generator=torch.Generator())
    exact = Posterior(operator.x, operator.kernel, operator.theta, v, unused, True, factor)
    return sample_scores(exact, x.double(), y)


def machine(device: str) -> dict[str, str]:
    """Where a result comes from."""
    name = (
        torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    return {
        "device": name,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "warmgp": warmgp.__version__,
        "source": source(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def source() -> str:
    """A short hash of the library's code: results of two versions of it can be told apart."""
    digest = hashlib.sha256()
    for path in sorted(Path(warmgp.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def rounded(value: Any) -> Any:
    """The same JSON with floats of six significant digits, for files that people diff."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return value


def write_json(path: Path, value: Any) -> None:
    """Write to a temporary name, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(rounded(value), separators=(",", ":")) + "\n")
    temporary.replace(path)
