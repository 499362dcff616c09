"""The check of the project's prose finds house words in prose, and only there."""

from __future__ import annotations

import pytest
from plain_words import LIST, ROOT, Rules, files, findings, read

RULES = Rules(("README.md",), 60, {"told": "reported", "come of": "result of"}, {"free.md": frozenset({"told"})})


def found(path: str, text: str) -> list[tuple[int, str]]:
    return [(each.line, each.message.split(";")[0]) for each in findings(path, text, RULES)]


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.rs", "fn a() {}\n// it was told so\n", 2),
        ("a.rs", "/* one\n   was told */\n", 2),
        ("a.go", 'x := "a" // told\n', 1),
        ("a.ts", "const x = `//`; // told\n", 1),
        ("a.py", 'X = 1\n\n\ndef f() -> None:\n    """It is told so."""\n', 5),
        ("a.py", "x = 1  # told\n", 1),
        ("a.ex", "# told\n", 1),
        ("justfile", "# told\n", 1),
        ("a.md", "one\n\nIt was Told so.\n", 3),
    ],
)
def test_a_house_word_is_found_in_prose_on_its_line(path: str, text: str, line: int) -> None:
    [(at, message)] = found(path, text)
    assert (at, message.lower()) == (line, "'told' is a house word")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.rs", 'let told = "// told"; let c = \'"\'; // right\n'),
        ("a.rs", 'let a = r#"say "told" // told"#;\n'),
        ("a.rs", "fn f<'a>(x: &'a str) {} // about `told`\n"),
        ("a.py", 'told = "# told"[0]\n'.replace("# told", "#told")),
        ("a.md", "```sh\ntold\n```\n\nsee [it](told.md) and `told`, retold\n"),
        ("free.md", "told\n"),
    ],
)
def test_code_and_exceptions_are_not_checked(path: str, text: str) -> None:
    assert found(path, text) == []


def test_adjacent_words_are_found_together() -> None:
    assert found("a.md", "What has come of it, and of what you come.\n") == [(1, "'come of' is a house word")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/// The queue length.\nfn queue_length() {}\n", "queue_length"),
        ("/// Its address.\npub address: String,\n", "address"),
        ("/// A web client.\n#[derive(Debug)]\npub struct WebClient;\n", "WebClient"),
    ],
)
def test_a_docstring_that_repeats_the_name_is_found(text: str, name: str) -> None:
    [each] = findings("a.rs", text, RULES)
    assert not each.is_short
    assert f"repeats the name {name}" in each.message


def test_a_docstring_of_three_words_is_short_and_one_with_a_unit_is_not() -> None:
    short, *more = findings(
        "a.rs", "/// Why it failed.\npub reason: String,\n/// In nanoseconds since the start.\npub at: u64,\n", RULES
    )
    assert short.is_short
    assert not more
    [python] = findings("a.py", 'def f() -> int:\n    """Why it failed."""\n    return 1\n', RULES)
    assert python.is_short


def test_every_checked_file_exists() -> None:
    rules = Rules.load(LIST.read_text())
    for path in rules.checked:
        assert (ROOT / path).exists(), path
        assert files([path]), path
    for path in rules.allowed:
        assert read(path), path
