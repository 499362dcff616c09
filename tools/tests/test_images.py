"""Which images a release has for which platform."""

from __future__ import annotations

import subprocess

from service_registry import PLATFORMS, ROOT, load, with_images


def images(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "tools/images", *arguments], capture_output=True, text=True)


def test_each_platform_lists_what_the_registry_builds_for_it() -> None:
    everything = images("--list").stdout.split()
    services = {each.name: each.image.platforms for each in with_images(load()) if each.image}
    assert set(services) < set(everything)
    for platform in PLATFORMS:
        expected = [name for name in everything if platform in services.get(name, PLATFORMS)]
        assert images("--list", "--platform", platform).stdout.split() == expected


def test_an_image_is_not_pushed_for_a_platform_that_it_is_not_built_for() -> None:
    refused = images("--push", "--platform", "linux/arm64", "node-ws")
    assert refused.returncode == 1
    assert "node-ws isn't built for linux/arm64 (services/services.toml)" in refused.stderr


def test_a_platform_that_is_not_known_is_named() -> None:
    refused = images("--list", "--platform", "linux/386")
    assert refused.returncode == 1
    assert "--platform is linux/amd64 or linux/arm64, not linux/386" in refused.stderr
