"""Reads `services/services.toml`: how each service is built, checked and packaged.

`ladder` validates the file (operator/src/registry.rs); this module assumes that it is valid.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "services/services.toml"
# Prefix of the services that test the harness itself; their faults are intended.
SELF_TEST = "self-test-"
GATEWAYS = "stt"


@dataclass(frozen=True)
class Build:
    """Shell commands, run in the service's folder with its toolchain's environment; empty: nothing to run."""

    toolchain: str
    build: str = ""
    test: str = ""
    lint: str = ""


PLATFORMS = ("linux/amd64", "linux/arm64")
"""What images are released for."""


@dataclass(frozen=True)
class Image:
    """The inputs and resource limits of a service's image."""

    base: str
    """A key of [images] in versions.lock.toml."""
    files: tuple[str, ...] = ()
    """Files that the Dockerfile's stage `prebuilt` copies: relative to the service's folder, `/…` to the checkout."""
    memory: str = "512Mi"
    cpu: str = "1"
    platforms: tuple[str, ...] = PLATFORMS
    """What a release builds it for."""


@dataclass(frozen=True)
class Service:
    """An entry of the registry. A variant (`like`) inherits from the entry that it names."""

    name: str
    description: str
    protocol: str
    like: str = ""
    env: dict[str, str] = field(default_factory=dict)
    books: str = "connections"
    warmup_seconds: float = 0.0
    build: Build | None = None
    image: Image | None = None
    exceptions: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of its sources; for a variant, that of the entry it is like."""
        return ROOT / "services" / (self.like or self.name)

    @property
    def is_gateway(self) -> bool:
        return self.protocol == GATEWAYS and not self.name.startswith(SELF_TEST)


def load(path: Path = REGISTRY) -> dict[str, Service]:
    """All services by name, in the order of the file."""
    tables: dict[str, dict[str, Any]] = tomllib.loads(path.read_text())["services"]
    return {name: service(name, table, tables) for name, table in tables.items()}


def service(name: str, table: dict[str, Any], tables: dict[str, dict[str, Any]]) -> Service:
    shared = tables[table["like"]] if "like" in table else table
    image = shared.get("image")
    return Service(
        name=name,
        description=table["description"],
        protocol=table["protocol"],
        like=table.get("like", ""),
        env=table.get("env", {}),
        books=table.get("books", "connections"),
        warmup_seconds=shared.get("warmup_seconds", 0.0),
        build=Build(**shared["build"]) if "build" in shared else None,
        image=packaged(image) if image else None,
        exceptions=shared.get("exceptions", {}),
    )


def packaged(table: dict[str, Any]) -> Image:
    lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return Image(**table | lists)


def gateways(services: dict[str, Service]) -> list[Service]:
    """Speech-to-text gateways, without those that test the harness itself."""
    return [each for each in services.values() if each.is_gateway]


def with_images(services: dict[str, Service]) -> list[Service]:
    """Services that have an image of their own; variants use the image of the entry that they are like."""
    return [each for each in services.values() if each.image and not each.like]
