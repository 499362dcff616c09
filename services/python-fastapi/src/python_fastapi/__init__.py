"""A speech-to-text gateway on FastAPI and Granian; the contract is services/README.md, "Gateways".

In the order in which a frame passes: `main` starts the server, `session` receives audio and flushes it, `rounds` says
when, `inference` sends it on, `protocol` knows the messages, `metrics` counts.
"""

NAME = "python-fastapi"
VERSION = "0.1.0"
