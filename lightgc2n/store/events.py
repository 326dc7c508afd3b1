"""Events and accounts as the store takes and gives them, and what is wrong with an event that cannot be stored."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

LONGEST_ID = 512
EARLIEST, LATEST = -2_208_988_800_000_000, 9_214_646_400_000_000  # microseconds: 1900 to 2262, as in imported logs
NO_TEXT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # control characters and lone surrogates


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is to be stored. Times are microseconds since 1970."""

    account: str
    item: str
    time: int
    id: str | None = None
    domain: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of the store; `number` is its place in the order of arrival."""

    number: int
    item: str
    time: int
    id: str | None
    domain: str | None
    session: str | None


@dataclass(frozen=True, slots=True)
class AccountHistory:
    """The newest events of an account, oldest first, and the version of the account that they belong to."""

    version: int
    items: tuple[str, ...]
    times: tuple[int, ...]


Earlier = Callable[[str], Sequence[NewEvent]]


def is_text(id: str) -> bool:
    """Return whether a store can have this id; an id of the command line may hold bytes that are no text."""
    return NO_TEXT.search(id) is None


def fault_of(event: NewEvent) -> str | None:
    """Return what is wrong with an event; None if it can be stored."""
    for name in ("account", "item", "id", "domain", "session"):
        text = getattr(event, name)
        if text is None and name not in ("account", "item"):
            continue
        if not isinstance(text, str):
            return f"{name}: expected text, found {text!r:.100}"
        if not 1 <= len(text) <= LONGEST_ID:
            return f"{name}: expected 1 to {LONGEST_ID} characters, found {len(text):,}"
        if NO_TEXT.search(text):
            return f"{name}: expected text in UTF-8 without control characters"
    if type(event.time) is not int:  # SQLite would store a fraction, or the bytes of a number of numpy
        return f"time: expected an int, microseconds since 1970, found {event.time!r:.100}"
    if not EARLIEST <= event.time <= LATEST:
        return f"time: expected the years 1900 to 2262, found {event.time} microseconds since 1970"
    return None


class Outcome(Enum):
    """The outcome of an event that was sent."""

    STORED = "stored"
    DUPLICATE = "duplicate"  # the account has an event with this id
    ERASED = "erased"  # the account, or the event with this id, was erased


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The content of a store, counted."""

    schema: int
    accounts: int
    items: int
    events: int
    erased: int
    oldest: int | None
    newest: int | None
    filled_from: str | None
