"""The data room: the border to numpy, tensors, tables and grids; units; data sets to try things on.

It may import ``checks`` and ``kernels``. Add here what turns a user's arrays into numbers in good units.
"""
