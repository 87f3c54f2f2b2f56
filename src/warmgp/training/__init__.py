"""The training room: the outer loop from a problem to a posterior, step by step.

It holds the problem, the state between two steps, the loop, the last solve, the watch over float32, and starts on part
of the data. It may import the rooms up to ``posterior``; it knows no plan, no file and no estimator. Add here what
happens during training; what is decided before it belongs to :mod:`warmgp.planning`.
"""

from warmgp.training.loop import TrainingResult, train, train_only, train_problem
from warmgp.training.problem import Problem
from warmgp.training.state import Callback, StepRecord, TrainingOptions, TrainingState

__all__ = [
    "Callback",
    "Problem",
    "StepRecord",
    "TrainingOptions",
    "TrainingResult",
    "TrainingState",
    "train",
    "train_only",
    "train_problem",
]
