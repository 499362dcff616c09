"""Each preset against a server of another project, and docs/YOUR-SERVICE.md as a reader would follow it.

The servers come from npm (presets/servers). Presets without one here are tested against frames of their specification
(loadgen/ws-bench/tests/presets.rs).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LADDER = ROOT / "target/release/ladder"
SERVERS = ROOT / "presets/servers"
# Plans here are about counts, not time: a busy machine may be late.
LENIENT = "{ delay_p99_ms: 1000, worker_cpu_share: 1, start_skew_ms: 1000, send_share: 0.5 }"


class Server(NamedTuple):
    """A preset with its server: the path of its endpoint, and the workloads that are climbed."""

    preset: str
    path: str
    workloads: tuple[str, ...]


ANSWERED = ("connection-storm", "idle", "request-reply")
PUBLISHED = (*ANSWERED, "fanout")
TESTED = (
    Server("echo", "/", (*ANSWERED, "uplink")),
    Server("json-rpc", "/", ANSWERED),
    Server("socket.io", "/socket.io/?EIO=4&transport=websocket", PUBLISHED),
    Server("graphql-transport-ws", "/graphql", (*ANSWERED, "stream")),
    Server("mqtt-3.1.1", "/mqtt", PUBLISHED),
)


def plan(server: Server) -> str:
    """A plan that climbs each workload for a second."""
    ladders = "".join(
        f"- workload: {workload}\n  tiers: [10]\n  load: {load_of(workload)}\n" for workload in server.workloads
    )
    return f"""schema: 3
name: preset
why: the preset speaks to a server of another project
seed: 1
services: [server]
warmup_seconds: 0
window_seconds: 1
drain_seconds: 3
validity: {LENIENT}
websocket:
  extends: {server.preset}
  services:
    server:
      url: "ws://127.0.0.1:{{port}}{server.path}"
      folder: presets/servers
      command: [node, {server.preset}.mjs, "{{port}}"]
      version_command: [node, --version]
ladders:
{ladders}"""


def load_of(workload: str) -> str:
    if workload == "churn":
        return "{ model: churn, rate_per_second: 200, life_seconds: 0.5 }"
    return "{ model: closed }" if workload in ("connection-storm", "idle") else "{ model: open, rate_per_second: 200 }"


def run(arguments: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def results(bundles: Path) -> dict[str, Any]:
    """The results of all trials below a folder, by workload and variant."""
    files = sorted(bundles.rglob("result.json"))
    return {"/".join(file.parts[-4:-2]): json.loads(file.read_text()) for file in files}


def climb(plan: Path, bundles: Path) -> subprocess.CompletedProcess[str]:
    """Climbs a plan, again if a busy machine let the counters be read too late, which no plan can allow."""
    for _ in range(5):
        shutil.rmtree(bundles, ignore_errors=True)
        done = run([LADDER, "run", plan, "--no-rest", "--no-report", "--results", bundles], ROOT)
        reasons = [result["validity"].get("reasons", []) for result in results(bundles).values()]
        if not any({reason["kind"] for reason in one} == {"reading_late"} for one in reasons):
            break
    return done


@pytest.mark.parametrize("server", TESTED, ids=lambda server: server.preset)
def test_a_preset_speaks_to_a_server_of_another_project(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(plan(server))
    done = climb(file, tmp_path / "results")
    found = results(tmp_path / "results")
    output = done.stdout + done.stderr
    assert set(found) == {f"{workload}/standard" for workload in server.workloads}, output
    for name, result in found.items():
        counts = result["messages"]
        assert result["validity"]["state"] == "valid", f"{name}: {result['validity']}\n{output}"
        assert result["connections"]["failed"] == {}, f"{name}\n{output}"
        assert result["connections"]["closed_early"] == {}, f"{name}\n{output}"
        wrong = {key: counts[key] for key in ("wrong", "lost", "duplicates") if counts[key]}
        assert wrong == {}, f"{name}: {counts}\n{output}"
        assert counts["dropped"] == {}, f"{name}: {counts}\n{output}"
        if name.split("/")[0] in ("request-reply", "stream"):
            assert counts["delivered"] == counts["sent"] >= 150, f"{name}: {counts}\n{output}"
        if name == "fanout/standard":
            assert counts["delivered"] >= 9 * 150, f"{name}: {counts}\n{output}"


BINARY_EVENTS = """  messages:
    - text: '451-{{sequence}}["message",{"_placeholder":true,"num":0}]'
      attachments: [[{ hex: ff }, { text: '{{payload}}' }]]
