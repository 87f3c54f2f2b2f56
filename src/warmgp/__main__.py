"""``python -m warmgp`` is the command line."""

import sys

from warmgp.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
