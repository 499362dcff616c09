"""Runs the program of a mounted image as a child of the caller, with the restrictions that the chart sets for pods: a
read-only root, the image's user, no capabilities.

Usage: in_image.py ROOT CONFIG [ARGUMENT...]
       ROOT: where the image is mounted; CONFIG: output of `podman image inspect`

The conformance tool stops, measures and kills the gateway's process, which must therefore be its child. A process that
a container runtime starts is not. Needs root.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

UNSHARED_VARIABLE = "IN_IMAGE_APART"


def main() -> None:
    root, config, *arguments = sys.argv[1:]
    if UNSHARED_VARIABLE not in os.environ:
        # Mounts made below are private to the process and end with it.
        os.execvpe(
            "unshare", ["unshare", "--mount", "--", sys.executable, *sys.argv], os.environ | {UNSHARED_VARIABLE: "yes"}
        )
    subprocess.run(["mount", "--bind", root, root], check=True)
    subprocess.run(["mount", "--options", "remount,bind,ro", root], check=True)
    for source, target in (("/proc", "proc"), ("/dev", "dev")):
        subprocess.run(["mount", "--rbind", source, Path(root) / target], check=True)
    [image] = json.loads(Path(config).read_text())
    run(root, image["Config"], arguments)


def run(root: str, image: dict[str, object], arguments: list[str]) -> None:
    """Replaces this process with the image's program (exec): its environment, working directory, user and arguments."""
    own_environment = {
        name: value for name, value in os.environ.items() if name not in (UNSHARED_VARIABLE, "PATH", "HOME")
    }
    image_environment = dict(entry.split("=", 1) for entry in string_list(image, "Env"))
    # The chart's pods listen on all addresses; here loopback is enough.
    environment = image_environment | {"HOST": "127.0.0.1"} | own_environment
    user, group = map(int, str(image["User"]).split(":"))
    if user == 0 or group == 0:
        sys.exit(f"the image runs as root: {user}:{group}")
    os.chroot(root)
    os.chdir(str(image.get("WorkingDir") or "/"))
    os.setgroups([])
    os.setgid(group)
    # Changing the user drops all capabilities.
    os.setuid(user)
    program = [*string_list(image, "Entrypoint"), *(arguments or string_list(image, "Cmd"))]
    os.environ.clear()
    os.environ.update(environment)
    os.execvp(program[0], program)


def string_list(image: dict[str, object], key: str) -> list[str]:
    value = image.get(key) or []
    assert isinstance(value, list)
    return value


if __name__ == "__main__":
    main()
