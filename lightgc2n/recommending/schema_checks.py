"""Checks of what was read from files: a JSON value against the field that declares it, an array against its table.

Each check raises a `DataError` that names the file, the field, what was expected and what was found.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from lightgc2n.errors import DataError, option

EXPORT_AGAIN = (
    f"Make it again with: {option('lightgc2n export RUN --out BUNDLE', 'lightgc2n.load(RUN).export(BUNDLE)')}."
)
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


def need(holds: bool, where: str, expected: str, found: Any) -> None:
    """Raise an error if the condition is false."""
    if not holds:
        shown = found if isinstance(found, str) and found == "nothing" else repr(found)
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
