"""warmgp: Gaussian-process regression on ten thousand to millions of points."""

__version__ = "0.1.0"
