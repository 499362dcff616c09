"""Loads a WSE service from one Python process. See README.md."""

import sys

from wse_py_bench.main import main

if __name__ == "__main__":
    sys.exit(main("single-client", __doc__, sys.argv[1:]))
