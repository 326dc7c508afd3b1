"""A report as files: report.html, report.md, report.json, tables/NAME.csv, figures/NAME.png and .svg."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightgc2n.errors import OutputError
from lightgc2n.experiments.table import csv_text, markdown, markdown_command, markdown_text, plain_table, score_text
from lightgc2n.files.atomic_writes import new_file
from lightgc2n.files.folder_kinds import FolderKind, refuse_linked
from lightgc2n.paper.document import CALLED, Document, Figure, Opening, Scored, Section, Verdict
from lightgc2n.paper.drawing import panels_of, saved
from lightgc2n.paper.report_html import DEMO, report_html

FACTS = "report.json"
REPORT = FolderKind("report", FACTS, ("report.md", "report.html", "tables/*.csv", "figures/*.png", "figures/*.svg"))
NAME = re.compile(r"[\w.+-]+")


def write_report(document: Document, folder: Path) -> None:
    """Write all files to `folder`; each is written atomically and replaces an existing one."""
    _refuse_names(document)
    _refuse_foreign_report(folder, document)
    for name, content in _files(document):
        with new_file(folder / name, force=True) as temporary:
            temporary.write_bytes(content)


def _refuse_foreign_report(folder: Path, document: Document) -> None:
    """Raise an error when the report would replace a file in a folder without a report of ours, or follow a link."""
    refuse_linked(folder, REPORT)
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        facts = None
    if isinstance(facts, dict) and {"title", "verdicts", "commands", "made"} <= facts.keys():
        return
    tables = [f"tables/{table.name}.csv" for section in document.sections for table in section.tables]
    figures = [f"figures/{figure.name}" for section in document.sections for figure in section.figures]
    names = [
        FACTS,
        "report.md",
        "report.html",
        *tables,
        *(f"{name}.{end}" for name in figures for end in ("png", "svg")),
    ]
    taken = next((name for name in names if os.path.lexists(folder / name)), None)
    if taken is not None:
        raise OutputError(f"{folder / taken} is not part of a report of ours (no {FACTS}). Move it elsewhere.")


def _files(document: Document) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a report: its facts first, the page last, so that a page implies all others."""
    yield FACTS, (json.dumps(_facts(document), indent=1, ensure_ascii=False) + "\n").encode()
    for section in document.sections:
        for table in section.tables:
            yield f"tables/{table.name}.csv", csv_text(table).encode()
        for figure in section.figures:
            yield f"figures/{figure.name}.png", saved(panels_of(figure), figure.name, "png")
            yield f"figures/{figure.name}.svg", saved(panels_of(figure), figure.name, "svg")
    yield "report.md", report_markdown(document).encode()
    yield "report.html", report_html(document).encode()


def _facts(document: Document) -> dict[str, Any]:
    """The first screen, the verdicts, the command of each table, and how it was made."""
    tables = {table.name: table.command for section in document.sections for table in section.tables}
    verdicts = [asdict(verdict) for verdict in document.verdicts]
    opening = asdict(document.opening) if document.opening else None
    for standing in opening["standings"] if opening else ():
        standing["floor"] = standing["simple"]  # the name of this field in earlier versions
    made = {"commands": tables, "made": dict(document.made)}
    return {"title": document.title, "quick": document.quick, "opening": opening, "verdicts": verdicts, **made}


def _refuse_names(document: Document) -> None:
    tables = [table.name for section in document.sections for table in section.tables]
    figures = [figure.name for section in document.sections for figure in section.figures]
    for names, what in ((tables, "table"), (figures, "figure")):
        for place, name in enumerate(names):
            if not NAME.fullmatch(name) or name.startswith(".") or name in names[:place]:
                raise OutputError(f"{what} {name!r}: expected a unique name that is valid for a file. Rename it.")


def report_markdown(document: Document) -> str:
    """Render the report in Markdown: figures are linked, notes follow their table."""
    return "\n".join(_lines(document)).rstrip() + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield f"# {markdown_text(document.title)}\n"
    for sentence in document.summary:
        yield f"{markdown_text(sentence)}\n"
    if document.opening:
        yield from _opening(document.opening)
    if document.verdicts:
        twice = "judged by its own tables" if document.quick else "each judged twice"
        yield f"## {len(document.verdicts)} claims of the paper, {twice}\n"
        yield from _verdicts(document.verdicts, document.quick)
    for section in document.sections:
        yield from _section(section)
    yield "## How it was made\n"
    yield from markdown(plain_table("made", ("", ""), document.made, text_columns=2))


def _opening(opening: Opening) -> Iterator[str]:
    yield f"**{markdown_text(opening.finding)}**\n\n{markdown_text(opening.score)}\n"
    printed = any(one.printed is not None for one in opening.standings)
    columns = ["test", "tested", f"{CALLED} %", "place", "best simple baseline %", "best of all %"]
    columns += [f"{CALLED} in the paper %"] if printed else []
    rows = []
    for one in opening.standings:
        place = "–" if one.place is None else f"{one.place} of {one.methods}"
        cells = [one.test, one.how, score_text(one.own), place, _scored(one.simple), _scored(one.best)]
        rows.append([*cells, *([score_text(one.printed)] if printed else [])])
    yield from markdown(plain_table("standings", columns, rows, text_columns=2))
    yield f"{markdown_text(' '.join(opening.notes))}\n"


def _scored(one: Scored | None) -> str:
    if one is None:
        return "–"
    return f"{markdown_text(one.name)} {score_text(one.value)}{f' ({one.kind})' if one.kind == 'ours' else ''}"


def _verdicts(verdicts: tuple[Verdict, ...], quick: bool) -> Iterator[str]:
    rows = (
        (
            one.claim,
            one.place,
            f"**{one.theirs}**: {one.theirs_why}",
            DEMO if quick else f"**{one.ours}**: {one.ours_why}",
        )
        for one in verdicts
    )
    columns = ("claim", "", "in the paper's tables", "in our runs")
    yield from markdown(plain_table("verdicts", columns, rows, text_columns=4))


def _section(section: Section) -> Iterator[str]:
    yield f"## {markdown_text(section.title)}\n"
    for paragraph in section.text:
        yield f"{markdown_text(paragraph)}\n"
    for figure in section.figures:
        yield from _figure(figure)
    for table in section.tables:
        yield from markdown(table)


def _figure(figure: Figure) -> Iterator[str]:
    yield f"![{markdown_text(figure.title)}](figures/{figure.name}.png)\n"
    yield f"*{markdown_text(figure.title)}* {markdown_command(figure.command)}\n"
