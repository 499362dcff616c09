"""Checks all pins of versions.lock.toml against this machine and the lock files, and prints how to fix them.

Changes nothing. Exit code 0 when all pins hold, 1 otherwise.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PYTHON_LOCKS = [
    # First, because the versions of later files count, and this one has older ones of some packages.
    "analysis/otava/requirements.txt",
    "analysis/requirements.txt",
    "analysis/requirements-test.txt",
    "loadgen/python/requirements.txt",
    "services/wse-server/requirements-test.txt",
    "services/wse-reference/requirements.txt",
    "compose/requirements.txt",
]


class Finding(NamedTuple):
    """A pin and the version that was found; `mend` says how to fix it and is empty when the pin holds."""

    name: str
    pinned: str
    found: str
    remedy: str

    @property
    def is_satisfied(self) -> bool:
        return not self.remedy


def output(*command: str) -> str:
    """The standard output of a command; empty when it fails or can't be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def version_in(text: str) -> str:
    """The first dotted version number in a text; empty without one."""
    match = re.search(r"\d+\.\d+(\.\d+)?", text)
    return match.group() if match else ""


def at_least(found: str, minimum: str) -> bool:
    return bool(found) and [int(part) for part in found.split(".")] >= [int(part) for part in minimum.split(".")]


def toolchains(pins: dict[str, Any]) -> Iterator[Finding]:
    required = pins["rust"]["version"]
    found = version_in(output("rustc", "--version"))
    yield Finding("rust", required, found, "" if found == required else f"rustup toolchain install {required}")
    file = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    yield Finding(
        "rust-toolchain.toml", required, file, "" if file == required else f'set channel = "{required}" there'
    )
    found = version_in(output("rustup", "run", "nightly", "rustc", "--version"))
    yield Finding("rust-nightly", "any", found, "" if found else "rustup toolchain install nightly")
    minimum = pins["go"]["version"].removeprefix(">=")
    found = version_in(output("go", "version"))
    yield Finding("go", f">={minimum}", found, "" if at_least(found, minimum) else f"install Go {minimum} or later")
    minimum = pins["node"]["version"].removeprefix(">=")
    found = version_in(output("node", "--version"))
    yield Finding("node", f">={minimum}", found, "" if at_least(found, minimum) else f"install Node.js {minimum}")
    minimum = pins["python"]["version"].removeprefix(">=")
    found = ".".join(map(str, sys.version_info[:3]))
    yield Finding(
        "python", f">={minimum}", found, "" if at_least(found, minimum) else f"install CPython {minimum} or later"
    )
    minimum = pins["python-reference"]["version"].removeprefix(">=")
    reference = ROOT / ".tools/reference/bin/python"
    found = version_in(output(str(reference), "--version")) if reference.exists() else ""
    remedy = "" if at_least(found, minimum) else "./justw bench-ladder reference (makes its environment)"
    yield Finding("python-reference", f">={minimum}", found or "not made yet", remedy)


def tools(pins: dict[str, Any]) -> Iterator[Finding]:
    for name, pin in pins.items():
        required = pin["version"]
        if name == "just":
            found = version_in(output(str(ROOT / f".tools/just-{required}/bin/just"), "--version"))
            remedy = "./justw --list"
        else:
            stamp = ROOT / f".tools/{name}.version"
            found = stamp.read_text().strip() if stamp.exists() else ""
            remedy = f"tools/cargo-tool {name}"
        yield Finding(name, required, found or "not installed yet", "" if found == required else remedy)


def go_tools(pins: dict[str, Any]) -> Iterator[Finding]:
    """Programs of tools/go and modules below it: go.mod must have the pinned versions, and programs must be built."""
    for name, pin in pins.items():
        module = pin.get("module", "tools/go")
        locked = dict(re.findall(r"^\s*(\S+) v(\S+)", (ROOT / module / "go.mod").read_text(), re.MULTILINE))
        found = locked.get(pin["package"], f"not in {module}/go.mod")
        remedy = "" if found == pin["version"] else f"cd {module} && go get {pin['package']}@v{pin['version']}"
        if not remedy and not (ROOT / ".tools/bin" / name).exists():
            found = "not built yet"
            remedy = "tools/chart-tools" if module == "tools/go" else "just release-rehearsal (builds it)"
        yield Finding(name, pin["version"], found, remedy)


def schemas(pins: dict[str, Any]) -> Iterator[Finding]:
    for name, pin in pins.items():
        stamp = ROOT / f".tools/{name}-schemas.version"
        found = version_in(stamp.read_text()) if stamp.exists() else "not made yet"
        yield Finding(f"{name} schemas", pin["version"], found, "" if found == pin["version"] else "tools/chart-tools")


def locked_crates() -> dict[str, set[str]]:
    locked: dict[str, set[str]] = {}
    for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]:
        locked.setdefault(package["name"], set()).add(package["version"])
    return locked


def crates(pins: dict[str, Any]) -> Iterator[Finding]:
    locked = locked_crates()
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"]
    direct = {name for name, entry in manifest.items() if isinstance(entry, str) or "path" not in entry}
    for name in sorted(direct | set(pins)):
        if name not in pins:
            yield Finding(
                name, "no pin", "in Cargo.toml", f"add [crates.{name}] with version and why to versions.lock.toml"
            )
        elif name not in direct:
            yield Finding(
                name, pins[name]["version"], "not in Cargo.toml", f"remove [crates.{name}] from versions.lock.toml"
            )
        else:
            required = pins[name]["version"]
            found = locked.get(name, set())
            remedy = "" if required in found else f"cargo update -p {name} --precise {required}, or pin what is locked"
            yield Finding(name, required, ", ".join(sorted(found)) or "not locked", remedy)


