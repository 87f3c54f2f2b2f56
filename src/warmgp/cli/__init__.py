"""The command line's room: tables in, predictions out.

It may import everything, and nothing imports it. Add a command in :mod:`warmgp.cli.commands`, its options in
:mod:`warmgp.cli.options`, a format of tables in :mod:`warmgp.cli.tables`, and what a column may be in
:mod:`warmgp.cli.columns`.
"""
