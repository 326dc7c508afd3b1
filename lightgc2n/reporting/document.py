"""What a report says, before anything is drawn or written: plain values, all text unescaped."""

from dataclasses import dataclass
from typing import Literal

Holding = Literal["holds", "does not hold", "cannot be told"]


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str  # as printed: "16.28"
    value: float | None = None  # for CSV and for marks
    low: float | None = None  # 95 % interval, in the unit of value
    high: float | None = None
    mark: str = ""  # "best", "impossible", "missing" or nothing; shown by more than colour
    note: str = ""  # shown on hover and as footnote


@dataclass(frozen=True)
class Table:
    """A table with what makes it again."""

    name: str  # file name of its CSV: "table1-E"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    command: str
    notes: tuple[str, ...] = ()  # below the table: protocol, seeds, GPU seconds, stamps


@dataclass(frozen=True)
class Series:
    """One line, set of bars or cloud of points."""

    name: str
    x: tuple[float | str, ...]  # words: categories
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: int | None = None  # the place of its colour, where panels must agree; none: as it stands in the panel


@dataclass(frozen=True)
class Figure:
    """A plot, or small multiples of plots."""

    name: str  # file name of PNG and SVG
    title: str  # what one should see, as a sentence
    kind: Literal["lines", "bars", "points"]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    command: str
    log_x: bool = False
    log_y: bool = False
    panels: tuple["Figure", ...] = ()  # small multiples: then series is empty


@dataclass(frozen=True)
class Section:
    """One experiment: what it asks and finds."""

    name: str  # "table1"
    title: str
    text: tuple[str, ...]  # paragraphs, plain text
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper, judged twice."""

    claim: str  # in our words
    place: str  # "RQ2, Table 1"
    theirs: Holding
    theirs_why: str
    ours: Holding
    ours_why: str  # with the interval that says so


@dataclass(frozen=True)
class Scored:
    """A method and what it scores."""

    name: str
    value: float  # in %
    kind: str = ""  # "floor", "ours" or nothing


@dataclass(frozen=True)
class Standing:
    """How LightGC²N stands in one test."""

    test: str  # the dataset
    how: str  # "honest", "as the paper tests"
    own: float | None  # LightGC²N's score in %; none where it was not run
    place: int | None
    methods: int  # among so many
    floor: Scored | None  # the best one
    best: Scored | None  # of all
    printed: float | None = None  # what the paper prints for LightGC²N


@dataclass(frozen=True)
class Opening:
    """The first screen, below the summary."""

    finding: str  # one sentence
    score: str  # what the numbers mean
    standings: tuple[Standing, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    summary: tuple[str, ...]  # two or three sentences for somebody who never saw the project
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    made: tuple[tuple[str, str], ...]  # how it was made: protocol, seeds, versions, checksums, commands, GPU seconds
    opening: Opening | None = None  # where Table 1 was run
