"""Writes the list of speech-to-text gateways from the registry into README.md, between its markers."""

from __future__ import annotations

from service_registry import ROOT, Service, gateways, load

README = ROOT / "README.md"
BEGIN, END = "<!-- BEGIN: gateways -->\n", "<!-- END: gateways -->"
HEAD = "| gateway | made of | of the contract its library keeps otherwise |\n| --- | --- | --- |\n"


def row(service: Service) -> str:
    folder = service.folder.relative_to(ROOT)
    made_of = service.description.removeprefix("Speech-to-text gateway: ")
    exceptions = ", ".join(f"`{case}`" for case in service.exceptions) or "nothing"
    return f"| [{service.name}]({folder}/README.md) | {made_of} | {exceptions} |\n"


def main() -> None:
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{HEAD}{''.join(map(row, gateways(load())))}\n{END}{after}")


if __name__ == "__main__":
    main()
