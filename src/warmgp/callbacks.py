"""The callbacks by an earlier name, which is kept; import them from ``warmgp``."""

from warmgp.files.logs import CSVLog, JSONLines, TensorBoard
from warmgp.training.callbacks import EarlyStopping

__all__ = ["CSVLog", "EarlyStopping", "JSONLines", "TensorBoard"]
