"""tools/python-env makes an environment once, of packages with hashes alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

TOOL = Path(__file__).resolve().parents[1] / "python-env"


def make(folder: Path, lock: Path) -> subprocess.Popen[str]:
    command = [str(TOOL), str(folder), "3.11", str(lock)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_two_that_need_one_environment_at_once_make_it_once(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("")
    several = [make(tmp_path / "env", lock) for _ in range(8)]
    printed = [each.communicate()[1] for each in several]
    assert [each.returncode for each in several] == [0] * 8, printed
    assert "".join(printed).count("making") == 1
    assert (tmp_path / "env/bin/python").exists()


def test_a_package_without_a_hash_is_not_installed(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("iniconfig==2.1.0\n")
    made = make(tmp_path / "env", lock)
    assert "hash" in made.communicate()[1]
    assert made.returncode != 0
    assert not (tmp_path / "env/lock.sha256").exists()


def test_every_package_of_every_environment_is_locked_with_hashes() -> None:
    root = TOOL.parents[1]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*requirements*.txt"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    locks = [root / file for file in listed]
    assert len(locks) >= 9
    for lock in locks:
        packages = [line for line in lock.read_text().splitlines() if re.match(r"[A-Za-z0-9]", line)]
        assert packages
        assert all(re.match(r"\S+==\S+( ; [^\\]*)? \\$", line) for line in packages), lock
        assert lock.read_text().count("    --hash=sha256:") >= len(packages), lock
