"""The callbacks by the name that they had before there were rooms; import them from ``warmgp``."""

from warmgp.files.logs import CSVLog, JSONLines, TensorBoard
from warmgp.training.callbacks import EarlyStopping

__all__ = ["CSVLog", "EarlyStopping", "JSONLines", "TensorBoard"]
