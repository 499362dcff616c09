"""One connection of a Python application to a WSE service. See README.md."""

import sys

from wse_py_bench.main import main

if __name__ == "__main__":
    sys.exit(main("single-client", __doc__, sys.argv[1:]))
