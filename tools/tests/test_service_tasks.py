"""Reading the registry, unavailable toolchains, and conformance records."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import conformance_records as records
import pytest
import service_registry
import service_tasks
from service_registry import Build, Service


def gateway(name: str, toolchain: str = "none") -> Service:
    return Service(name=name, description="", protocol="stt", build=Build(toolchain, build="true", test="false"))


def test_a_variant_inherits_from_the_entry_that_it_is_like() -> None:
    services = service_registry.load()
    variant, model = services["wse-server-dict"], services["wse-server"]
    assert variant.build == model.build
    assert variant.folder == model.folder


def test_the_harness_s_own_gateways_are_none_of_those_that_are_compared() -> None:
    names = {each.name for each in service_registry.gateways(service_registry.load())}
    assert {"rust-axum", "rust-sync"} <= names
    assert not any(name.startswith("self-test") for name in names)


def test_every_toolchain_of_the_registry_has_its_program() -> None:
    for each in service_registry.load().values():
        if each.build:
            assert (service_registry.ROOT / "tools/toolchains" / each.build.toolchain).is_file()


@pytest.fixture
def absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a toolchain that isn't available: its program exits with 3."""
    program = tmp_path / "tools/toolchains/none"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'no such machine' >&2\nexit 3\n")
    program.chmod(0o755)
    (tmp_path / "services/a").mkdir(parents=True)
    monkeypatch.delenv(service_tasks.BUILT, raising=False)
    monkeypatch.setattr(service_tasks, "ROOT", tmp_path)
    monkeypatch.setattr(service_registry, "ROOT", tmp_path)
    service_tasks.environment.cache_clear()
    return "none"


def test_a_toolchain_that_cannot_be_had_leaves_its_services_out_with_its_sentence(
    absent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert service_tasks.each_with_its_toolchain([gateway("a", absent)], ["build"], named=False) == 0
    assert "left out: a: no such machine" in capsys.readouterr().out


def test_buildable_services_are_separated_from_others(absent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert service_tasks.built([gateway("a", absent)], named=False, to=sys.stderr) == ([], 0)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "a: build\nleft out: a: no such machine\n")


def test_a_service_that_was_named_fails_where_its_toolchain_cannot_be_had(
    absent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert service_tasks.each_with_its_toolchain([gateway("a", absent)], ["build"], named=True) == 3
    assert "a: no such machine" in capsys.readouterr().err


def test_failures_are_printed_at_the_end(absent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tools/toolchains" / absent).write_text("#!/bin/sh\necho KEY=value\n")
    assert service_tasks.each_with_its_toolchain([gateway("a", absent)], ["build", "test"], named=False) == 1
    assert "failed: test of a" in capsys.readouterr().err


def test_a_contract_that_is_not_kept_beside_others_is_checked_again_alone(
    absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools/toolchains" / absent).write_text("#!/bin/sh\necho KEY=value\n")
    shutil.copy(Path(__file__).parents[1] / "turn", tmp_path / "tools")
    ladder = tmp_path / "ladder"
    # `busy` keeps its contract where it runs alone, `faulty` never does; each call is noted with whether it is alone.
    ladder.write_text(
        """#!/bin/sh
for name; do :; done
if flock --nonblock --shared target/load.lock true 2> /dev/null; then alone=no; else alone=yes; fi
echo "$name $alone" >> calls
[ "$name $alone" = "busy yes" ]
"""
    )
    ladder.chmod(0o755)
    (tmp_path / "target").mkdir()
    monkeypatch.setattr(service_tasks, "LADDER", ladder)
    monkeypatch.setattr(records, "divide", lambda ready: ([], ready))
    both = [Service(name, "", "stt", build=Build(absent, build="true")) for name in ("busy", "faulty")]
    for each in both:
        (tmp_path / "services" / each.name).mkdir()
    assert service_tasks.check_gateways(both) == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == "failed: contract of faulty"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(calls[:2]) == ["busy no", "faulty no"]
    assert calls[2:] == ["busy yes", "faulty yes"]


def test_what_was_built_ahead_is_not_built_again_but_needs_its_toolchain(
    absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(service_tasks.BUILT, "yes")
    assert service_tasks.built([gateway("a", absent)], named=False) == ([], 0)
    (tmp_path / "tools/toolchains" / absent).write_text("#!/bin/sh\necho KEY=value\n")
    ready, worst = service_tasks.built([gateway("a", absent)], named=False)
    assert ([each.name for each in ready], worst) == (["a"], 0)


def test_a_run_needs_the_services_of_its_options_else_of_its_plan_else_the_one_it_is_named_after() -> None:
    assert service_tasks.named_by("stt", ["--service", "rust-sync", "--repeat", "2"]) == ["rust-sync"]
    assert {"rust-axum", "rust-sync"} <= set(service_tasks.named_by("stt", []))
    assert service_tasks.named_by("rust-sync", []) == ["rust-sync"]


@pytest.mark.parametrize(
    ("words", "are_named"),
    [
        (["build"], False),
        (["build", "--foreign"], False),
        (["build", "rust-sync"], True),
        (["conformance", "rust-sync"], True),
        (["built", "rust-sync"], False),
        (["needed", "stt"], False),
        (["needed", "stt", "--service", "rust-sync"], True),
        (["needed", "rust-sync"], True),
    ],
)
def test_only_services_that_the_user_names_may_take_very_long(
    words: list[str], are_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["service_tasks.py", *words])
    assert service_tasks.names_services(service_tasks.arguments(), service_registry.load()) is are_named


def test_every_gateway_has_its_turn() -> None:
    services = [gateway(name) for name in "abcde"]
    seen = {each.name for number in range(5) for each in records.in_turn(services, number)}
    assert seen == set("abcde")


def test_code_from_elsewhere_is_an_input_of_a_record() -> None:
    services = service_registry.load()
    for name, folder in records.SHARED_SOURCES.items():
        assert services[name].is_gateway
        assert records.tracked([folder])


def test_a_record_of_other_inputs_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_registry, "ROOT", tmp_path)
    monkeypatch.setattr(records, "inputs", lambda _: "now")
    each = gateway("a")
    each.folder.mkdir(parents=True)
    assert records.stale(each) == "it has no record"
    (each.folder / records.NAME).write_text(json.dumps({"inputs": "before"}))
    assert records.stale(each) == "its record is of other inputs"
    (each.folder / records.NAME).write_text(json.dumps({"inputs": "now"}))
    assert records.stale(each) == ""


def test_inputs_change_with_the_gateway_s_exceptions() -> None:
    each = service_registry.load()["rust-sync"]
    other = Service(**{**vars(each), "exceptions": {"unmasked": "nothing"}})
    assert records.inputs(each) == records.inputs(each)
    assert records.inputs(each) != records.inputs(other)
