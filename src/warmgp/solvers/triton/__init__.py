"""An iteration of alternating projections on a CUDA device: its Triton kernels, and the matrices they read.

``packed`` is plain torch; ``steps`` needs Triton and is imported only where it is asked for.
"""
