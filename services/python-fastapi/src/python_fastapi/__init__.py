"""A speech-to-text gateway on FastAPI and Granian; the contract is services/README.md, "Gateways".

The modules, in the order in which data passes them: `main` starts the server, `session` receives audio and flushes it,
`rounds` schedules the visits, `inference` sends batches to the inference, `protocol` parses and writes the messages,
`metrics` counts.
"""

import sys

HAS_GIL = "t" not in sys.abiflags
"""Whether the interpreter was built with a GIL. Without one, several event loops can share a process."""
NAME = "python-fastapi" if HAS_GIL else "python-fastapi-nogil"
VERSION = "0.1.0"
