"""Who is watching: the factors by hand, what they say together, and when they say nothing."""

from dataclasses import replace

import numpy as np
import pytest

from lightgc2n.people.sessions import DAY, HOUR
from lightgc2n.people.who_is_watching import CONSTANTS, Past, WhoConstants, items_power, who_is_watching

MONDAY = 4 * DAY  # 5 January 1970
PLAIN = replace(CONSTANTS, scales=(), weights=(), hours_power=0.0, days_power=0.0)
VECTORS = np.eye(4, dtype=np.float32)  # four items that are not alike


def evenings_and_mornings(weeks: int = 6) -> Past:
    """Person 0 watches item 0 on evenings, person 1 item 1 on mornings, every day in turn."""
    days = np.arange(7 * weeks)
    person = days % 2
    times = MONDAY + days * DAY + np.where(person == 0, 20, 7) * HOUR
    return Past(person.astype(np.int32), times, np.eye(2)[person], days)


def asked(past: Past, at: int, begun: list[int], constants: WhoConstants = CONSTANTS) -> np.ndarray:
    return who_is_watching(past, at, begun, VECTORS, constants=constants)


def test_shares_by_hand() -> None:
    """Three sessions of person 0 and one of person 1, and 1.4 that both share."""
    past = Past(np.zeros(4, dtype=np.int32), None, np.eye(2)[[0, 0, 1, 0]], np.arange(4))
    chances = who_is_watching(past, None, [], VECTORS)
    np.testing.assert_allclose(chances, [[3.7 / 5.4, 1.7 / 5.4]])


def test_who_was_there_lately_stays_by_hand() -> None:
    """One session each, two days and one day ago; the newer one counts exp(1 / 5) times the older on that scale."""
    past = Past(np.zeros(2, dtype=np.int32), np.array([0, DAY]), np.eye(2), np.arange(2))
    constants = replace(PLAIN, scales=(5.0,), weights=(0.5,))
    acts = 0.5 + 0.5 * np.exp([-2 / 5, -1 / 5])
    np.testing.assert_allclose(asked(past, 2 * DAY, [], constants), [acts / acts.sum()])


def test_an_event_counts_once_in_its_session() -> None:
    """A session of three events is one visit."""
    past = Past(np.zeros(4, dtype=np.int32), None, np.eye(2)[[0, 0, 0, 1]], np.array([0, 0, 0, 1]))
    np.testing.assert_allclose(who_is_watching(past, None, [], VECTORS), [[0.5, 0.5]])


def test_hours_and_items_tell() -> None:
    past = evenings_and_mornings()
    evening, morning = (MONDAY + 43 * DAY + hour * HOUR for hour in (20, 7))
    assert asked(past, evening, [])[0, 0] > 0.8
    assert asked(past, morning, [])[0, 1] > 0.8
    chances = asked(past, evening, [1, 1])[:, 0]  # what is begun on this evening is what the other one watches
    assert chances[0] > chances[1] > chances[2]
    np.testing.assert_allclose(asked(past, evening, [0, 1, 2]).sum(axis=1), 1)


def test_items_that_tell_nothing_get_no_power() -> None:
    past = evenings_and_mornings()
    assert items_power(past, VECTORS) > 1
    random = np.random.default_rng(0)
    shuffled = replace(past, items=random.permutation(past.items))
    assert items_power(shuffled, VECTORS) < 0.5


def test_the_device_tells_where_it_is_known() -> None:
    past = replace(evenings_and_mornings(), context=np.array([0, 1] * 21, dtype=np.int32))
    at = MONDAY + 43 * DAY + 13 * HOUR
    plain = who_is_watching(past, at, [], VECTORS)
    for device in (0, 1):
        assert who_is_watching(past, at, [], VECTORS, context=device)[0, device] > plain[0, device]
    unknown = replace(past, context=np.full(42, -1, dtype=np.int32))
    np.testing.assert_array_equal(who_is_watching(unknown, at, [], VECTORS, context=0), plain)


@pytest.mark.parametrize("people", [1, 3])
def test_nothing_known_is_even(people: int) -> None:
    nobody = Past(
        np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), np.zeros((0, people)), np.zeros(0, np.int64)
    )
    np.testing.assert_allclose(asked(nobody, MONDAY, [1]), np.full((2, people), 1 / people))


def test_names_of_people_do_not_matter() -> None:
    past, at = evenings_and_mornings(), MONDAY + 43 * DAY + 18 * HOUR
    swapped = replace(past, share=past.share[:, ::-1])
    np.testing.assert_allclose(asked(past, at, [1])[:, ::-1], asked(swapped, at, [1]))
