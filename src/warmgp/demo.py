"""``python -m warmgp.demo`` by its short name; the demonstration lives in :mod:`warmgp.cli.demo`."""

import sys

from warmgp.cli.demo import main

if __name__ == "__main__":
    sys.exit(main())
