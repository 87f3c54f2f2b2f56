"""The threads of SciPy's own BLAS, kept from spinning beside torch's while a likelihood is climbed.

L-BFGS works on a few numbers, but SciPy's OpenBLAS wakes its threads for them, and these wait for more by spinning,
some 40 ms, on cores that the next evaluation needs: on two cores the likelihood of 900 points took 80 instead of 35 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

_taken = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Lets SciPy and numpy use one thread of OpenBLAS, and sets the number back at the end.

    The number is of the whole process. Who finds it set, as fits in several of Python's threads do, leaves it alone.
    """
    if not _taken.acquire(blocking=False):
        yield
        return
    try:
        with _libraries().limit(limits=1):
            yield
    finally:
        _taken.release()


@lru_cache(maxsize=1)
def _libraries() -> Any:
    """Returns the OpenBLAS of SciPy and numpy; nothing where torch has no MKL of its own, and may use the same."""
    threading_layer = "pthreads" if torch.backends.mkl.is_available() else "none"
    return ThreadpoolController().select(internal_api="openblas").select(threading_layer=threading_layer)
