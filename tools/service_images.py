"""Answers tools/images from the registry: which services have an image, and the files of prebuilt ones.

Usage: service_images.py names                 services with an image, one a line
       service_images.py elsewhere PLATFORM    those whose image isn't released for the platform
       service_images.py gateways              those that are gateways
       service_images.py base NAME             the key of [images] in versions.lock.toml
       service_images.py gather NAME FOLDER    copies the files for the `prebuilt` stage of its Dockerfile into a folder
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from service_registry import ROOT, Service, load, with_images


def main() -> int:
    images = {each.name: each for each in with_images(load())}
    match sys.argv[1:]:
        case ["names"]:
            print("\n".join(images))
        case ["elsewhere", platform]:
            names = [name for name, each in images.items() if each.image and platform not in each.image.platforms]
            print("\n".join(names))
        case ["gateways"]:
            print("\n".join(name for name, each in images.items() if each.is_gateway))
        case ["base", name]:
            image = images[name].image
            assert image is not None
            print(image.base)
        case ["gather", name, folder]:
            return gather(images[name], Path(folder))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def gather(service: Service, folder: Path) -> int:
    """Copies the image's files into a folder, without their paths; strips debug information from Rust programs."""
    assert service.image is not None
    for name in service.image.files:
        source = ROOT / name[1:] if name.startswith("/") else service.folder / name
        if not source.exists():
            print(f"tools/images: {source} is not there; run: just build {service.name}", file=sys.stderr)
            return 1
        target = folder / source.name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        elif source.is_relative_to(ROOT / "target/release"):
            subprocess.run(["strip", "--strip-debug", "-o", target, source], check=True)
        else:
            shutil.copy2(source, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
