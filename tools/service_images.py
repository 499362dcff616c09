"""Answers tools/images from the registry: which services have an image, and the files of prebuilt ones.

Usage: service_images.py names                 services with an image, one a line
       service_images.py elsewhere PLATFORM    those whose image isn't released for the platform
       service_images.py crossable             those with compiled programs only, which can be made on another platform
       service_images.py gateways              those that are gateways
       service_images.py base NAME             the key of [images] in versions.lock.toml
       service_images.py gather NAME FOLDER PROGRAMS STRIP [crossed]
                                               copies the files that its Dockerfile takes into FOLDER; PROGRAMS is
                                               cargo's folder, with all programs of the image where it is `crossed`
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from service_registry import PLATFORMS, ROOT, Image, Service, load, with_images

CROSS_COMPILERS = ("go", "rust")
"""Toolchains that compile for another platform."""


def main() -> int:
    images = {each.name: each for each in with_images(load())}
    match sys.argv[1:]:
        case ["names"]:
            print("\n".join(images))
        case ["elsewhere", platform]:
            names = [name for name, each in images.items() if each.image and is_elsewhere(each.image, platform)]
            print("\n".join(names))
        case ["crossable"]:
            print("\n".join(name for name, each in images.items() if is_crossable(each)))
        case ["gateways"]:
            print("\n".join(name for name, each in images.items() if each.is_gateway))
        case ["base", name]:
            image = images[name].image
            assert image is not None
            print(image.base)
        case ["gather", name, folder, programs, strip, *crossed]:
            return gather(images[name], Path(folder), Programs(ROOT / programs, strip, is_crossed="crossed" in crossed))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def is_elsewhere(image: Image, platform: str) -> bool:
    """Whether a release has no such image for a platform; `all` is each of them."""
    return platform in PLATFORMS and platform not in image.platforms


def is_crossable(service: Service) -> bool:
    """Whether its image has only what cargo or Go compile for another platform as for their own."""
    return service.build is not None and service.build.toolchain in CROSS_COMPILERS


@dataclass(frozen=True)
class Programs:
    """Where compiled programs are found."""

    folder: Path
    """The folder of a profile below `target/`."""
    strip: str
    """The program that removes debug information."""
    is_crossed: bool
    """Whether `folder` has all programs, those in Go too: they were compiled for another platform."""

    def source(self, service: Service, name: str) -> Path:
        """Where a file of an image is."""
        if self.is_crossed or name.startswith("/target/release/"):
            return self.folder / Path(name).name
        return ROOT / name[1:] if name.startswith("/") else service.folder / name


def gather(service: Service, folder: Path, programs: Programs) -> int:
    """Copies the image's files into a folder, without their paths; strips debug information from Rust programs."""
    assert service.image is not None
    for name in service.image.files:
        source = programs.source(service, name)
        if not source.exists():
            print(f"tools/images: {source} is not there; run: just build {service.name}", file=sys.stderr)
            return 1
        target = folder / source.name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        elif source.parent == programs.folder:
            subprocess.run([programs.strip, "--strip-debug", "-o", target, source], check=True)
        else:
            shutil.copy2(source, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
