"""The report as one HTML file that needs no network and no script."""

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from lightgc2n.errors import MissingExtraError
from lightgc2n.experiments.table import SIGNS, Cell, Table, footnotes, interval_of, key_of, score_text, signed, text_of
from lightgc2n.paper.document import CALLED, Document, Figure, Verdict
from lightgc2n.paper.drawing import panels_of, saved
from lightgc2n.paper.palette import COLOURS, LOOKS_LIKE

# Matplotlib's style sheet matches every element, so it would restyle the whole page.
LEFT_OUT = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
SVG_START = re.compile(r"<svg\b[^>]*?(viewBox=\"[^\"]*\")[^>]*>")
NAMED = re.compile(r'(\bid="|href="#|url\(#)')
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
HYPHENED = re.compile(r"(\b\w+(?:-\w+)+\b)")
PAGE = Path(__file__).parent / "page"
MARKS = {"holds": "✓", "does not hold": "✗", "cannot be told": "?"}
KINDS = {"holds": "holds", "does not hold": "fails", "cannot be told": "open"}
DEMO = "demo run"  # in place of a verdict: a quick run is not judged
KINDS_SAID = {"model": "the paper's model", "ours": "ours", "simple": "simple baseline"}
READING = (
    ("Holds", "every comparison that the claim makes clearly points its way."),
    ("Does not hold", "at least one clearly points the other way."),
    (
        "Typically",
        "a claim that says so has a rule of its own: three of four comparisons are enough, and it does not hold once "
        "more than one in four clearly points the other way.",
    ),
    ("Cannot be told", "numbers are missing, or the 95 % interval of a difference includes zero."),
    (
        "Our runs",
        "are judged by honest tests: the event to be predicted is in no training data. In the published protocol, the "
        "paper's way of testing, test windows are drawn at random and overlap training windows; its results are named "
        "where we ran it too.",
    ),
    (
        "Simple baselines",
        "are rules that only count, such as what is popular, what was watched last, or what follows what.",
    ),
    ("Accuracy", "is MRR@20, in %: 1/rank of the right item where it is among the first 20, else 0, averaged."),
)


def report_html(document: Document) -> str:
    """The whole page."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("jinja2", "report") from None

    environment = Environment(
        loader=FileSystemLoader(PAGE),
        autoescape=True,
        finalize=together,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        anchor=anchor,
        called=CALLED,
        demo=DEMO,
        footnotes=footnotes,
        interval_of=interval_of,
        kinds=KINDS,
        kinds_said=KINDS_SAID,
        marks=MARKS,
        numbers_of=numbers_of,
        plural=plural,
        score_text=score_text,
        signed=signed,
        signs=SIGNS,
        table_key=table_key,
        tally=tally,
        unbroken=unbroken,
        text_of=text_of,
    )
    pictures = {
        figure.name: list(zip(panels_of(figure), inline_pictures(figure), strict=True))
        for section in document.sections
        for figure in section.figures
    }
    return environment.get_template("report.html.jinja").render(
        document=document, pictures=pictures, reading=READING, style=style_sheet()
    )


def inline_pictures(figure: Figure) -> list[str]:
    """Each panel as an SVG element."""
    panels = panels_of(figure)
    names = [f"{figure.name}-{number}" for number in range(1, len(panels) + 1)]
    return [
        inline(saved([panel], name, "svg", before=panels[:place]).decode(), name)
        for place, (name, panel) in enumerate(zip(names, panels, strict=True))
    ]


def inline(svg: str, name: str) -> str:
    """Convert an SVG file to a part of a page: no prologue, unique ids, and the colours of the page's style sheet."""
    body = LEFT_OUT.sub("", svg[svg.index("<svg") :])
    body = SVG_START.sub(r'<svg \1 aria-hidden="true" focusable="false">', body, count=1)
    prefix = re.sub(r"\W+", "-", name)
    body = NAMED.sub(rf"\g<1>{prefix}-", body).replace("xlink:href", "href")
    return COLOUR.sub(lambda match: LOOKS_LIKE.get(match[0], match[0]), body).strip()


def style_sheet() -> str:
    """The style sheet: the colours of light and dark mode, then the rest; print is always light."""
    light, dark = ("".join(f"--{name}: {shades[place]}; " for name, shades in COLOURS.items()) for place in (0, 1))
    rest = (PAGE / "report.css").read_text(encoding="utf-8")
    return (
        f":root {{ color-scheme: light dark; {light}}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n{rest}"
    )


def numbers_of(panel: Figure) -> Table:
    """The numbers of a plot as a table."""
    places = list(dict.fromkeys(x for line in panel.series for x in line.x))
    values = {(x, line.name): y for line in panel.series for x, y in zip(line.x, line.y, strict=True)}
    rows = tuple((Cell(_plain(x)), *(_number(values.get((x, line.name))) for line in panel.series)) for x in places)
    columns = (panel.x_label, *(line.name for line in panel.series))
    return Table(panel.name, f"{panel.title}: the numbers, {panel.y_label}", columns, rows, panel.command)


def _number(value: float | None) -> Cell:
    return Cell("", mark="missing") if value is None else Cell(_plain(value), value)


def _plain(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def table_key(document: Document) -> str:
    """One legend of all signs in the tables of a report."""
    keys = (key_of(table).split(" · ") for section in document.sections for table in section.tables)
    return " · ".join(dict.fromkeys(part for key in keys for part in key if part))


def tally(verdicts: Sequence[Verdict], who: str) -> dict[str, int]:
    """Count the verdicts by their word, in the order of `MARKS`."""
    counts = Counter(getattr(verdict, who) for verdict in verdicts)
    return {word: counts[word] for word in MARKS}


def plural(word: str, count: int) -> str:
    """Return a verdict as the end of "3 ..."."""
    many = {"holds": "hold", "does not hold": "do not hold"}
    return word if count == 1 else many.get(word, word)


def together(value: object) -> object:
    """Text that never breaks a line between a number and its percent sign."""
    return value.replace(" %", "\N{NO-BREAK SPACE}%") if type(value) is str else value


def unbroken(text: str) -> str:
    """Text as HTML that never breaks a line at the hyphen of a name such as lightgc2n-plus."""
    return HYPHENED.sub(r'<span class="name">\1</span>', escape(str(together(text)), quote=False))


def anchor(name: str) -> str:
    """A name that is valid in a link."""
    return re.sub(r"[^\w-]+", "-", name)
