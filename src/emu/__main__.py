"""`python -m emu` is the `emu` command, for interpreters whose scripts are not on the path."""

import sys

from emu.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
