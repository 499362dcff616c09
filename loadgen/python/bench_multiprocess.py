"""Loads a WSE service from several Python processes with one connection each. See README.md."""

import sys

from wse_py_bench.main import main

if __name__ == "__main__":
    sys.exit(main("multiprocess", __doc__, sys.argv[1:]))
