"""The planning room: everything that "auto" decides before training, each decision in one function that says why.

A request (settings, data, machine) goes in; a :class:`Plan` comes out, and stays as it is. The room may import the
rooms up to ``training``, never data, files or the estimator. Add a decision as one
function that takes the request and the decisions before it and returns a value and its reason, and a field of
:class:`Plan` for the value; add a setting to :class:`Settings`, with its check.
"""
