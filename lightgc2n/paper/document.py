"""The contents of a report as plain values, all text unescaped, and the models that it is about."""

from dataclasses import dataclass
from typing import Literal

from lightgc2n.experiments.table import Table

Holding = Literal["holds", "does not hold", "cannot be told"]
MODEL = "lightgc2n"  # the paper's model in the zoo
CALLED = "LightGC²N"  # its name in text
OURS = "lightgc2n-plus"  # our model in the zoo; the names of its variants start with it


def is_model(name: str) -> bool:
    """Whether a row or series is the paper's model itself, not a variant of it."""
    return name.partition(" (")[0] in (MODEL, CALLED)


def is_ours(name: str) -> bool:
    """Whether a row or series is our model, or a variant of it."""
    return name == "ours" or name.startswith(OURS)


@dataclass(frozen=True)
class Series:
    """One line or set of bars."""

    name: str
    x: tuple[float | str, ...]  # text: categories
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: int | None = None  # the index of its colour, where panels must agree; none: its place in the panel


@dataclass(frozen=True)
class Figure:
    """A plot, or small multiples of plots."""

    name: str  # file name of PNG and SVG
    title: str  # what the plot shows
    kind: Literal["lines", "bars"]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    command: str
    panels: tuple["Figure", ...] = ()  # small multiples: then series is empty


@dataclass(frozen=True)
class Section:
    """One experiment: its text, tables and figures."""

    name: str  # "table1"
    title: str
    text: tuple[str, ...]  # paragraphs, plain text
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper, judged twice."""

    claim: str  # paraphrased
    place: str  # "RQ2, Table 1"
    theirs: Holding
    theirs_why: str
    ours: Holding
    ours_why: str  # with the decisive interval


@dataclass(frozen=True)
class Scored:
    """A method and its score."""

    name: str
    value: float  # in %
    kind: str = ""  # "simple", "ours", "model" for LightGC²N itself, or empty


@dataclass(frozen=True)
class Standing:
    """The result of LightGC²N in one test."""

    test: str  # the dataset
    how: str  # "honest", "as the paper tests"
    own: float | None  # LightGC²N's score in %; none where it was not run
    place: int | None
    methods: int  # among so many
    simple: Scored | None  # the best simple baseline
    best: Scored | None  # of all
    printed: float | None = None  # the paper's number for LightGC²N
    ranking: tuple[Scored, ...] = ()  # every method, best first


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
    summary: tuple[str, ...]  # two or three sentences for new readers
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    made: tuple[tuple[str, str], ...]  # how it was made: protocol, seeds, versions, checksums, commands, GPU seconds
    opening: Opening | None = None  # where Table 1 was run
    quick: bool = False  # a demo run: it is shown, and not judged
