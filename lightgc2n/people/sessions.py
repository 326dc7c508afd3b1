"""Events bound by time: what follows within a gap belongs to one session, and a session nearly always to one person."""

import numpy as np

from lightgc2n.data.dataset import MICROSECONDS, Longs

HOUR = 3600 * MICROSECONDS
DAY = 24 * HOUR


def session_numbers(offsets: Longs, times: Longs | None, gap: int | None = None) -> Longs:
    """For each event the number of its session, counted on over all accounts.

    Without times every event is a session of its own.

    Args:
        offsets: account a holds the events offsets[a] to offsets[a + 1], oldest first.
        gap: microseconds; a longer pause begins a new session. Without one: `usual_gap`.
    """
    if times is None:
        return np.arange(offsets[-1])
    gap = usual_gap(times) if gap is None else gap
    begins = np.ones(len(times), dtype=bool)
    begins[1:] = np.diff(times) > gap
    begins[offsets[:-1][np.diff(offsets) > 0]] = True
    return np.cumsum(begins) - 1


def newest_sessions(session: Longs, most: int) -> slice:
    """The events of the newest sessions of one account, at most so many.

    Args:
        session: of each event its number, counted from 0.
    """
    first = 0 if not len(session) else int(session[-1]) + 1 - most
    return slice(int(np.searchsorted(session, first)) if first > 0 else 0, len(session))


def usual_gap(times: Longs) -> int:
    """An hour; where times are whole days, no pause at all, so that a session is a day."""
    return HOUR if has_hours(times) else 0


def clock(times: Longs) -> tuple[Longs, Longs]:
    """Day of the week from Monday, and hour of the day, of microseconds since 1970."""
    return (times // DAY + 3) % 7, times % DAY // HOUR  # the first day of 1970 was a Thursday


def has_hours(times: Longs) -> bool:
    """Whether times tell more than the day."""
    return bool((np.asarray(times) % DAY != 0).any())
