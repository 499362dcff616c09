"""The program: reads its settings and serves, with one event loop or with several processes."""

import os
import platform
import sys
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any

import uvloop

from python_fastapi import NAME, VERSION, workers
from python_fastapi.config import Config, parse


def version_line() -> str:
    """What `--version` prints."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("fastapi", "granian", "uvloop", "pyreqwest"))
    return f"{NAME} {VERSION} (CPython {platform.python_version()}, {packages})"


def serving(config: Config) -> Coroutine[Any, Any, int]:
    """What serves with these settings, and returns the exit status."""
    if config.workers() > 1:
        return workers.serve(config)
    # Only who serves needs it, and it takes most of the start.
    from python_fastapi import server

    return server.serve(config)


def main() -> None:
    """Reads the settings and serves."""
    config = parse(sys.argv[1:], os.environ, version_line())
    try:
        sys.exit(uvloop.run(serving(config)))
    except OSError as error:
        sys.exit(f"{NAME}: {error}")


if __name__ == "__main__":
    main()
