"""Archives of what docs/RESULTS.md is made from: docs/results/PART.tar.xz, trimmed to what the figures need.

Kept of a bundle: run.json, the timeline, the checks of contracts, and each trial's result with the histograms of which
a percentile is printed. Left out: what only `ladder verify` and `ladder judge` need (workers' files, the services' own
counters) and logs.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from bench_format.schemas import SearchStep
from ws_ladder_analysis.load import read_bundle

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/results"
KEPT = ("run.json", "timeline.jsonl", "conformance/*.json", "trials/*/*/*/*/result.json")
# Histograms of which docs/RESULTS.md prints percentiles.
HISTOGRAMS = {"response_ns", "handshake_ns", "newest_ns", "oldest_ns"}
# A search's trials are only counted, except for those whose memory is printed.
COUNTED_STEPS = {SearchStep.BOUNDS, SearchStep.ROUND, SearchStep.FAIL}


def file_of(part: str) -> Path:
    """The archive of a part."""
    return FOLDER / f"{part}.tar.xz"


def pack(part: str, evidence: Path) -> Path:
    """Writes the archive of a part's evidence: a bundle, or a folder of bundles and files. The same evidence gives the
    same bytes."""
    file = file_of(part)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for path in kept(evidence):
            content = trimmed(path)
            entry = tarfile.TarInfo(str(path.relative_to(evidence)))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file


def unpack(part: str, folder: Path) -> Path:
    """Unpacks the archive of a part into a folder and returns it."""
    with tarfile.open(file_of(part)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def kept(evidence: Path) -> Iterator[Path]:
    """The files of a bundle, or of each bundle in a folder and beside them, that figures are made from."""
    if not (evidence / "run.json").is_file():
        yield from sorted(path for path in evidence.glob("*.json") if path.name != "summary.json")
        for bundle in sorted(path.parent for path in evidence.glob("*/run.json")):
            yield from kept(bundle)
        return
    counted = {
        f"trials/{trial.name}"
        for trial in read_bundle(evidence).trials
        if trial.entry.search is not None and trial.entry.search.step in COUNTED_STEPS
    }
    for pattern in KEPT:
        for path in sorted(evidence.glob(pattern)):
            if str(path.parent.relative_to(evidence)) not in counted:
                yield path


def trimmed(path: Path) -> bytes:
    """The content of a file, without histograms of which nothing is printed, and without the place of the checkout."""
    content = path.read_bytes()
    if path.name == "run.json":
        checkout = json.loads(content)["command"].partition("target/release/")[0]
        return content.replace(checkout.encode(), b"") if checkout.startswith("/") else content
    if path.name != "result.json":
        return content
    result = json.loads(content)
    result["histograms"] = {name: one for name, one in result["histograms"].items() if name in HISTOGRAMS}
    return json.dumps(result, separators=(",", ":"), ensure_ascii=False).encode()
