"""Checks the prose of the files that tools/plain_words.toml names: no house word stands where the field has a term, and
no docstring repeats the name of its item.

Usage: plain_words.py [PATH…]    without paths: what plain_words.toml lists under `checked`
       plain_words.py --count    how many findings each folder has, checked or not
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools/plain_words.toml"
SHORT = 3
"""A docstring of so many words or fewer counts as short."""

SLASHES = {".rs", ".ts", ".js", ".mjs", ".go", ".java", ".scala", ".cpp", ".hpp", ".h"}
HASHES = {".sh", ".toml", ".yaml", ".yml", ".ex", ".exs"}
# What comes first in the text is what it is: a comment, or a literal in which nothing is one.
SLASH_TOKEN = re.compile(
    r"""//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/
    |b?r(?P<hashes>\#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\[^']*|[^'\\\n])'|`(?:\\.|[^`\\])*`""",
    re.DOTALL | re.VERBOSE,
)
HASH_COMMENT = re.compile(r"(?:^|(?<=\s))#(?!!)(?P<text>.*)$", re.MULTILINE)
PYTHON_TEXT = re.compile(r'"""(?P<text>.*?)"""', re.DOTALL)
RUST_DOC = re.compile(r"(?P<doc>(?:^[ \t]*///[^\n]*\n)+)(?:[ \t]*#\[[^\n]*\n)*[ \t]*(?P<item>[^\n]*)", re.MULTILINE)
RUST_ITEM = re.compile(r"\b(?:fn|struct|enum|trait|type|const|static|mod|union|macro_rules!)\s+(?P<name>[A-Za-z_]\w*)")
RUST_FIELD = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?(?P<name>[A-Za-z_]\w*)")
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[A-Za-z0-9][\w'-]*")
GENERATED = re.compile(r"results/[^/]+/|docs/schemas/|fuzz/seeds/")
EMPTY = {"a", "an", "the", "its", "of", "this", "is"}


class Prose(NamedTuple):
    """A piece of prose, and the line on which it begins."""

    line: int
    text: str


class Docstring(NamedTuple):
    """The documentation of an item, without its sections, and the line on which it begins."""

    line: int
    name: str
    text: str


class Finding(NamedTuple):
    path: str
    line: int
    message: str
    is_short: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Rules:
    """The rules of plain_words.toml: the checked paths, the house words with their terms, and the exceptions."""

    checked: tuple[str, ...]
    short_docstrings: int
    words: dict[str, str]
    allowed: dict[str, frozenset[str]]

    @classmethod
    def load(cls, text: str) -> Rules:
        read: dict[str, Any] = tomllib.loads(text)
        allowed = {each["path"]: frozenset(each["words"]) for each in read["allowed"]}
        return cls(tuple(read["checked"]), read["short_docstrings"], read["words"], allowed)


def main() -> int:
    rules = Rules.load(LIST.read_text())
    if sys.argv[1:] == ["--count"]:
        return count(rules)
    found = [each for path in files(sys.argv[1:] or rules.checked) for each in findings(path, read(path), rules)]
    wrong = [each for each in found if not each.is_short]
    short = [each for each in found if each.is_short]
    if len(short) > rules.short_docstrings:
        wrong += short
    for each in wrong:
        print(each, file=sys.stderr)
    return bool(wrong)


def count(rules: Rules) -> int:
    counted: Counter[tuple[str, str]] = Counter()
    for path in files(["."]):
        folder = "/".join(path.split("/")[:2]) if "/" in path else path
        counted.update((folder, "short" if each.is_short else "other") for each in findings(path, read(path), rules))
    for folder in sorted({folder for folder, _ in counted}):
        print(f"{counted[folder, 'other']:6d} {counted[folder, 'short']:6d} short docstrings  {folder}")
    return 0


def files(paths: list[str] | tuple[str, ...]) -> list[str]:
    """Tracked files below these paths that have prose."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split() if has_prose(path)]


def has_prose(path: str) -> bool:
    suffix = Path(path).suffix
    if GENERATED.match(path) or path.endswith(".lock.toml"):
        return False
    return suffix in SLASHES | HASHES | {".py", ".md"} or Path(path).name in ("justfile", "Dockerfile")


def read(path: str) -> str:
    return (ROOT / path).read_text()


def findings(path: str, text: str, rules: Rules) -> Iterator[Finding]:
    """What is wrong with the prose of one file."""
    allowed = rules.allowed.get(path, frozenset())
    if "*" not in allowed:
        for piece in prose(path, text):
            yield from house_words(
                path, piece, {word: term for word, term in rules.words.items() if word not in allowed}
            )
    for docstring in docstrings(path, text):
        words = [word.lower() for word in WORD.findall(docstring.text)]
        meaningful = {word for word in words if word not in EMPTY}
        if meaningful and meaningful <= name_words(docstring.name):
            yield Finding(path, docstring.line, f"the docstring repeats the name {docstring.name}: {docstring.text!r}")
        elif len(words) <= SHORT:
            yield Finding(path, docstring.line, f"a short docstring of {docstring.name}: {docstring.text!r}", True)


def house_words(path: str, piece: Prose, words: dict[str, str]) -> Iterator[Finding]:
    # As long as before, so that positions stay.
    text = CODE.sub(lambda code: " " * len(code[0]), piece.text)
    for word, term in words.items():
        for match in re.finditer(rf"\b{re.escape(word)}\b", text, re.IGNORECASE):
            if is_part_of(term, word, text, match.start()):
                continue
            line = piece.line + text.count("\n", 0, match.start())
            yield Finding(path, line, f"{match[0]!r} is a house word; the term is: {term}")


def is_part_of(term: str, word: str, text: str, at: int) -> bool:
    """Whether the term is there, with the word in it: `dead letters`."""
    place = term.find(word)
    return place >= 0 and text[at - place : at - place + len(term)].lower() == term


def prose(path: str, text: str) -> Iterator[Prose]:
    """Comments, docstrings and Markdown."""
    suffix = Path(path).suffix
    if suffix == ".md":
        yield Prose(1, FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text))
    elif suffix in SLASHES:
        for match in SLASH_TOKEN.finditer(text):
            found = match["line"] if match["line"] is not None else match["block"]
            if found is not None:
                yield Prose(text.count("\n", 0, match.start()) + 1, found)
    else:
        for match in HASH_COMMENT.finditer(text):
            yield Prose(text.count("\n", 0, match.start()) + 1, match["text"])
    if suffix == ".py":
        for match in PYTHON_TEXT.finditer(text):
            yield Prose(text.count("\n", 0, match.start()) + 1, match["text"])


def docstrings(path: str, text: str) -> Iterator[Docstring]:
    """The documentation of items, in Rust and in Python."""
    if path.endswith(".rs"):
        for match in RUST_DOC.finditer(text):
            doc = "\n".join(line.strip().removeprefix("///").strip() for line in match["doc"].splitlines())
            name = RUST_ITEM.search(match["item"]) or RUST_FIELD.match(match["item"])
            first = text.count("\n", 0, match.start()) + 1
            yield Docstring(first, name["name"] if name else "", doc.split("# ", 1)[0].strip())
    elif path.endswith(".py"):
        yield from python_docstrings(path, text)


def python_docstrings(path: str, text: str) -> Iterator[Docstring]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        # A gateway for a newer Python than this one; its prose is looked at all the same.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found:
                name = Path(path).stem if isinstance(node, ast.Module) else node.name
                yield Docstring(node.body[0].lineno, name, found)


def name_words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


if __name__ == "__main__":
    sys.exit(main())
