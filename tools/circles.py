"""Finds cyclic dependencies between modules of our crates.

Usage: tools/circles.py [CRATE...] (default: all of the workspace)

Modules are the files directly in `src/`, each with its folder, and the files directly in a folder with more than ten
files. A parent and its children may use each other; only cycles between siblings are reported. Code that is compiled
only for tests doesn't count. Exits with 1 when there is a cycle and prints the names that cause it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Modules in a folder with more files than this are checked one by one; a smaller folder counts as one module.
LARGE = 10
NOT_CODE = re.compile(r"""(?s)//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:'|[^']+)|[^'\\])'""")
TEST_ONLY = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*[^;{]*")
CHILD = re.compile(r"\bmod\s+(\w+)\s*;")
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"(?<![\w:.])\w+(?:\s*::\s*\w+)+")

# The path of a module or item, one segment each; starts at the crate's root unless noted otherwise.
Name = tuple[str, ...]


def product(text: str) -> str:
    """The code without comments, literals and items that are only for tests."""
    code = NOT_CODE.sub(" ", text)
    while test := TEST_ONLY.search(code):
        end = test.end()
        depth = int(code[end] == "{")
        while depth:
            end += 1
            depth += {"{": 1, "}": -1}.get(code[end], 0)
        code = code[: test.start()] + code[end + 1 :]
    return code


def leaves(tree: str) -> Iterator[tuple[Name, str]]:
    """The paths of a `use` tree, each with the name that it is imported as."""
    depth, part = 0, ""
    for letter in tree + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter != "," or depth:
            part += letter
            continue
        head, brace, inner = part.partition("{")
        whole, _, alias = head.partition(" as ")
        names = tuple(name.strip() for name in whole.split("::") if name.strip())
        if brace:
            below = leaves(inner.rpartition("}")[0])
            yield from (((*names, *path), names[-1] if name == "self" else name) for path, name in below)
        elif names:
            yield names, alias.strip() or names[-1]
        part = ""


class Crate:
    """The modules of a crate, read from its roots, with their imports."""

    def __init__(self, source: Path) -> None:
        self.code: dict[Name, str] = {}
        # Imported names: module path and name → imported path.
        self.names: dict[Name, Name] = {}
        for root in filter(Path.exists, (source / "lib.rs", source / "main.rs")):
            self.read(root, source, ())
        for module, code in self.code.items():
            for path, name in (leaf for use in USE.finditer(code) for leaf in leaves(use[1])):
                self.names[*module, name] = self.absolute(module, path)

    def read(self, file: Path, folder: Path, module: Name) -> None:
        """Reads a module's file and those of its children."""
        code = product(file.read_text())
        self.code[module] = self.code.get(module, "") + code
        for child in CHILD.findall(code):
            below = folder / f"{child}.rs"
            self.read(below if below.exists() else folder / child / "mod.rs", folder / child, (*module, child))

    def absolute(self, module: Name, path: Name) -> Name:
        """Resolves a path written in a module to one from the root; another crate's name counts as below the module."""
        at = () if path[0] == "crate" else module
        for name in path:
            at = at[:-1] if name == "super" else at if name in ("crate", "self") else (*at, name)
        return at

    def resolved(self, path: Name) -> Name:
        """Replaces imported and re-exported names in a path by the paths of their definitions."""
        # A limit above any real chain: `use tempfile::tempfile` would never end.
        for _ in range(8):
            known = next((path[:n] for n in range(1, len(path) + 1) if path[:n] not in self.code), path)
            path = self.names.get(known, known) + path[len(known) :]
        return path

    def dependencies(self) -> dict[Name, dict[tuple[str, str], set[str]]]:
        """By folder: pairs of a module and the sibling that it uses, with the names used."""
        files = Counter(module[:-1] for module in self.code if module)
        dependencies: dict[Name, dict[tuple[str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
        for module, code in self.code.items():
            used = [path for use in USE.finditer(code) for path, _ in leaves(use[1])]
            used += [tuple(re.split(r"\s*::\s*", path)) for path in PATH.findall(USE.sub(" ", code))]
            for target in {self.resolved(self.absolute(module, path)) for path in used}:
                for depth, own in enumerate(module):
                    folder, other = target[:depth], target[: depth + 1]
                    is_looked_into = not depth or files[folder] > LARGE
                    if folder == module[:depth] and other in self.code and other[-1] != own and is_looked_into:
                        named = sum(target[: n + 1] in self.code for n in range(depth, len(target))) + depth + 1
                        dependencies[folder][own, other[-1]].add("::".join(target[depth + 1 : named]))
        return dependencies


def circles(dependencies: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Groups of modules that depend on each other."""
    reach: dict[str, set[str]] = {module: set() for tie in dependencies for module in tie}
    for user, used in dependencies:
        reach[user].add(used)
    for over in reach:
        for user in reach:
            if over in reach[user]:
                reach[user] |= reach[over]
    return sorted({tuple(sorted(other for other in reach[one] if one in reach[other])) for one in reach} - {()})


def main() -> int:
    """Prints the cycles of the given crates; returns 1 when there are any."""
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    count = 0
    for crate in map(Path, sys.argv[1:] or members):
        for folder, dependencies in Crate(ROOT / crate / "src").dependencies().items():
            for circle in circles(dependencies):
                count += 1
                print(f"{'/'.join((str(crate), 'src', *folder))}: {len(circle)} modules use each other in a circle")
                for (user, used), names in sorted(dependencies.items()):
                    if user in circle and used in circle:
                        print(f"    {user} -> {used}: {', '.join(sorted(names - {''})) or used}")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
