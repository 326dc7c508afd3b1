"""The schema of a bundle: JSON fields and safetensors tables, and the checks of what was read against them.

Nothing else is read. A length that is given as a name is the same wherever the name occurs. Each check raises a
`DataError` that names the file, the field, what was expected and what the file holds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from lightgc2n.errors import DataError, option
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.count_people import FEATURES, OF_EVIDENCE, WITHOUT_HABITS
from lightgc2n.people.finder import COUNTING, GROUP, KINDS, TOGETHER, TYPES
from lightgc2n.recommending.queries import EARLIEST, LATEST

EXPORT = option("lightgc2n export RUN --out BUNDLE", "lightgc2n.load(RUN).export(BUNDLE)")
EXPORT_AGAIN = f"Make it again with: {EXPORT}."
SHOWN = 60  # characters of a value that a message shows
FLOATS, COUNTS, BYTES = ("F16", "F32", "F64"), ("U8", "U16", "U32", "U64"), ("U8",)  # as safetensors names them
MOST_LEVELS = 16  # nesting levels of JSON that is only displayed
LARGEST = 1e9  # far above any learned number


class Field(ABC):
    """A rule for a JSON value."""

    @abstractmethod
    def check(self, value: Any, where: str) -> None:
        """Raise an error if the value is not valid."""


@dataclass(frozen=True)
class Whole(Field):
    """A whole number within bounds."""

    low: int
    high: int

    def check(self, value: Any, where: str) -> None:
        need(type(value) is int and self.low <= value <= self.high, where, f"{self}", value)

    def __str__(self) -> str:
        return f"a whole number from {self.low:,} to {self.high:,}"


@dataclass(frozen=True)
class Number(Field):
    """A finite number within bounds."""

    low: int | float = -LARGEST
    high: int | float = LARGEST

    def check(self, value: Any, where: str) -> None:
        number = type(value) in (int, float) and self.low <= value <= self.high
        need(number, where, f"a number from {self.low:g} to {self.high:g}", value)


@dataclass(frozen=True)
class Text(Field):
    """Text that UTF-8 can encode."""

    shortest: int = 1
    longest: int = 512

    def check(self, value: Any, where: str) -> None:
        need(
            isinstance(value, str) and self.shortest <= len(value) <= self.longest and _is_valid_utf8(value),
            where,
            f"text of {self.shortest} to {self.longest:,} letters",
            value,
        )


@dataclass(frozen=True)
class Flag(Field):
    """True or false."""

    def check(self, value: Any, where: str) -> None:
        need(isinstance(value, bool), where, "true or false", value)


@dataclass(frozen=True)
class OrNull(Field):
    """Null, or a value of another kind."""

    field: Field

    def check(self, value: Any, where: str) -> None:
        if value is not None:
            self.field.check(value, where)


@dataclass(frozen=True)
class Shown(Field):
    """An object that is only displayed: any JSON that can be serialized again."""

    def check(self, value: Any, where: str) -> None:
        need(isinstance(value, dict), where, "an object", value)
        _check_shown(value, where, MOST_LEVELS)


@dataclass(frozen=True)
class ListOf(Field):
    """A list with a least length."""

    field: Field
    at_least: int = 0

    def check(self, value: Any, where: str) -> None:
        need(
            isinstance(value, list) and len(value) >= self.at_least, where, f"a list of {self.at_least} or more", value
        )
        for place, inner in enumerate(value):
            self.field.check(inner, f"{where}[{place}]")


@dataclass(frozen=True)
class Fields(Field):
    """An object with these fields; others are ignored."""

    needed: Mapping[str, Field]
    optional: Mapping[str, Field]

    def check(self, value: Any, where: str) -> None:
        need(isinstance(value, dict), where, "an object", value)
        inside = where if where.endswith(": ") else f"{where}."
        for name in self.needed:
            need(name in value, f"{inside}{name}", "a value", "nothing")
        for name, field in {**self.needed, **self.optional}.items():
            if name in value:
                field.check(value[name], f"{inside}{name}")


@dataclass(frozen=True)
class Table:
    """An array of a safetensors file.

    Args:
        kinds: the types it may have, as safetensors names them.
        shape: lengths, or names each of which stands for the same length in every table; None is any shape.
    """

    kinds: tuple[str, ...]
    shape: tuple[int | str, ...] | None
    low: int | float = -LARGEST
    high: int | float = LARGEST
    optional: bool = False

    def check_facts(self, kind: str, shape: Iterable[int], lengths: dict[str, int], where: str) -> None:
        """Check type and shape before the array is read; a name without a length gets it here."""
        actual = tuple(shape)
        need(kind in self.kinds, where, f"type {' or '.join(self.kinds)}", kind)
        if self.shape is None:
            return
        if len(actual) == len(self.shape):
            for name, length in zip(self.shape, actual, strict=True):
                lengths.setdefault(str(name), length)
        wanted = tuple(one if isinstance(one, int) else lengths.get(one, one) for one in self.shape)
        need(actual == wanted, where, f"shape {list(wanted)}", list(actual))

    def check_values(self, array: npt.NDArray[Any], where: str) -> None:
        """Check the bounds without copying the array."""
        if array.size:
            low, high = array.min().item(), array.max().item()  # both are NaN if the array has a NaN
            inside = bool(self.low <= low and high <= self.high)
            need(inside, where, f"numbers from {self.low:g} to {self.high:g}", f"{low:g} to {high:g}")


def need(holds: bool, where: str, expected: str, actual: Any) -> None:
    """Raise an error if the condition is false."""
    if not holds:
        shown = actual if isinstance(actual, str) and actual == "nothing" else repr(actual)
        raise DataError(f"{where}: expected {expected}, found {_shortened(shown)}. {EXPORT_AGAIN}")


def _shortened(text: str) -> str:
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return plain if len(plain) <= SHOWN else f"{plain[:SHOWN]}…"


def _check_shown(value: Any, where: str, deepest: int) -> None:
    if isinstance(value, dict | list):
        need(deepest > 0, where, f"at most {MOST_LEVELS} levels", "more")
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in inner:
            need(_is_valid_utf8(str(name)), where, "names that are text", name)
            _check_shown(part, f"{where}.{name}", deepest - 1)
    elif isinstance(value, float):
        need(math.isfinite(value), where, "a finite number", value)
    elif isinstance(value, str):
        need(_is_valid_utf8(value), where, "text", value)


def is_utf8(*texts: str) -> bool:
    """Whether UTF-8 can encode all texts."""
    return all(map(_is_valid_utf8, texts))


def _is_valid_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can express and UTF-8 cannot
        return False
    return True


MOST_ITEMS, MOST_EVENTS = 2**31 - 1, 2**53
INFINITE = float("inf")
ITEM_COUNT = Whole(1, MOST_ITEMS)

DOMAIN = Fields({"name": Text(shortest=0), "start": Whole(0, MOST_ITEMS), "stop": ITEM_COUNT}, {})
CONFIG_FIELDS = Fields(
    {
        "model": Text(),
        "items": ITEM_COUNT,
        "latent_users": Whole(0, 10_000),
        "item_table": Text(shortest=0),
        "account_width": Whole(0, 2**20),
        "data": Fields({"name": Text(shortest=0), "domains": ListOf(DOMAIN, at_least=1)}, {}),
    },
    {
        **{"settings": Shown(), "metrics": Shown(), "split": Shown(), "versions": Shown()},
        **{"int8": Flag(), "people": Flag(), "blend": Flag(), "pairs_per_event": Whole(1, 2**20)},
    },
)
EXAMPLE = Fields(
    {
        "account": Text(),
        "count": Whole(1, MOST_PEOPLE),
        "confidence": Number(0, 1),
        "events": Whole(1, MOST_EVENTS),
    },
    {},
)
POPULATION = Fields(  # how many people the accounts have; bundles of earlier versions do not say
    {"accounts": Whole(0, MOST_ITEMS), "counts": ListOf(Whole(0, MOST_ITEMS), at_least=1), "examples": ListOf(EXAMPLE)},
    {},
)
SERVER_FIELDS = Fields({"device": Text(64, 64), "accounts": Whole(0, MOST_ITEMS)}, {"population": POPULATION})
FINDER_CONSTANTS = Fields(  # with which the page finds people; bundles of earlier versions do not have them
    {},
    {
        **dict.fromkeys(("analysed_sessions", "landmarks", "most_sessions"), Whole(1, 10_000)),
        **dict.fromkeys(("centre_steps", "steps"), Whole(1, 1000)),
        **dict.fromkeys(("doubt", "least_ratio", "same_person_share"), Number(1e-6, 1)),
        **dict.fromkeys(("farthest_count", "farthest_pair", "fit_weight", "half_an_hour"), Number(1e-6, 1000)),
        **dict.fromkeys(("taste_prior", "weekday_prior"), Number(1e-6, 1000)),
        "most_people": Whole(MOST_PEOPLE, MOST_PEOPLE),
        "pair_shares": ListOf(Number(1e-6, 1), at_least=1),
        "sum_weight": Number(0, 1000),
        "weekend": Whole(0, 6),
    },
)
FINDER_FIELDS = Fields(
    {"gap": OrNull(Whole(0, LATEST)), "prior": Number(-50, 50), "caution": Number()}, {"constants": FINDER_CONSTANTS}
)


def _pair_tables(name: str, pairs: str, codes: str) -> dict[str, "Table"]:
    """Pairs of items, one behind the other, as floats or as bytes.

    Args:
        name: of the tables.
        pairs: the name of their length.
        codes: the name of how many codes there are.
    """
    return {
        f"{name}.kept": Table(("U8", "I32"), ("items + 1",), low=0, high=MOST_ITEMS),
        f"{name}.columns": Table(("U16", "I32"), (pairs,), low=0, high=MOST_ITEMS),
        f"{name}.counts": Table(("F32", "F64"), (pairs,), low=0),
        f"{name}.lower": Table(("U8", "U16", "U32"), (pairs,), low=0, high=2**32),
        f"{name}.bytes": Table(BYTES, (pairs,), low=0, high=255),
        f"{name}.values": Table(("F32",), (codes,), low=0),
    }


WEIGHT_KINDS = (*FLOATS, *COUNTS, "I8", "I16", "I32", "I64", "BOOL")
WEIGHT = Table(WEIGHT_KINDS, None)  # any other table of the graph; the bounds hold for floats
ITEM_TABLE = Table(("F32", *BYTES), ("items", "item width"))
WEIGHT_TABLES = {
    "popularity": Table(COUNTS, ("items",), low=0, high=MOST_EVENTS),
    **_pair_tables("followers", "pairs", "codes"),
    "memory.ages": Table(("F32",), ("events read",), low=1, high=MOST_ITEMS),
    # Of a blend: followers up to a later time than training, neighbours, and what was frequent lately.
    **_pair_tables("newer_followers", "newer pairs", "newer codes"),
    **_pair_tables("neighbours", "neighbour pairs", "neighbour codes"),
    **_pair_tables("counted", "counted pairs", "counted codes"),  # of a simple baseline
    "followers.leaving": Table((*COUNTS, "F16", "F32"), ("items",), low=0, high=MOST_EVENTS),
    "newer_followers.leaving": Table((*COUNTS, "F16", "F32"), ("items",), low=0, high=MOST_EVENTS),
    "neighbours.top": Table(("F16", "F32"), ("items",), low=0, high=1),
    "trends.items": Table(("I32",), ("trends",), low=0, high=MOST_ITEMS),
    "trends.shares": Table(("F16", "F32"), ("half-lives", "trends"), low=0, high=1),
    "blend.rankable": Table(BYTES, ("items / 8",), low=0, high=255),
}

HISTORY_TABLES = {
    "offsets": Table(("I64",), ("accounts + 1",), low=0, high=MOST_EVENTS),
    "events": Table(("I32",), ("events",), low=0, high=MOST_ITEMS),
    "times": Table(("I64",), ("events",), low=EARLIEST, high=LATEST, optional=True),
    "held_offsets": Table(("I64",), ("accounts + 1",), low=0, high=MOST_EVENTS, optional=True),
    "held_items": Table(("I32",), ("held",), low=0, high=MOST_ITEMS, optional=True),
}
VECTOR_TABLES = {"account": Table(("F32",), ("accounts", "account width"))}


def item_tables(tables: int | str, bytes_and_scales: bool, timed: bool) -> dict[str, Table]:
    """The item tables of the people finder.

    Args:
        tables: their number.
        bytes_and_scales: schema 2 stored vectors as bytes with a scale for each row.
        timed: whether the logs had times.
    """
    tables_of_items = {
        "tables.vectors": Table(BYTES if bytes_and_scales else ("F32", *BYTES), (tables, "items", "taste")),
        "tables.events": Table(COUNTS, (tables, "items"), low=0, high=MOST_EVENTS),
    }
    if bytes_and_scales:
        tables_of_items["tables.scales"] = Table(FLOATS, (tables, "items"), low=0)
    if timed:
        tables_of_items["tables.first"] = Table(FLOATS, (tables, "items"), high=INFINITE)  # infinite: never seen
        tables_of_items["tables.middle"] = Table(FLOATS, (tables, "items"))
    return tables_of_items | {
        GROUP: Table(BYTES, (tables, "items"), optional=True),
        TOGETHER: Table(FLOATS, (tables, "groups", "groups"), low=0, high=1.000001, optional=True),
    }


def finder_tables(timed: bool) -> dict[str, Table]:
    """The other tables of the people finder.

    A session has 2 features, and 8 more with times; a pair has three numbers for each feature and 3 more, and 2 more
    with times. A spread is infinite where nothing was learned.
    """
    traits = 10 if timed else 2
    pair = 3 * traits + (5 if timed else 3)
    return {
        "traits.centre": Table(FLOATS, (traits,)),
        "traits.spread": Table(FLOATS, (traits,), low=1e-10),
        "contrast.centre": Table(FLOATS, (pair,)),
        "contrast.spread": Table(FLOATS, (pair,), low=1e-10, high=INFINITE),
        "contrast.inward": Table(FLOATS, (pair, "hidden")),
        "contrast.threshold": Table(FLOATS, ("hidden",)),
        "contrast.outward": Table(FLOATS, ("hidden",)),
        "contrast.straight": Table(FLOATS, (pair,)),
        "contrast.constant": Table(FLOATS, (1,)),
        "count.centre": Table(FLOATS, ("features",)),
        "count.spread": Table(FLOATS, ("features",), low=1e-10, high=INFINITE),
        "count.weights": Table(FLOATS, ("2 features + 1", MOST_PEOPLE)),
        TYPES: Table(FLOATS, ("types", 2, 24), low=LEAST_LOG, high=0.000001, optional=True),
        KINDS: Table(FLOATS, ("types",), low=LEAST_LOG, high=0.000001, optional=True),
        COUNTING: Table(FLOATS, (5,), optional=True),
    }


FOLD = Table(COUNTS, ("accounts",), low=0)
COUNTED_BY = (OF_EVIDENCE, WITHOUT_HABITS, FEATURES)  # earlier versions counted by fewer features
LEAST_LOG = -700  # of a probability: exp of less is zero


def check_config(config: dict[str, Any], where: str) -> None:
    """Check `config.json`."""
    CONFIG_FIELDS.check(config, f"{where}: ")
    stop = 0
    for place, domain in enumerate(config["data"]["domains"]):
        at = f"{where}: data.domains[{place}]"
        need(domain["start"] == stop < domain["stop"], at, f"items from {stop:,} on", domain)
        stop = domain["stop"]
    need(stop == config["items"], f"{where}: data.domains", f"{config['items']:,} items in all", stop)
