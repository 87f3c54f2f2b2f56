"""The reporting room: a fitted model as one page to read, print and attach; HTML without scripts or anything to load.

It may import ``data`` and ``planning``, never the estimator, which fills a ``Subject`` for it; nothing here fits or
solves. Add a section with a function to HTML in a file of its own: from the subject, with a line in ``page.SECTIONS``,
or from one target, with a line in ``page.OF_TARGET``. Plots are drawn by ``svg.py``, in colours that the style sheet
names.
"""
