"""The reporting room: a fitted model as one page to read, print and attach; HTML without scripts or anything to load.

It may import ``data`` and ``planning``, never the estimator, which fills a :class:`warmgp.reporting.subject.Subject` for
it; nothing here fits or solves. Add a section with a function from the subject, or from one of its targets, to HTML in
a file of its own, and a line in ``page.SECTIONS`` or ``page.OF_TARGET``. Plots are drawn by ``svg.py``, in colours that
the style sheet names.
"""
