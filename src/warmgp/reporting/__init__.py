"""A fitted model as one page to read, print and attach to a paper: HTML without scripts, and nothing from elsewhere.

The page is made from a :class:`warmgp.reporting.subject.Subject`, which the estimator fills; nothing here fits or
solves. To add a section: a function from the subject, or from one of its targets, to HTML in a file of its own, and a
line in ``page.SECTIONS`` or ``page.OF_TARGET``. Plots are drawn by ``svg.py``, in colours that ``style.css`` names.
"""
