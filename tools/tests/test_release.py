"""The scripts of a release: what they refuse, and that the workflow runs those that the rehearsal tries."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import release_provenance
from chart_images import names
from service_registry import ROOT

WORKFLOW = ROOT / ".github/workflows/release.yml"
REHEARSAL = ROOT / "tools/release-rehearsal"
DIGEST = "sha256:" + "0" * 64


def run(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RELEASE_")}
    command = [str(ROOT / "tools" / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment | variables)


def scripts_in(path: Path) -> set[str]:
    """The scripts of a release that a file runs; what its comments name isn't run."""
    code = "\n".join(line.partition("# ")[0] for line in path.read_text().splitlines())
    return set(re.findall(r"tools/(release-[a-z]+)", code))


def test_the_workflow_runs_the_scripts_that_the_rehearsal_tries() -> None:
    # The rehearsal publishes no tag.
    assert scripts_in(WORKFLOW) - {"release-tag"} == scripts_in(REHEARSAL) - {"release-cosign"}
    assert "./justw release-rehearsal" in WORKFLOW.read_text()


def test_every_script_of_a_release_is_run_by_the_rehearsal_or_by_one_that_it_runs() -> None:
    files = {path.name: path for path in (ROOT / "tools").glob("release-*") if path.suffix == ""}
    reached, found = set(), {"release-rehearsal", "release-tag"}
    while found:
        name = found.pop()
        reached.add(name)
        found |= (scripts_in(files[name]) & files.keys()) - reached
    assert reached == files.keys()


def test_only_what_has_a_digest_is_signed() -> None:
    done = run("release-cosign", "sign", "ghcr.io/somebody/ws-ladder/operator:0.1.0", RELEASE_KEY="none.key")
    assert done.returncode == 1
    assert "names no digest; a tag could be moved before it is signed" in done.stderr


def test_a_keyless_signature_is_not_verified_without_the_identity_that_made_it() -> None:
    done = run("release-cosign", "verify", f"ghcr.io/somebody/ws-ladder/operator@{DIGEST}")
    assert done.returncode != 0
    assert "RELEASE_IDENTITY" in done.stderr


@pytest.mark.parametrize("script", ["release-programs", "release-images"])
def test_a_platform_that_is_not_published_is_refused(script: str, tmp_path: Path) -> None:
    done = run(script, "linux/386", RELEASE_FOLDER=str(tmp_path))
    assert done.returncode == 1
    assert "the platform is linux/amd64 or linux/arm64, not 'linux/386'" in done.stderr


def pushed(folder: Path, platform: str, *without: str) -> None:
    """Writes what `release-images` leaves after it has pushed all images of a platform, but for some."""
    listed = subprocess.run([ROOT / "tools/images", "--list", "--platform", platform], capture_output=True, text=True)
    lines = [f"{name} {platform}\n" for name in listed.stdout.split() if name not in without]
    (folder / f"pushed-{platform.removeprefix('linux/')}.txt").write_text("".join(lines))


def test_no_index_is_made_while_an_image_for_amd64_is_missing(tmp_path: Path) -> None:
    pushed(tmp_path, "linux/amd64", "operator")
    done = run("release-indexes", RELEASE_FOLDER=str(tmp_path), RELEASE_REGISTRY="localhost:1/somebody")
    assert (done.returncode, done.stderr) == (1, "release-indexes: operator was not pushed for linux/amd64\n")


def test_a_complete_release_has_every_image_for_arm64_too(tmp_path: Path) -> None:
    pushed(tmp_path, "linux/amd64")
    pushed(tmp_path, "linux/arm64", "redis")
    done = run("release-indexes", "--complete", RELEASE_FOLDER=str(tmp_path), RELEASE_REGISTRY="localhost:1/somebody")
    assert (done.returncode, done.stderr) == (1, "release-indexes: redis was not pushed for linux/arm64\n")


def test_a_tag_of_another_version_is_refused() -> None:
    done = run("release-tag", "v99.0.0")
    assert done.returncode == 1
    assert "the tag v99.0.0 isn't v" in done.stderr


def test_a_digest_outranks_a_tag_and_a_tag_the_version() -> None:
    values = {
        "image": {"registry": "ghcr.io/somebody/ws-ladder"},
        "operator": {"image": {"repository": "operator", "tag": "", "digest": ""}},
        "services": {
            "pinned": {"image": {"repository": "pinned", "tag": "2", "digest": DIGEST}},
            "tagged": {"image": {"repository": "tagged", "tag": "2"}},
        },
    }
    assert names(values, "1") == [
        "ghcr.io/somebody/ws-ladder/operator:1",
        f"ghcr.io/somebody/ws-ladder/pinned@{DIGEST}",
        "ghcr.io/somebody/ws-ladder/tagged:2",
    ]


def test_provenance_names_commit_builder_and_bases_by_digest() -> None:
    found = release_provenance.predicate("https://example.org/workflow", "https://example.org/run", "dist", "")
    definition = found["buildDefinition"]
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert definition["externalParameters"]["source"]["digest"] == {"gitCommit": revision}
    assert found["runDetails"]["builder"]["id"] == "https://example.org/workflow"
    bases = [each for each in definition["resolvedDependencies"] if each["uri"].startswith("pkg:docker/debian@")]
    assert len(bases) == 1
    assert re.fullmatch("[0-9a-f]{64}", bases[0]["digest"]["sha256"])
    assert json.dumps(found)


def test_provenance_says_that_the_base_of_a_rehearsal_was_made_on_the_machine() -> None:
    found = release_provenance.predicate("b", "i", "release", "localhost/ws-ladder/debian:bookworm")
    [base] = [each for each in found["buildDefinition"]["resolvedDependencies"] if "debian" in each["uri"]]
    assert "digest" not in base
    assert base["annotations"]["made"].startswith("of Debian's packages")


def verified(*revisions: str) -> str:
    """What cosign prints of attestations that it verified, one for each commit."""
    found = release_provenance.predicate("b", "i", "dist", "")
    lines = []
    for revision in revisions:
        found["buildDefinition"]["externalParameters"]["source"]["digest"]["gitCommit"] = revision
        payload = base64.b64encode(json.dumps({"predicate": found}).encode()).decode()
        lines.append(json.dumps({"payload": payload}))
    return "\n".join(lines)


@pytest.mark.parametrize(("revisions", "code"), [(["a", "a"], 0), (["a", "b"], 1), (["b"], 1), ([], 1)])
def test_provenance_of_another_commit_is_refused(revisions: list[str], code: int) -> None:
    assert release_provenance.check(verified(*revisions), "a") == code
