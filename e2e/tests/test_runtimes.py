"""Gateways in other languages, climbed in the cluster as the chart starts them."""

from pathlib import Path

import pytest
from bundle import Bundle, read
from release import Release
from test_speech import PLAN

ROOT = Path(__file__).resolve().parents[2]
# One gateway on a JVM and one that is interpreted.
GATEWAYS = [pytest.param("java-helidon", marks=pytest.mark.long), "python-fastapi"]
# The images that e2e/images built and loaded, one a line.
LOADED = ROOT / "target/e2e-images"


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_a_gateway_of_the_chart_accounts_for_every_frame(release: Release, tmp_path: Path, gateway: str) -> None:
    if LOADED.exists() and gateway not in LOADED.read_text().split():
        pytest.skip(f"{gateway} could not be built here: its toolchain can't be had")
    run = f"runtime-{gateway}"
    release.upgrade({"run": {"id": run}, "plan": {**PLAN, "services": [gateway]}})
    release.until_run_ends(run)
    release.until_restored()
    bundle = Bundle(release.fetch(run, tmp_path))
    assert bundle.valid() == 1, bundle.run()["trials"]
    [trial] = bundle.trials()
    result = read(trial / "result.json")
    assert result["messages"]["delivered"] == result["messages"]["sent"] > 0
    assert all(equation["left"] == equation["right"] for equation in result["books"]["equations"])
