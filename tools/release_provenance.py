"""Writes the provenance of a release: an SLSA 1 predicate with the commit, the builder and what images are made of.

Usage: release_provenance.py BUILDER INVOCATION PROFILE BASE > FILE
       release_provenance.py check FILE    fails unless all that cosign verified names the checked out commit
BUILDER and INVOCATION are addresses of the workflow and its run; BASE is the base of images, empty for the pinned ones.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service_registry import ROOT

BUILD_TYPE = "{repository}/blob/main/docs/RELEASE.md#provenance"
LOCKS = ("Cargo.lock", "versions.lock.toml", "tools/go/release/go.sum", "services/go-nethttp/go.sum")
"""Files that pin what is compiled."""

Json = dict[str, Any]


def main() -> int:
    match sys.argv[1:]:
        case ["check", file]:
            return check(Path(file).read_text(), git("rev-parse", "HEAD"))
        case [builder, invocation, profile, base]:
            print(json.dumps(predicate(builder, invocation, profile, base), indent=2))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


def check(verified: str, revision: str) -> int:
    """Reads the lines that `cosign verify-attestation` prints; 1 if there are none or one names another commit."""
    envelopes = [json.loads(line) for line in verified.splitlines() if line]
    commits = {source_commit(json.loads(base64.b64decode(each["payload"]))) for each in envelopes}
    if commits == {revision}:
        return 0
    print(
        f"release_provenance: the provenance names {sorted(commits)}, and this checkout is {revision}", file=sys.stderr
    )
    return 1


def source_commit(statement: Json) -> str:
    commit: str = statement["predicate"]["buildDefinition"]["externalParameters"]["source"]["digest"]["gitCommit"]
    return commit


def predicate(builder: str, invocation: str, profile: str, base: str) -> Json:
    """The predicate of type https://slsa.dev/provenance/v1; cosign adds the subject."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    pins = tomllib.loads((ROOT / "versions.lock.toml").read_text())
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE.format(repository=manifest["repository"]),
            "externalParameters": {"source": commit(manifest["repository"]), "version": manifest["version"]},
            "internalParameters": {"profile": profile, "rust": pins["toolchains"]["rust"]["version"]},
            "resolvedDependencies": [commit(manifest["repository"]), *bases(pins["images"], base), *locks()],
        },
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {"invocationId": invocation, "finishedOn": datetime.now(UTC).isoformat(timespec="seconds")},
        },
    }


def commit(repository: str) -> Json:
    """The commit that is checked out; `-dirty` in its annotation where files differ from it."""
    revision = git("rev-parse", "HEAD")
    found: Json = {"uri": f"git+{repository}", "digest": {"gitCommit": revision}}
    if git("status", "--porcelain"):
        found["annotations"] = {"state": "dirty: the work tree differs from the commit"}
    return found


def bases(pins: Json, base: str) -> list[Json]:
    """The base images by digest; one that was made for a rehearsal has no digest that others know."""
    if base:
        return [{"uri": base, "annotations": {"made": "of Debian's packages, on the machine of the build"}}]
    return [
        {
            "uri": f"pkg:docker/{name}@{pin['version']}",
            "digest": {"sha256": pin["digest"].removeprefix("sha256:")},
        }
        for name, pin in pins.items()
    ]


def locks() -> list[Json]:
    """The lock files, each with its digest."""
    return [{"uri": name, "digest": {"sha256": sha256(name)}} for name in LOCKS]


def sha256(name: str) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
