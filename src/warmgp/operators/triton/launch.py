"""The one way in which Triton kernels are started: on the device of their data.

Triton starts a kernel on the current device of the process, which is the first one unless somebody changed it; data
on another (``device="cuda:1"``) would be read through a foreign address.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def run_kernel(kernel: Any, grid: tuple[int, ...], data: Tensor, *arguments: Any, **options: Any) -> None:
    """Starts the kernel with ``data`` as its first argument, on the device of ``data`` and its current stream.

    A graph that is being recorded on that device records it. The change of device costs about a microsecond.
    """
    if not data.is_cuda:  # Triton's interpreter
        kernel[grid](data, *arguments, **options)
        return
    with torch.cuda.device(data.get_device()):
        kernel[grid](data, *arguments, **options)
