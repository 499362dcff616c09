"""One connection in each of so many Python processes. See README.md."""

import sys

from wse_py_bench.main import main

if __name__ == "__main__":
    sys.exit(main("multiprocess", __doc__, sys.argv[1:]))
