"""The report as one HTML file that needs no network and no script."""

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from lightgc2n.errors import MissingExtraError
from lightgc2n.reporting.document import Document, Verdict
from lightgc2n.reporting.drawing import panels_of
from lightgc2n.reporting.palette import COLOURS
from lightgc2n.reporting.pictures import inline_pictures
from lightgc2n.reporting.subject import CALLED
from lightgc2n.reporting.tables import SIGNS, footnotes, interval_of, key_of, numbers_of, score_text, signed, text_of

HYPHENED = re.compile(r"(\b\w+(?:-\w+)+\b)")
PAGE = Path(__file__).parent / "page"
MARKS = {"holds": "✓", "does not hold": "✗", "cannot be told": "?"}
KINDS = {"holds": "holds", "does not hold": "fails", "cannot be told": "open"}
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
        "paper's way of testing, test windows are drawn at random and overlap training windows; where we ran it too, "
        "it is named.",
    ),
    ("Floors", "are rules that only count, such as what is popular, what was had last, or what follows what."),
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
        footnotes=footnotes,
        interval_of=interval_of,
        key_of=key_of,
        kinds=KINDS,
        marks=MARKS,
        numbers_of=numbers_of,
        plural=plural,
        score_text=score_text,
        signed=signed,
        signs=SIGNS,
        tally=tally,
        unbroken=unbroken,
        text_of=text_of,
    )
    drawn = {
        figure.name: list(zip(panels_of(figure), inline_pictures(figure), strict=True))
        for section in document.sections
        for figure in section.figures
    }
    return environment.get_template("report.html.jinja").render(
        document=document, drawn=drawn, reading=READING, style=style_sheet()
    )


def style_sheet() -> str:
    """The colours of light and dark paper, then the rest; print is always on light paper."""
    light, dark = ("".join(f"--{name}: {shades[place]}; " for name, shades in COLOURS.items()) for place in (0, 1))
    rest = (PAGE / "report.css").read_text(encoding="utf-8")
    return (
        f":root {{ color-scheme: light dark; {light}}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n{rest}"
    )


def tally(verdicts: Sequence[Verdict], who: str) -> dict[str, int]:
    """How often each word is said, in the order of `MARKS`."""
    counts = Counter(getattr(verdict, who) for verdict in verdicts)
    return {word: counts[word] for word in MARKS}


def plural(word: str, count: int) -> str:
    """A verdict as the end of "3 ..."."""
    many = {"holds": "hold", "does not hold": "do not hold"}
    return word if count == 1 else many.get(word, word)


def together(value: object) -> object:
    """Text whose numbers are not parted from their percent sign at the end of a line."""
    return value.replace(" %", "\N{NO-BREAK SPACE}%") if type(value) is str else value


def unbroken(text: str) -> str:
    """Text as HTML in which no name such as lightgc2n-plus is parted at its hyphen; its words stay as they are."""
    return HYPHENED.sub(r'<span class="name">\1</span>', escape(str(together(text)), quote=False))


def anchor(name: str) -> str:
    """A name that can stand in a link."""
    return re.sub(r"[^\w-]+", "-", name)
