"""Records in which order the operator released the Jobs of tiers, from a watch of all changes."""

import json
import subprocess
import threading
from collections.abc import Iterator

from cluster import Cluster, name_of


class Releases:
    """A context manager that watches Jobs in a thread; `changes` are in the order of events."""

    def __init__(self, cluster: Cluster, selector: str) -> None:
        command = cluster.kubectl_command("get", "jobs", "--selector", selector, "--watch", "--output-watch-events")
        self.process = subprocess.Popen([*command, "-o", "json"], stdout=subprocess.PIPE, text=True)
        self.changes: list[tuple[str, bool]] = []
        self.started = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Releases":
        self.thread.start()
        assert self.started.wait(30), "waited 30 s for the first Job of a watch, in vain"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)
        self.thread.join(10)
        if self.process.stdout:
            self.process.stdout.close()

    def _read(self) -> None:
        suspended: dict[str, bool] = {}
        for event in self._events():
            job = event["object"]
            name, is_suspended = name_of(job), bool(job["spec"].get("suspend"))
            if suspended.setdefault(name, True) != is_suspended:
                self.changes.append((name, is_suspended))
            suspended[name] = is_suspended
            self.started.set()

    def _events(self) -> Iterator[dict[str, dict[str, dict[str, str]]]]:
        text = ""
        assert self.process.stdout
        for line in self.process.stdout:
            text += line
            # An event is one JSON object, on one or several lines.
            try:
                event = json.loads(text)
            except ValueError:
                continue
            yield event
            text = ""

    @property
    def released(self) -> list[str]:
        """The Jobs in the order in which they were released."""
        return [name for name, suspended in self.changes if not suspended]

    @property
    def max_concurrent(self) -> int:
        """The largest number of Jobs that were released at the same time."""
        released = maximum = 0
        for _, suspended in self.changes:
            released += -1 if suspended else 1
            maximum = max(maximum, released)
        return maximum
