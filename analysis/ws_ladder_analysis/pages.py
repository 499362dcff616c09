"""Renders the templates of reports (`templates/`) as HTML or Markdown, and writes files atomically."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from . import drawing, wording
from .cells import Table


def render(template: str, **values: object) -> str:
    """Renders a template with these values. Text is escaped in `*.html.j2`; charts are inserted unchanged."""
    html = template.endswith(".html.j2")
    environment = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["svg"] = Markup
    environment.filters["cell"] = _markdown_cell
    page = environment.get_template(template)
    twins = [(light, drawing.DARK[name]) for name, light in drawing.COLOURS.items()]
    text = page.render(twins=twins, wording=wording, **values)
    return text if html else wording.plain(re.sub(r"\n{3,}", "\n\n", text))


def markdown(table: Table) -> str:
    """A table with its caption and notes as Markdown, as in a report."""
    lines = render("table.md.j2", one=table).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip() + "\n"


def write_atomically(file: Path, content: bytes) -> None:
    """Replaces a file in one step: a reader sees the old content or the new, never a part of it."""
    temporary = file.with_name(f".{file.name}.part")
    temporary.write_bytes(content)
    temporary.replace(file)


def _markdown_cell(text: str) -> str:
    """Escapes text so that it can't break a Markdown table."""
    return re.sub(r"\s*\n\s*", " ", text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
