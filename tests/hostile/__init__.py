"""The battery attacks warmgp with hostile data and keeps the attack: what is built next is attacked, too.

How to run it
    ``pytest``                                               with a small sample, other cases every time
    ``make torture``                                         the whole battery, two workers of one thread each
    ``pytest --no-cov tests/hostile --hostile-scale 0.2``    a fifth of it

How to repeat a failure
    Every run draws a seed. A failure shows it under "how to repeat", with the command that runs this one case again:
    a case depends on the seed and the name of its test, on nothing else.

What it promises to find
    ``reference.py`` is a GP in numpy, float64, written apart from the library and from ``tests/gp_truth.py``.
    ``test_answers.py`` holds predictions on the data sets of ``datasets.py`` against it, in predictive standard
    deviations; the share of points over all data sets stands at the end of the run. ``test_properties.py`` has what
    must be true of any data (symmetry, units, order, far inputs), ``test_models_that_change.py`` of rows that come and
    go, several targets and pages, ``test_calibration.py`` coverage over repeats,
    ``test_limits.py`` memory, threads, processes and global state.

How to add an attack
    A kind of inputs or targets: a function in ``datasets.py`` with ``@inputs`` or ``@targets`` above it. A law: a
    function of what hypothesis draws in ``test_properties.py``. Randomness comes from the fixture ``rng`` only, and
    the number of repeats from ``scale``, which is 1 for all of it.
"""
