"""The command line by the name ``python -m warmgp``; it lives in :mod:`warmgp.cli.commands`."""

import sys

from warmgp.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
