"""python -m warmgp: the command line."""

import sys

from warmgp.cli import main

if __name__ == "__main__":
    sys.exit(main())
