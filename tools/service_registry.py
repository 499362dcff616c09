"""`services/services.toml` as the tools read it: how each service is built, checked and packaged.

`ladder` checks the file (operator/src/registry.rs); here it is taken to be right.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "services/services.toml"
# Services of the harness's own tests: what is wrong with them is wanted.
SELF_TEST = "self-test-"
GATEWAYS = "stt"


@dataclass(frozen=True)
class Build:
    """Shell lines, run in the service's folder with its toolchain's environment; empty: there is nothing to do."""

    toolchain: str
    build: str = ""
    test: str = ""
    lint: str = ""


PLATFORMS = ("linux/amd64", "linux/arm64")
"""What images are released for."""


@dataclass(frozen=True)
class Image:
    """What an image needs beside its Dockerfile."""

    base: str
    """A key of [images] in versions.lock.toml."""
    files: tuple[str, ...] = ()
    """What the Dockerfile's stage `prebuilt` copies: paths in the service's folder, or `/…` in the checkout."""
    memory: str = "512Mi"
    cpu: str = "1"
    platforms: tuple[str, ...] = PLATFORMS
    """What a release builds it for."""


@dataclass(frozen=True)
class Service:
    """One entry. A variant (`like`) has what it shares from the entry that it is like."""

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
        """Where its sources are."""
        return ROOT / "services" / (self.like or self.name)

    @property
    def is_gateway(self) -> bool:
        return self.protocol == GATEWAYS and not self.name.startswith(SELF_TEST)


def load(path: Path = REGISTRY) -> dict[str, Service]:
    """All services, in the order of the file."""
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
    """Speech-to-text gateways, without those of the harness's own tests."""
    return [each for each in services.values() if each.is_gateway]


def with_images(services: dict[str, Service]) -> list[Service]:
    """Services that an image is made of: of variants the one that they are like."""
    return [each for each in services.values() if each.image and not each.like]
