"""Estimates which person of an account is watching: checks the arguments, and returns probabilities by item."""

from collections.abc import Sequence
from string import ascii_uppercase

import numpy as np

from lightgc2n.data.dataset import Dataset, Ints
from lightgc2n.errors import SettingError, option
from lightgc2n.people.finder import People, PeopleFinder
from lightgc2n.people.sessions import DAY, has_hours
from lightgc2n.people.who_is_watching import Past, item_vectors_of, who_is_watching
from lightgc2n.recommending.queries import History, left_out, read_times
from lightgc2n.recommending.results import Watching, WatchingStep

KEEP = option("import --context-column", "Dataset.from_frame(context=...)")
TIME, ITEMS, CONTEXT = option("--time", "time="), option("--items", "items="), option("--context", "context=")


def watching(
    account: str | None,
    events: History,
    people: People,
    finder: PeopleFinder,
    row: int | None,
    dataset: Dataset,
    time: str | int | None,
    items: Sequence[str],
    context: tuple[Ints, int] | None,
    notes: tuple[str, ...],
) -> Watching:
    """Return the probability of each person before the first item of the session, and after each item.

    If the last session of the history is still open at this time, its items come first.

    Args:
        row: the account's row in the training logs.
        context: of each event, and of the query.
        notes: on the history.
    """
    at = _read_time(time, events, finder)
    if isinstance(items, str):
        raise SettingError(f"{ITEMS}: expected a list of item ids, found the text {items!r}.")
    index = dataset.item_index
    known = [index[item] for item in items if item in index]
    notes += left_out(items, dataset, "items that were begun")
    past = Past(events.items, events.times, people.share, people.session, None if context is None else context[0])
    start = _current_session(past, at, finder.gap)
    begun = [*past.items[start:].tolist(), *known]
    now = None if context is None else context[1]
    vectors = item_vectors_of(finder, row)
    chances = who_is_watching(past.before(start) if start else past, at, begun, vectors, now)
    names = [None, *(dataset.items[item] for item in begun)]
    return Watching(
        account_id=account,
        time=None if at is None else _shown(at),
        people=tuple(ascii_uppercase[: people.count]),
        steps=tuple(WatchingStep(item, tuple(row)) for item, row in zip(names, chances.tolist(), strict=True)),
        going_on=len(past.items) - start if start < len(past.items) else 0,
        notes=notes,
    )


def context_of_events(dataset: Dataset, places: slice, value: str | None) -> tuple[Ints, int] | None:
    """Return the context of the events at these positions, and the number of `value`."""
    if value is None:
        return None
    if dataset.contexts is None:
        raise SettingError(
            f"{CONTEXT}: {dataset.name} keeps no such column here. Leave it out; "
            f"{KEEP} keeps one for runs, and bundles have none."
        )
    return np.asarray(dataset.contexts.of_event[places]), dataset.contexts.number(value)


def _read_time(time: str | int | None, events: History, finder: PeopleFinder) -> int | None:
    if finder.gap is None or events.times is None:
        if time is not None:
            raise SettingError(f"{TIME}: the log has no times, so leave it out.")
        return None
    if time is None:
        raise SettingError(f"{TIME}: give the time of the query, such as 2024-05-01T20:15, because the log has times.")
    at, newest = int(read_times([time])[0]), int(events.times[-1])  # type: ignore[arg-type]
    if not has_hours(events.times):
        at -= at % DAY
    if at < newest:
        raise SettingError(f"{TIME}: expected a time after the newest event ({_shown(newest)}), found {_shown(at)}.")
    return at


def _current_session(past: Past, at: int | None, gap: int | None) -> int:
    """Return the position of the first event of the session that is open at `at`; the number of events if none is."""
    if at is None or gap is None or past.times is None or at - int(past.times[-1]) > gap:
        return len(past.items)
    return int(np.searchsorted(past.session, past.session[-1]))


def _shown(time: int) -> str:
    return str(np.datetime64(time, "us").astype("datetime64[m]")).replace("T", " ")
