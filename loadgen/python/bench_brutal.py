"""Floods a WSE service from as many Python processes as the machine can run, one per connection. See README.md."""

import sys

from wse_py_bench.main import main

if __name__ == "__main__":
    sys.exit(main("brutal", __doc__, sys.argv[1:]))