def locked_python() -> dict[str, str]:
    text = "\n".join((ROOT / file).read_text() for file in PYTHON_LOCKS)
    return {
        name.lower(): version for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", text, re.MULTILINE)
    }


def python_packages(pins: dict[str, Any]) -> Iterator[Finding]:
    locked = locked_python()
    for name, pin in pins.items():
        found = locked.get(name.lower(), "not locked")
        remedy = (
            ""
            if found == pin["version"]
            else f"change {name} in its requirements file or its pin in versions.lock.toml"
        )
        yield Finding(name, pin["version"], found, remedy)


def npm_packages(pins: dict[str, Any]) -> Iterator[Finding]:
    """Packages of the TypeScript client: each direct dependency must be pinned at the locked version."""
    locked = json.loads((ROOT / "loadgen/typescript/package-lock.json").read_text())["packages"]
    direct = locked[""]["dependencies"] | locked[""]["devDependencies"]
    for name in sorted(direct.keys() | pins.keys()):
        pinned = pins.get(name, {}).get("version", "no pin")
        found = locked.get(f"node_modules/{name}", {}).get("version", "not locked") if name in direct else "not used"
        remedy = f"npm install --prefix loadgen/typescript {name}@{pinned}, or pin in versions.lock.toml what is locked"
        yield Finding(name, pinned, found, "" if pinned == found else remedy)


def generators(pins: dict[str, Any]) -> Iterator[Finding]:
    """Load generators of other projects: each must be pinned at the version of its generator.toml, which a test
    compares with its lock file."""
    folder = ROOT / "services/league/generators"
    for name, pin in pins.items():
        file = folder / name / "generator.toml"
        found = tomllib.loads(file.read_text()).get("version", "no version") if file.exists() else "not there"
        remedy = "" if found == pin["version"] else f"change the version in {file.relative_to(ROOT)} or its pin"
        yield Finding(f"generator {name}", pin["version"], found, remedy)


def cluster(pins: dict[str, Any]) -> Iterator[Finding]:
    """Go modules of the end-to-end test's cluster."""
    file = ROOT / "e2e/cluster/kube/go.mod"
    locked = dict(re.findall(r"^\s*(\S+) v(\S+)", file.read_text(), re.MULTILINE))
    for name, pin in pins.items():
        found = locked.get(pin["package"], "not in go.mod")
        remedy = "" if found == pin["version"] else f"change {name} in {file.relative_to(ROOT)} or its pin"
        yield Finding(f"cluster {name}", pin["version"], found, remedy)


def debian(pins: dict[str, Any], remedy: str) -> Iterator[Finding]:
    for name, pin in pins.items():
        found = version_in(output("dpkg-query", "-W", "-f", "${Version}", name))
        is_satisfied = at_least(found, pin["version"].removeprefix(">="))
        yield Finding(name, pin["version"], found or "not installed yet", "" if is_satisfied else remedy)


def images(pins: dict[str, Any]) -> Iterator[Finding]:
    """Base images: Dockerfiles must repeat the pins as defaults, for builds without tools/images."""
    listed = output("git", "ls-files", "*/Dockerfile").split()
    for name, pin in pins.items():
        required = f"{pin['version']}@{pin['digest']}"
        found = {tag for file in listed for tag in re.findall(rf"/{name}:(\S+)", (ROOT / file).read_text())}
        remedy = "" if found == {required} else f"set {name}:{required} in the Dockerfiles"
        tags = ", ".join(sorted(tag.partition("@")[0] for tag in found))
        yield Finding(f"image {name}", pin["version"], tags, remedy)


def services() -> Iterator[Finding]:
    """Programs of the registry that the toolchains above don't make: each must have been built."""
    registry = tomllib.loads((ROOT / "services/services.toml").read_text())["services"]
    for name, service in registry.items():
        if "build" not in service:
            continue
        command = [argument.replace("{bin}", "target/release") for argument in service["command"]]
        missing = [
            argument
            for argument in command
            if "/" in argument and not argument.startswith("-") and not (ROOT / argument).exists()
        ]
        found = f"{missing[0]} is not there" if missing else "built"
        yield Finding(f"service {name}", "built", found, f"just build {name}" if missing else "")


def main() -> int:
    pins = tomllib.loads((ROOT / "versions.lock.toml").read_text())
    findings = [
        *toolchains(pins["toolchains"]),
        *tools(pins["tools"]),
        *go_tools(pins.get("go", {})),
        *schemas(pins.get("schemas", {})),
        *crates(pins.get("crates", {})),
        *python_packages(pins.get("python", {})),
        *npm_packages(pins.get("npm", {})),
        *generators(pins.get("generators", {})),
        *images(pins.get("images", {})),
        *cluster(pins.get("cluster", {})),
        *debian(pins.get("debian", {}), "just e2e-up (installs it)"),
        *debian(pins.get("debian-clang", {}), "tools/toolchains/clang (installs it)"),
        *debian(pins.get("debian-cross", {}), "just release-rehearsal (installs it)"),
        *services(),
    ]
    for finding in findings:
        verdict = "ok " if finding.is_satisfied else "MEND"
        print(f"{verdict} {finding.name:24} pinned {finding.pinned:12} found {finding.found}")
        if not finding.is_satisfied:
            print(f"     {finding.remedy}")
    bad = sum(not finding.is_satisfied for finding in findings)
    print(f"{len(findings) - bad} pins hold, {bad} to mend")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
