"""As many Python processes as the machine bears, one for each connection that floods. See README.md."""

import sys

from wse_py_bench.main import main

if __name__ == "__main__":
    sys.exit(main("brutal", __doc__, sys.argv[1:]))