"""
"""As docs/PRESETS.md has them."""


def test_a_binary_event_of_socket_io_is_one_message_of_two_frames(tmp_path: Path) -> None:
    assert BINARY_EVENTS in (ROOT / "docs/PRESETS.md").read_text()
    server = Server("socket.io", "/socket.io/?EIO=4&transport=websocket", ("request-reply",))
    extends = "  extends: socket.io\n"
    file = tmp_path / "plan.yaml"
    file.write_text(plan(server).replace(extends, extends + BINARY_EVENTS))
    done = climb(file, tmp_path / "results")
    output = done.stdout + done.stderr
    (result,) = results(tmp_path / "results").values()
    counts = result["messages"]
    assert result["validity"]["state"] == "valid", output
    assert result["connections"]["closed_early"] == {}, output
    assert counts["delivered"] == counts["sent"] >= 150, f"{counts}\n{output}"
    # The attachment comes back, too.
    assert counts["bytes_received"] > counts["delivered"] * 175, counts


COMPRESSED = {
    "{ compress_sent: true }": (),
    "{ compress_sent: false }": (),
    "{ compress_sent: true, server_no_context_takeover: true, client_no_context_takeover: true }": (),
    "{ compress_sent: true, server_max_window_bits: 10, client_max_window_bits: 9 }": (),
    "{ compress_sent: true, client_max_window_bits: 14 }": ("clientMaxWindowBits=12", "clientNoContextTakeover"),
}
"""`connect.deflate` of a plan, and the settings of the server."""
AGREED = (
    {"server_max_window_bits=15", "client_max_window_bits=15"},
    {"server_max_window_bits=15", "client_max_window_bits=15"},
    {
        "server_no_context_takeover",
        "client_no_context_takeover",
        "server_max_window_bits=15",
        "client_max_window_bits=15",
    },
    {"server_max_window_bits=10", "client_max_window_bits=9"},
    {"client_no_context_takeover", "server_max_window_bits=15", "client_max_window_bits=12"},
)
"""What both have to agree on, in the order of `COMPRESSED`."""


@pytest.mark.parametrize("case", range(len(COMPRESSED)), ids=list(COMPRESSED))
def test_messages_are_compressed_as_a_server_of_another_project_agrees_to(case: int, tmp_path: Path) -> None:
    (deflate, settings), agreed = list(COMPRESSED.items())[case], AGREED[case]
    server = Server("echo", "/", ("request-reply", "churn"))
    text = (
        plan(server)
        .replace("echo.mjs", "echo-deflate.mjs")
        .replace('{port}"]', '{port}"' + "".join(f", {one}" for one in settings) + "]")
    )
    file = tmp_path / "plan.yaml"
    file.write_text(text.replace("  extends: echo\n", f"  extends: echo\n  connect: {{ deflate: {deflate} }}\n"))
    done = climb(file, tmp_path / "results")
    output = done.stdout + done.stderr
    found = results(tmp_path / "results")
    assert set(found) == {"request-reply/standard", "churn/standard"}, output
    for name, result in found.items():
        counts = result["messages"]
        assert result["validity"]["state"] == "valid", f"{name}: {result['validity']}\n{output}"
        assert counts["delivered"] == counts["sent"] >= 150, f"{name}: {counts}\n{output}"
        (extensions,) = (worker["extensions"] for worker in result["workers"])
        (extension,) = extensions
        assert set(extension.split("; ")) == {"permessage-deflate", *agreed}, extensions
        assert extensions[extension] >= result["connections"]["open"], f"{name}: {extensions}"
    saved = found["request-reply/standard"]["messages"]
    # The texts are random characters, of which three quarters are left; with takeover the rest of a message is that of
    # the ones before it.
    assert saved["bytes_received"] < saved["delivered"] * (175 if "takeover" not in deflate else 230), saved


def test_every_preset_has_a_server_or_frames_of_its_specification() -> None:
    presets = {file.stem for file in (ROOT / "presets").glob("*.yaml")}
    golden = {file.stem for file in (ROOT / "loadgen/ws-bench/tests/golden").iterdir()}
    tested = {server.preset for server in TESTED}
    assert presets == tested | golden, presets ^ (tested | golden)


@contextmanager
def started(command: list[str], port: int) -> Iterator[None]:
    """A server that runs until the block ends."""
    with subprocess.Popen(command, cwd=SERVERS) as process:
        try:
            while process.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.01)
            yield
        finally:
            process.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def document(start: str) -> str:
    """The block of docs/YOUR-SERVICE.md that begins so."""
    text = (ROOT / "docs/YOUR-SERVICE.md").read_text()
    blocks = re.findall(r"^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if block.startswith(start))
    return str(block)


@contextmanager
def program(name: str) -> Iterator[Path]:
    """A program of the document, beside the packages that it imports."""
    file = SERVERS / f"{name}-{os.getpid()}.mjs"
    file.write_text(document(f"// {name}.mjs"))
    yield file
    file.unlink()


@pytest.fixture
def chat() -> Iterator[Path]:
    """The chat of the document."""
    with program("chat") as file:
        yield file


def plan_for(start: str, service: str, file: Path) -> str:
    """The plan of the document that begins so, with the program of its service in `file`."""
    plan = document(start).replace(f"{service}.mjs", file.name)
    return plan.replace(f"    {service}:\n", f"    {service}:\n      folder: {SERVERS.relative_to(ROOT)}\n")


def test_a_first_look_measures_the_chat_of_the_document(chat: Path, tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "try.yaml"
    with started(["node", chat.name, str(port)], port):
        url = f"ws://127.0.0.1:{port}/socket.io/?EIO=4&transport=websocket"
        done = run([LADDER, "try", url, "--plan", file, "--results", tmp_path / "results", "--no-rest"], ROOT)
    output = done.stdout + done.stderr
    assert "  answers socket.io, and its connections subscribe\n" in output, output
    assert 'extends: "socket.io"' in file.read_text()
    found = results(tmp_path / "results")
    assert found["request-reply/open"]["messages"]["delivered"] > 1500, output
    assert found["fanout/standard"]["messages"]["delivered"] > 49 * 300, output
    assert found["fanout/standard"]["messages"]["lost"] == 0, output
    assert list((tmp_path / "results").rglob("report.html")), output


def test_the_plan_of_the_document_climbs_and_searches(chat: Path, tmp_path: Path) -> None:
    text = plan_for("schema:", "chat", chat)
    shorter = [
        ("repeats: 5", "repeats: 2"),
        ("warmup_seconds: 2", "warmup_seconds: 0.2"),
        ("window_seconds: 10", "window_seconds: 1"),
    ]
    for of_document, here in shorter:
        assert of_document in text, text
        text = text.replace(of_document, here)
    file = tmp_path / "chat.yaml"
    file.write_text(f"{text}validity: {LENIENT}\n")
    checked = run([LADDER, "plan", "check", file], ROOT)
    assert checked.returncode == 0, checked.stderr
    done = climb(file, tmp_path / "results")
    (result,) = results(tmp_path / "results").values()
    assert result["messages"]["delivered"] + result["messages"]["late"] > 1000, done.stdout + done.stderr


@pytest.fixture
def sensors() -> Iterator[Path]:
    """The service of the document that counts for Prometheus."""
    with program("sensors") as file:
        yield file


def test_the_counters_of_the_document_witness_an_uplink(sensors: Path, tmp_path: Path) -> None:
    text = plan_for("name: sensors", "sensors", sensors).replace("window_seconds: 5", "window_seconds: 1")
    file = tmp_path / "sensors.yaml"
    file.write_text(f"{text}validity: {LENIENT}\n")
    done = climb(file, tmp_path / "results")
    (result,) = results(tmp_path / "results").values()
    output = done.stdout + done.stderr
    assert result["validity"]["state"] == "valid", output
    assert (result["witness"], result["messages"]["lost"]) == ("application", 0), output
    assert result["messages"]["delivered"] == result["messages"]["sent"] > 3000, output
    assert result["figures"]["delivered_per_second"] > 1000, output


def test_a_public_host_needs_its_name(tmp_path: Path) -> None:
    done = run([LADDER, "try", "ws://192.0.2.1:80/", "--plan", tmp_path / "try.yaml"], ROOT)
    assert done.returncode == 2
    assert "--i-may-load-this-host 192.0.2.1" in done.stderr
    assert not (tmp_path / "try.yaml").exists()
