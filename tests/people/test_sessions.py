"""Sessions by gap: where one begins, and what is usual."""

import numpy as np

from lightgc2n.people.sessions import DAY, HOUR, has_hours, newest_sessions, session_numbers, usual_gap


def test_a_longer_pause_begins_a_session_and_so_does_an_account() -> None:
    times = np.array([0, HOUR, 2 * HOUR + 1, 2 * HOUR + 1, 2 * HOUR + 2])
    assert session_numbers(np.array([0, 4, 4, 5]), times, HOUR).tolist() == [0, 0, 1, 1, 2]  # one account has no event


def test_the_usual_session_is_bound_by_an_hour_or_is_a_day() -> None:
    fine, days = np.array([0, HOUR - 1, 3 * HOUR]), np.array([0, 0, DAY])
    assert (has_hours(fine), usual_gap(fine)) == (True, HOUR)
    assert (has_hours(days), usual_gap(days)) == (False, 0)
    assert session_numbers(np.array([0, 3]), fine).tolist() == [0, 0, 1]
    assert session_numbers(np.array([0, 3]), days).tolist() == [0, 0, 1]


def test_without_times_every_event_is_a_session() -> None:
    assert session_numbers(np.array([0, 2, 3]), None).tolist() == [0, 1, 2]


def test_the_newest_sessions() -> None:
    session = np.array([0, 0, 1, 2, 2, 3])
    taken = {most: session[newest_sessions(session, most)].tolist() for most in (1, 2, 4, 9)}
    assert taken == {1: [3], 2: [2, 2, 3], 4: session.tolist(), 9: session.tolist()}
    assert newest_sessions(session[:0], 3) == slice(0, 0)
