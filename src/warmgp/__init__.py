"""warmgp: Gaussian-process regression on ten thousand to millions of points.

``GPRegressor`` is all that most people need. Researchers compose the parts: an operator (H = K + σ²I), a solver, a
gradient estimator and ``train``.
"""

from warmgp.data.named_grids import grid
from warmgp.estimator.convergence import ConvergenceWarning
from warmgp.estimator.regressor import GPRegressor
from warmgp.estimator.variogram import Variogram, plot_variogram, variogram
from warmgp.files.logs import CSVLog, JSONLines, TensorBoard
from warmgp.gradient import Exact, GradientEstimator, Pathwise, Standard
from warmgp.hyperparameters import Hyperparameters
from warmgp.kernels import RBF, Kernel, Matern12, Matern32, Matern52
from warmgp.operators import ChunkedOperator, DenseOperator, KernelOperator
from warmgp.posterior import Posterior
from warmgp.solvers import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    RecombinedProjections,
    Solver,
    SolveResult,
    StochasticGradientDescent,
    StoppingRule,
)
from warmgp.training.callbacks import EarlyStopping
from warmgp.training.loop import TrainingResult, train
from warmgp.training.state import StepRecord, TrainingOptions, TrainingState

__version__ = "0.1.0"

__all__ = [
    "RBF",
    "AlternatingProjections",
    "CSVLog",
    "Cholesky",
    "ChunkedOperator",
    "ConjugateGradients",
    "ConvergenceWarning",
    "DenseOperator",
    "EarlyStopping",
    "Exact",
    "GPRegressor",
    "GradientEstimator",
    "Hyperparameters",
    "JSONLines",
    "Kernel",
    "KernelOperator",
    "Matern12",
    "Matern32",
    "Matern52",
    "Pathwise",
    "Posterior",
    "RecombinedProjections",
    "SolveResult",
    "Solver",
    "Standard",
    "StepRecord",
    "StochasticGradientDescent",
    "StoppingRule",
    "TensorBoard",
    "TrainingOptions",
    "TrainingResult",
    "TrainingState",
    "Variogram",
    "grid",
    "plot_variogram",
    "train",
    "variogram",
]
