"""Creates the folder and registry entry of a new gateway, from the existing gateway in that language.

Usage: new_gateway.py LANGUAGE NAME [ROOT]

The new gateway is a copy under another name, so it meets the contract from the start and can be changed from there. Its
README has the questions that each gateway's README answers; its author writes the answers.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

MODELS = {
    "cpp": "cpp23-uwebsockets",
    "elixir": "elixir-cowboy",
    "go": "go-nethttp",
    "java": "java-helidon",
    "node": "node-ws",
    "python": "python-fastapi",
    "rust": "rust-axum-plain",
    "scala": "scala-pekko",
    "typescript": "typescript-bun",
}
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Files that are not copied, because they describe the model only: its README and its conformance record.
NOT_COPIED = {"README.md", "conformance.json"}
README = """\
# {name}

A speech-to-text gateway ([the contract](../README.md#gateways)) in … with … . Made from
[{model}](../{model}/README.md) with `tools/new-gateway`.

```sh
./justw build {name}
./justw test-service {name}
./justw conformance {name}
./justw bench-ladder {name}
```

## Decisions

Why these libraries; how a session lives; who reads, who writes, who waits; what `INFERENCE_HTTP_CLIENTS` and
`WORKER_THREADS` mean here.

## What the library does otherwise

Each exception of `services.{name}.exceptions`, and why the library can't be configured otherwise.

## What was tried for speed

And what it gave, per frame, beside `rust-axum-plain` in the same run.
"""


class RefusedError(Exception):
    """The arguments can't be used; the message says what to do."""


def main() -> int:
    try:
        language, name, *rest = sys.argv[1:]
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(rest[0]) if rest else Path(__file__).resolve().parent.parent
    try:
        folder = make(root, language, name)
    except RefusedError as error:
        print(f"new-gateway: {error}", file=sys.stderr)
        return 2
    print(f"made {folder.relative_to(root)} and its entry at the end of services/services.toml")
    print(
        f"next: ./justw build {name}; ./justw test-service {name}; ./justw conformance {name} (docs/ADD-A-SERVICE.md)"
    )
    return 0


def make(root: Path, language: str, name: str) -> Path:
    """Copies the model gateway of a language under another name and returns the new folder."""
    model = MODELS.get(language)
    folder = root / "services" / name
    if model is None:
        raise RefusedError(f"there is no gateway in {language!r} to begin from; there are {', '.join(MODELS)}")
    if not NAME.fullmatch(name):
        raise RefusedError(f"{name!r} is not a name of a gateway: small letters and digits, in words joined by '-'")
    if folder.exists():
        raise RefusedError(f"services/{name} is there already")
    if f"[services.{name}]" in registry(root).read_text():
        raise RefusedError(f"services/services.toml has a service {name!r} already")
    for file in files(root, model):
        copy(root / "services" / model / file, folder / renamed(file, model, name), model, name)
    (folder / "README.md").write_text(README.format(name=name, model=model))
    register(root, model, name)
    if language == "rust":
        join_the_workspace(root, model, name)
    return folder


def registry(root: Path) -> Path:
    return root / "services/services.toml"


def files(root: Path, model: str) -> list[str]:
    """The model's source files, relative to its folder, without build output."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."]
    listed = subprocess.run(command, cwd=root / "services" / model, capture_output=True, text=True, check=True).stdout
    return [file for file in listed.splitlines() if file not in NOT_COPIED]


def copy(source: Path, target: Path, model: str, name: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.write_text(renamed(source.read_text(), model, name))
        shutil.copymode(source, target)
    except UnicodeDecodeError:
        shutil.copy2(source, target)


def renamed(text: str, model: str, name: str) -> str:
    """Replaces the model's name as written, as an identifier and as a type name (`go_nethttp`, `GoNethttp`)."""
    for spell in (str, snake, pascal):
        text = text.replace(spell(model), spell(name))
    return text


def snake(name: str) -> str:
    return name.replace("-", "_")


def pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


def register(root: Path, model: str, name: str) -> None:
    """Appends the model's tables to the registry under the new name."""
    path = registry(root)
    text = path.read_text()
    tables = re.split(r"\n(?=\[)", text)
    own = [table for table in tables if re.match(rf"\[services\.{re.escape(model)}[.\]]", table)]
    # A comment at the end of a table belongs to the next entry.
    entry = "\n\n".join(re.sub(r"(\n#[^\n]*)+\s*$", "", table).strip() for table in own)
    path.write_text(f"{text.rstrip()}\n\n{renamed(entry, model, name)}\n")


def join_the_workspace(root: Path, model: str, name: str) -> None:
    """Adds a Rust gateway to the workspace's members and to the programs of the justfile."""
    manifest, recipes = root / "Cargo.toml", root / "justfile"
    member = f'"services/{model}"'
    manifest.write_text(manifest.read_text().replace(member, f'{member},\n    "services/{name}"', 1))
    recipes.write_text(recipes.read_text().replace(f"-p {model}", f"-p {model} -p {name}", 1))


if __name__ == "__main__":
    sys.exit(main())
