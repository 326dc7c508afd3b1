"""A report as files: report.html, report.md, report.json, tables/NAME.csv, figures/NAME.png and .svg."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightgc2n.data.files import new_file
from lightgc2n.errors import OutputError
from lightgc2n.reporting.document import Document
from lightgc2n.reporting.html import report_html
from lightgc2n.reporting.markdown import report_markdown
from lightgc2n.reporting.pictures import picture_files
from lightgc2n.reporting.tables import csv_text

NAME = re.compile(r"[\w.+-]+")


def write_report(document: Document, folder: Path) -> None:
    """Writes all files into `folder`; each appears whole, and replaces the one that is there."""
    _refuse_names(document)
    for name, content in _files(document):
        with new_file(folder / name, force=True) as temporary:
            temporary.write_bytes(content)


def _files(document: Document) -> Iterator[tuple[str, bytes]]:
    """The page comes last: where it is, all the rest is."""
    for section in document.sections:
        for table in section.tables:
            yield f"tables/{table.name}.csv", csv_text(table).encode()
        for figure in section.figures:
            for ending, content in picture_files(figure).items():
                yield f"figures/{figure.name}.{ending}", content
    yield "report.json", (json.dumps(_facts(document), indent=1, ensure_ascii=False) + "\n").encode()
    yield "report.md", report_markdown(document).encode()
    yield "report.html", report_html(document).encode()


def _facts(document: Document) -> dict[str, Any]:
    """What no table has: the first screen, the verdicts, and how it was made."""
    tables = {table.name: table.command for section in document.sections for table in section.tables}
    verdicts = [asdict(verdict) for verdict in document.verdicts]
    opening = asdict(document.opening) if document.opening else None
    made = {"commands": tables, "made": dict(document.made)}
    return {"title": document.title, "opening": opening, "verdicts": verdicts, **made}


def _refuse_names(document: Document) -> None:
    tables = [table.name for section in document.sections for table in section.tables]
    figures = [figure.name for section in document.sections for figure in section.figures]
    for names, what in ((tables, "table"), (figures, "figure")):
        for place, name in enumerate(names):
            if not NAME.fullmatch(name) or name.startswith(".") or name in names[:place]:
                raise OutputError(f"{what} {name!r}: expected a name for a file of its own. Call it otherwise.")
