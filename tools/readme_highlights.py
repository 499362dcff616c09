"""Writes the rows that say most into README.md, between its markers, from the tables of docs/RESULTS.md.

Usage: readme_highlights.py
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE_ROWS = ("dict, 64", "batch, 64")
FIRST_RUN_ROWS = ("connection-storm", "ping-latency · open", "throughput · batch")
FIRST_RUN_COLUMNS = ("ladder", "connections", "carries", "latency", "verdict", "bound by", "witness")
GATEWAY_COLUMNS = (
    "gateway",
    "CPU per frame",
    "relative to rust-axum-plain",
    "newest p95",
    "memory",
    "start-up",
    "lines of code",
)


def main() -> None:
    results = (ROOT / "docs/RESULTS.md").read_text()
    readme = (ROOT / "README.md").read_text()
    readme = replaced(readme, "first-run", first_run(between(results, "results")))
    readme = replaced(readme, "engine", engine(between(results, "comparison")))
    readme = replaced(readme, "gateways", gateways(between(results, "sessions")))
    (ROOT / "README.md").write_text(readme)


def first_run(block: str) -> str:
    """Some ladders of the overview, with the columns that say most."""
    origin, [(head, rule, *rows)] = parts(block)
    ladder = cells(head).index("ladder")
    kept = [row for row in rows if any(f"({name})" in cells(row)[ladder] for name in FIRST_RUN_ROWS)]
    if len(kept) != len(FIRST_RUN_ROWS):
        raise SystemExit(f"docs/RESULTS.md has no row for each of {', '.join(FIRST_RUN_ROWS)}")
    columns = [cells(head).index(name) for name in FIRST_RUN_COLUMNS]
    lines = [line([cells(row)[column] for column in columns]) for row in (head, rule, *kept)]
    return "\n".join([origin, "", *lines, ""])


def engine(block: str) -> str:
    """The engine beside the reference at the most messages per write."""
    origin, [(head, rule, *rows)] = parts(block)
    kept = [row for row in rows if cells(row)[0] in ENGINE_ROWS]
    if len(kept) != len(ENGINE_ROWS):
        raise SystemExit(f"docs/RESULTS.md has no row for each of {', '.join(ENGINE_ROWS)}")
    return "\n".join([origin, "", head, rule, *kept, ""])


def gateways(block: str) -> str:
    """What a frame costs the gateways at the highest load of all."""
    origin, tables = parts(block)
    head, rule, *rows = tables[-1]
    columns = [cells(head).index(name) for name in GATEWAY_COLUMNS]
    lines = [line([cells(row)[column] for column in columns]) for row in (head, rule, *rows)]
    caption = next(text for text in reversed(block.splitlines()) if text.startswith("**"))
    return "\n".join([origin, "", caption, "", *lines, ""])


def parts(block: str) -> tuple[str, list[list[str]]]:
    """What stands above a block's tables, and the lines of each of them."""
    tables: list[list[str]] = []
    before = ""
    for text in block.strip().splitlines():
        if not text.startswith("|"):
            before = text
            continue
        if not before.startswith("|"):
            tables.append([])
        tables[-1].append(text)
        before = text
    return block.strip().split("\n\n", 1)[0], tables


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def line(row: list[str]) -> str:
    return f"| {' | '.join(row)} |"


def between(page: str, part: str) -> str:
    """What stands between the markers of a part."""
    return page.split(begin(part), 1)[1].split(end(part), 1)[0]


def replaced(page: str, part: str, text: str) -> str:
    """A page with another text between the markers of a part."""
    head, rest = page.split(begin(part), 1)
    return f"{head}{begin(part)}\n{text}\n{end(part)}{rest.split(end(part), 1)[1]}"


def begin(part: str) -> str:
    return f"<!-- BEGIN: {part} -->\n"


def end(part: str) -> str:
    return f"<!-- END: {part} -->"


if __name__ == "__main__":
    main()
