"""What solvers do on a CUDA device beside products: Triton kernels, and the matrices they read.

``steps`` is an iteration of alternating projections, ``packed`` its inverses, in plain torch; ``small_factors`` inverts
the factors of many small matrices. What needs Triton is imported only where it is asked for.
"""
