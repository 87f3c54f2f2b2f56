"""The data sets by the name that documentation and notebooks use; they live in :mod:`warmgp.data.datasets`."""

from warmgp.data.datasets import UCI_NAMES, DownloadError, Split, fetch, gp_sample, surface, uci

__all__ = ["UCI_NAMES", "DownloadError", "Split", "fetch", "gp_sample", "surface", "uci"]
