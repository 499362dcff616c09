"""Writes the list of speech-to-text gateways of the registry into docs/RESULTS.md, and their names into README.md."""

from __future__ import annotations

from readme_highlights import replaced
from service_registry import ROOT, Service, gateways, load

RESULTS, README = ROOT / "docs/RESULTS.md", ROOT / "README.md"
HEAD = "| gateway | made of | of the contract its library keeps otherwise |\n| --- | --- | --- |\n"


def main() -> None:
    listed = gateways(load())
    RESULTS.write_text(replaced(RESULTS.read_text(), "gateways", HEAD + "".join(map(row, listed))))
    README.write_text(replaced(README.read_text(), "gateway-names", names(listed)))


def row(service: Service) -> str:
    made_of = service.description.removeprefix("Speech-to-text gateway: ")
    exceptions = ", ".join(f"`{case}`" for case in service.exceptions) or "nothing"
    return f"| [{service.name}](../{folder(service)}/README.md) | {made_of} | {exceptions} |\n"


def names(services: list[Service]) -> str:
    return ",\n".join(f"[{each.name}]({folder(each)}/README.md)" for each in services) + ".\n"


def folder(service: Service) -> str:
    return str(service.folder.relative_to(ROOT))


if __name__ == "__main__":
    main()
