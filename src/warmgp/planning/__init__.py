"""The planning room: everything that "auto" decides before training, each decision in one function that says why.

It may import what is trained and how (operators, solvers, gradients, training), never data, files or the estimator.
Add a decision as one function that returns a value and its reason, and a field of :class:`Plan` for the value.
"""
