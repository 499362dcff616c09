"""The program: parses the settings and serves sessions, with one event loop or with several."""

import contextlib
import os
import platform
import sys
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any

import uvloop

from python_fastapi import HAS_GIL, NAME, VERSION, nogil, workers
from python_fastapi.config import Config, parse


def version_line() -> str:
    """Returns the text that `--version` prints: the gateway's version, the interpreter and the main packages."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("fastapi", "granian", "uvloop", "pyreqwest"))
    build = "" if HAS_GIL else "t"
    return f"{NAME} {VERSION} (CPython {platform.python_version()}{build}, {packages})"


def serve(config: Config) -> Coroutine[Any, Any, int]:
    """Returns the coroutine that serves with these settings; its result is the exit status."""
    if HAS_GIL and config.workers() > 1:
        return workers.serve(config)
    # The parent of several processes doesn't need these imports, and they take most of the start-up time.
    from python_fastapi import server, threads

    # Importing a library may switch the GIL on.
    if not HAS_GIL and sys.version_info >= (3, 13) and sys._is_gil_enabled():
        raise OSError("a library that isn't made for it has switched the GIL on; PYTHON_GIL=0 keeps it off")
    return threads.serve(config) if config.workers() > 1 else server.serve(config)


def use_batch_scheduling() -> None:
    """Selects `SCHED_BATCH`, with which a thread keeps its CPU until it sleeps, even when it wakes other threads.

    Server, client and event loop wake each other for each message, and on one CPU they would take turns for each of
    them. With this policy they switch once for many messages. It saves a tenth of the CPU time per frame, and the
    newest frame is no older.
    """
    # Where the policy isn't allowed, the gateway works too, with more CPU time.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    """Parses the settings, serves until the gateway stops, and exits with the status."""
    config = parse(sys.argv[1:], os.environ, version_line())
    use_batch_scheduling()
    try:
        sys.exit(uvloop.run(serve(config), loop_factory=uvloop.Loop if HAS_GIL else nogil.Loop))
    except OSError as error:
        sys.exit(f"{NAME}: {error}")


if __name__ == "__main__":
    main()
