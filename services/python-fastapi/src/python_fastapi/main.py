"""The program: reads its settings and serves, with one event loop or with several."""

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
    """What `--version` prints."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("fastapi", "granian", "uvloop", "pyreqwest"))
    build = "" if HAS_GIL else "t"
    return f"{NAME} {VERSION} (CPython {platform.python_version()}{build}, {packages})"


def serving(config: Config) -> Coroutine[Any, Any, int]:
    """What serves with these settings, and returns the exit status."""
    if HAS_GIL and config.workers() > 1:
        return workers.serve(config)
    # Only who serves needs it, and it takes most of the start.
    from python_fastapi import server, threads

    # A library may switch it on when it is imported.
    if not HAS_GIL and sys.version_info >= (3, 13) and sys._is_gil_enabled():
        raise OSError("a library that isn't made for it has switched the GIL on; PYTHON_GIL=0 keeps it off")
    return threads.serve(config) if config.workers() > 1 else server.serve(config)


def let_threads_finish() -> None:
    """Has the kernel leave a thread of ours its CPU until it sleeps, however many others it wakes.

    Server, client and event loop wake each other for each message, and on one CPU each would take turns for every one
    of them. So they hand over once for many: a tenth less CPU per frame, and the newest frame is no older.
    """
    # Where it isn't allowed it is only dearer.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main() -> None:
    """Reads the settings and serves."""
    config = parse(sys.argv[1:], os.environ, version_line())
    let_threads_finish()
    try:
        sys.exit(uvloop.run(serving(config), loop_factory=uvloop.Loop if HAS_GIL else nogil.Loop))
    except OSError as error:
        sys.exit(f"{NAME}: {error}")


if __name__ == "__main__":
    main()
