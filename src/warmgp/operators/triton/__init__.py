"""H on a CUDA device, by Triton kernels that never write K to memory. They are imported only where asked for.

``fused`` is the operator; ``points`` prepares inputs and ``split`` columns for a tensor core; ``sums`` makes what
gradients are made of; ``products``, ``columns``, ``gradient`` and ``entries`` (dense blocks) hold the Triton kernels,
``parts`` what they share, ``launch`` the one way to start them, or to compile them ahead.
"""
