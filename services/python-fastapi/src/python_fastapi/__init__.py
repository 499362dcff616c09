"""A speech-to-text gateway on FastAPI and Granian; the contract is services/README.md, "Gateways".

In the order in which a frame passes: `main` starts the server, `session` receives audio and flushes it, `rounds` says
when, `inference` sends it on, `protocol` knows the messages, `metrics` counts.
"""

import sys

HAS_GIL = "t" not in sys.abiflags
"""Whether the interpreter was built with a global lock: without one, several event loops share a process."""
NAME = "python-fastapi" if HAS_GIL else "python-fastapi-nogil"
VERSION = "0.1.0"
