"""The demonstration by its short name, ``python -m warmgp.demo``; it lives in :mod:`warmgp.cli.demo`."""

import sys

from warmgp.cli.demo import main

if __name__ == "__main__":
    sys.exit(main())
