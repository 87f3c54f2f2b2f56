"""The kernels' room: RBF and Matérn-1/2, 3/2 and 5/2, each one class that holds all that is known of it.

``base`` says what a kernel is, ``rbf`` and ``matern`` are the kernels, ``fused`` has their forms for Triton, which are
imported where they are asked for. This room knows nothing of data, signal and length scales, and may import torch only
(``fused``: Triton). What depends on the kernel anywhere in the library is asked of its class; nothing tests for names.

Add a kernel as a file beside these, with a subclass of :class:`Kernel`, and one line in ``KERNELS``; the parametrised
tests pick it up.
"""

from __future__ import annotations

from warmgp.kernels.base import FusedForm, Kernel
from warmgp.kernels.matern import Matern, Matern12, Matern32, Matern52
from warmgp.kernels.rbf import RBF

KERNELS: dict[str, Kernel] = {
    RBF.name: RBF(),
    Matern12.name: Matern12(),
    Matern32.name: Matern32(),
    Matern52.name: Matern52(),
}
"""The kernels by name: the same names in files and on the command line."""


def get_kernel(kernel: str | Kernel, also: str = "") -> Kernel:
    """Returns the kernel of that name, or ``kernel`` itself where it is one; ``also`` is what else the error names."""
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str) or kernel not in KERNELS:
        names = ", ".join(map(repr, KERNELS))
        raise ValueError(f"kernel must be one of {names}{also}, or an object such as warmgp.Matern32(), got {kernel!r}")
    return KERNELS[kernel]


__all__ = [
    "KERNELS",
    "RBF",
    "FusedForm",
    "Kernel",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "get_kernel",
]
