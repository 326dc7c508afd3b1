"""Sessions: events separated by less than a gap; a session nearly always belongs to one person."""

import numpy as np

from lightgc2n.data.dataset import MICROSECONDS, Longs

HOUR = 3600 * MICROSECONDS
DAY = 24 * HOUR


def session_numbers(offsets: Longs, times: Longs | None, gap: int | None = None) -> Longs:
    """Return the session id of each event, numbered over all accounts.

    Without times every event is its own session.

    Args:
        offsets: account a holds the events offsets[a] to offsets[a + 1], oldest first.
        gap: microseconds; a longer pause starts a new session. None: `usual_gap`.
    """
    if times is None:
        return np.arange(offsets[-1])
    gap = usual_gap(times) if gap is None else gap
    begins = np.ones(len(times), dtype=bool)
    begins[1:] = np.diff(times) > gap
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    return np.cumsum(begins) - 1


def newest_sessions(session: Longs, most: int) -> slice:
    """Return the slice of the events in the newest sessions of one account, at most `most` sessions.

    Args:
        session: session id of each event, from 0.
    """
    first = 0 if not len(session) else int(session[-1]) + 1 - most
    return slice(int(np.searchsorted(session, first)) if first > 0 else 0, len(session))


def usual_gap(times: Longs) -> int:
    """Return one hour, or 0 if times are whole days, so that each day is a session."""
    return HOUR if has_hours(times) else 0


def clock(times: Longs) -> tuple[Longs, Longs]:
    """Return the weekday (0 is Monday) and the hour of times in microseconds since 1970."""
    return (times // DAY + 3) % 7, times % DAY // HOUR  # the first day of 1970 was a Thursday


def has_hours(times: Longs) -> bool:
    """Return whether times have hours, not only dates."""
    return bool((np.asarray(times) % DAY != 0).any())
