"""H on a CUDA device, by Triton kernels that never write K to memory. Imported only where it is asked for.

``fused`` is the operator; ``split`` prepares columns for a tensor core; ``products``, ``columns`` and ``gradient`` hold
the kernels, ``parts`` what they share, ``launch`` the one way to start them.
"""
