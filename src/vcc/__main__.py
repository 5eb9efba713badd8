"""`python -m vcc` is the command `vcc`."""

import sys

from vcc.cli import main

if __name__ == "__main__":
    sys.exit(main())
