"""The check for module cycles (`tools/circles.py`), on generated crates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from circles import LARGE, main

Check = Callable[[dict[str, str]], tuple[int, str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Checks a crate with these files below `src/`; returns the exit code and the output."""

    def checked(files: dict[str, str]) -> tuple[int, str]:
        for name, text in files.items():
            file = tmp_path / "src" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        monkeypatch.setattr("sys.argv", ["circles.py", str(tmp_path)])
        return main(), capsys.readouterr().out

    return checked


def test_a_circle_is_printed_with_the_names_that_tie_it(check: Check) -> None:
    code, printed = check(
        {
            "lib.rs": "pub mod server;\nmod shard;\nmod stats;\nmod clock;\n",
            "server.rs": "use crate::{clock, shard::{self, Shard as One}};\npub struct Shared;\n",
            "shard.rs": "use std::fmt;\nuse super::stats::Book;\npub fn run() { crate::clock::now() }\n",
            "stats.rs": "pub fn book(shared: &crate::server::Shared<'_>, quote: char) -> bool { quote == '\"' }\n",
            "clock.rs": "pub fn now() {}\n",
        }
    )
    circle, *ties = printed.splitlines()
    assert code == 1
    assert circle.endswith("/src: 3 modules use each other in a circle")
    assert [tie.strip() for tie in ties] == [
        "server -> shard: Shard",
        "shard -> stats: Book",
        "stats -> server: Shared",
    ]


def test_modules_in_flow_order_are_not_a_circle(check: Check) -> None:
    files = {
        "main.rs": "mod a;\nmod b;\nmod c;\nuse crate::a::A;\nfn main() { c::run() }\n",
        "a.rs": "pub struct A;\n",
        "b.rs": "use super::a::*;\n",
        "c.rs": "use crate::{a, b};\npub fn run() {}\n",
    }
    assert check(files) == (0, "")


@pytest.mark.parametrize(
    "only_in_tests",
    [
        "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n    fn f() { if true { B } }\n}\n",
        "#[cfg(test)]\n#[derive(Debug)]\nstruct Fixture(crate::b::B);\n",
        '#[cfg(test)]\n#[path = "a/tests.rs"]\nmod tests;\n',
        '// crate::b::B\n/// See [`crate::b`].\npub const WORDS: &str = "crate::b::B";\n',
    ],
)
def test_names_in_tests_and_comments_are_not_a_dependency(check: Check, only_in_tests: str) -> None:
    files = {"lib.rs": "mod a;\nmod b;\n", "a.rs": only_in_tests, "b.rs": "use crate::a::A;\n"}
    assert check(files | {"a/tests.rs": "use crate::b::B;\n"}) == (0, "")
    assert check(files | {"a.rs": only_in_tests + "use crate::b::B;\n"})[0] == 1


def test_a_parent_and_its_child_may_use_each_other(check: Check) -> None:
    files = {
        "lib.rs": "mod a;\npub struct Error;\n",
        "a.rs": "mod inner;\nuse self::inner::Inner;\npub struct A;\n",
        "a/inner.rs": "use super::A;\nuse crate::Error;\npub struct Inner;\n",
    }
    assert check(files) == (0, "")


def test_a_reexported_name_depends_on_its_definition(check: Check) -> None:
    code, printed = check(
        {
            "lib.rs": "mod a;\nmod b;\npub use a::{inner::Inner as Public};\n",
            "a.rs": "pub mod inner;\nuse crate::b::B;\n",
            "a/inner.rs": "pub struct Inner;\n",
            "b.rs": "pub struct B(crate::Public);\n",
        }
    )
    assert code == 1
    assert "b -> a: inner::Inner" in printed


@pytest.mark.parametrize(("files", "code"), [(LARGE, 0), (LARGE + 1, 1)])
def test_only_a_large_folder_is_looked_into(check: Check, files: int, code: int) -> None:
    names = [f"m{number}" for number in range(files)]
    crate = {f"a/{name}.rs": "" for name in names}
    crate |= {"a/m0.rs": "use super::m1::One;\n", "a/m1.rs": "use super::m0::Zero;\n"}
    crate |= {"lib.rs": "mod a;\n", "a.rs": "".join(f"mod {name};\n" for name in names)}
    assert check(crate)[0] == code
