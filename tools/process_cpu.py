"""CPU time of a program with everything that it started, from the kernel's clocks in /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, which may contain anything: see proc_pid_stat(5).
PARENT, SESSION, FIRST_CLOCK, CLOCKS = 1, 3, 11, 4


class Stat(NamedTuple):
    """One process: its parent, its session, and the clock ticks of itself and of children that it waited for."""

    parent: int
    session: int
    ticks: int


def processes() -> dict[int, Stat]:
    """All processes of the machine."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rsplit(") ", 1)[1].split()
        except (OSError, IndexError):
            continue
        clocks = fields[FIRST_CLOCK : FIRST_CLOCK + CLOCKS]
        found[int(folder.name)] = Stat(int(fields[PARENT]), int(fields[SESSION]), sum(map(int, clocks)))
    return found


def tree(root: int, found: dict[int, Stat]) -> set[int]:
    """A process that leads its session, all of that session, and all descendants of these."""
    members = {pid for pid, stat in found.items() if pid == root or stat.session == root}
    while more := {pid for pid, stat in found.items() if stat.parent in members} - members:
        members |= more
    return members


def cpu_seconds(root: int) -> float:
    """User and system time of a tree so far. That of a process that has ended is in it if its parent waited for it."""
    found = processes()
    return sum(found[pid].ticks for pid in tree(root, found)) / TICKS_PER_SECOND
