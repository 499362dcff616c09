"""Which images a release has for which platform."""

from __future__ import annotations

import platform
import subprocess

from service_registry import PLATFORMS, ROOT, load, with_images


def images(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "tools/images", *arguments], capture_output=True, text=True)


def test_each_platform_lists_what_the_registry_builds_for_it() -> None:
    everything = images("--list").stdout.split()
    services = {each.name: each.image.platforms for each in with_images(load()) if each.image}
    assert set(services) < set(everything)
    for each in PLATFORMS:
        expected = [name for name in everything if each in services.get(name, PLATFORMS)]
        assert images("--list", "--platform", each).stdout.split() == expected


def test_an_image_is_not_made_for_a_platform_that_it_is_not_released_for() -> None:
    refused = images("--prebuilt", "--platform", "linux/arm64", "node-ws")
    assert refused.returncode == 1
    assert "node-ws isn't built for linux/arm64 (services/services.toml)" in refused.stderr


def test_a_platform_that_is_not_known_is_named() -> None:
    refused = images("--list", "--platform", "linux/386")
    assert refused.returncode == 1
    assert "--platform is linux/amd64 or linux/arm64, not linux/386" in refused.stderr


def test_an_image_that_runs_programs_while_it_is_made_is_left_to_a_machine_of_its_platform() -> None:
    other = "linux/amd64" if platform.machine() == "aarch64" else "linux/arm64"
    refused = images("--prebuilt", "--platform", other, "redis")
    assert refused.returncode == 1
    assert f"redis runs programs of {other} while it is made" in refused.stderr


def test_nothing_runs_in_the_stage_that_is_made_for_another_platform() -> None:
    folders = {"ladder": "compose"} | {name: f"loadgen/{name}" for name in ("wse-bench", "ws-bench", "stt-bench")}
    for name in images("--list", "--crossed").stdout.split():
        folder = folders.get(name) or (f"services/{name}" if (ROOT / "services" / name).is_dir() else name)
        stages = (ROOT / folder / "Dockerfile").read_text().split("\nFROM ")
        made = {stage.split()[2]: stage for stage in stages if " AS " in stage.partition("\n")[0]}
        assert made["files"].startswith("runtime AS files\n"), name
        assert not [
            line for stage in ("runtime", "files") for line in made[stage].splitlines() if line.startswith("RUN")
        ]
        assert "\nRUN " in made["prebuilt"], name
