"""The report in Markdown, for places that show text: pictures are linked, notes stand below their table."""

from collections.abc import Iterator
from html import escape

from lightgc2n.reporting.document import Cell, Document, Figure, Opening, Scored, Section, Table, Verdict
from lightgc2n.reporting.subject import CALLED
from lightgc2n.reporting.tables import SIGNS, footnotes, interval_of, key_of, score_text, text_of


def report_markdown(document: Document) -> str:
    """The whole report."""
    return "\n".join(_lines(document)).rstrip() + "\n"


def table_markdown(table: Table) -> str:
    """A table with its notes."""
    return "\n".join(_table(table))


def _lines(document: Document) -> Iterator[str]:
    yield f"# {_text(document.title)}\n"
    for sentence in document.summary:
        yield f"{_text(sentence)}\n"
    if document.opening:
        yield from _opening(document.opening)
    if document.verdicts:
        yield f"## {len(document.verdicts)} claims of the paper, each judged twice\n"
        yield from _verdicts(document.verdicts)
    for section in document.sections:
        yield from _section(section)
    yield "## How it was made\n"
    yield "| | |\n|---|---|"
    for name, value in document.made:
        yield f"| {_text(name)} | {_text(value)} |"


def _opening(opening: Opening) -> Iterator[str]:
    yield f"**{_text(opening.finding)}**\n\n{_text(opening.score)}\n"
    printed = any(one.printed is not None for one in opening.standings)
    columns = ["test", "tested", f"{CALLED} %", "place", "best floor %", "best of all %"]
    columns += [f"{CALLED} in the paper %"] if printed else []
    yield "| " + " | ".join(columns) + " |"
    yield "|---|---|" + "---:|" * (len(columns) - 2)
    for one in opening.standings:
        place = "–" if one.place is None else f"{one.place} of {one.methods}"
        cells = [_text(one.test), _text(one.how), score_text(one.own), place, _scored(one.floor), _scored(one.best)]
        yield "| " + " | ".join([*cells, *([score_text(one.printed)] if printed else [])]) + " |"
    yield f"\n{_text(' '.join(opening.notes))}\n"


def _scored(one: Scored | None) -> str:
    if one is None:
        return "–"
    return f"{_text(one.name)} {score_text(one.value)}{f' ({one.kind})' if one.kind == 'ours' else ''}"


def _verdicts(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    yield "| claim | | in the paper's tables | in our runs |\n|---|---|---|---|"
    for verdict in verdicts:
        theirs = f"**{verdict.theirs}**: {_text(verdict.theirs_why)}"
        ours = f"**{verdict.ours}**: {_text(verdict.ours_why)}"
        yield f"| {_text(verdict.claim)} | {_text(verdict.place)} | {theirs} | {ours} |"
    yield ""


def _section(section: Section) -> Iterator[str]:
    yield f"## {_text(section.title)}\n"
    for paragraph in section.text:
        yield f"{_text(paragraph)}\n"
    for figure in section.figures:
        yield from _figure(figure)
    for table in section.tables:
        yield from _table(table)


def _figure(figure: Figure) -> Iterator[str]:
    yield f"![{_text(figure.title)}](figures/{figure.name}.png)\n"
    yield f"*{_text(figure.title)}* {_command(figure.command)}\n"


def _table(table: Table) -> Iterator[str]:
    numbers = footnotes(table)
    yield f"**{_text(table.caption)}**\n"
    yield "| " + " | ".join(map(_text, table.columns)) + " |"
    yield "|---" + "|---:" * (len(table.columns) - 1) + "|"
    for row in table.rows:
        yield "| " + " | ".join(_cell(cell, numbers) for cell in row) + " |"
    notes = [*filter(None, [key_of(table).replace("small:", "in brackets:")]), *table.notes]
    for note in [*notes, *(f"{number}: {note}" for note, number in numbers.items())]:
        yield f"\n{_text(note)}"
    yield f"\n{_command(table.command)}\n"


def _cell(cell: Cell, numbers: dict[str, int]) -> str:
    text = _text(text_of(cell))
    text = f"**{text}**" if cell.mark == "best" else text
    sign = SIGNS.get(cell.mark, "")
    note = f"<sup>{numbers[cell.note]}</sup>" if cell.note else ""
    between = interval_of(cell)
    return f"{text}{f' {sign}' if sign else ''}{note}{f' ({between})' if between else ''}"


def _command(command: str) -> str:
    return f"Made by `{command.replace('`', '')}`" if command else ""


def _text(text: str) -> str:
    """Text that can be neither a tag nor the end of a cell."""
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
