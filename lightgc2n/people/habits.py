"""Times at which people act: weekdays, hours, and types of people by their hours.

Shapes: S sessions, U people, Z kinds.
"""

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import softmax
from lightgc2n.people.sessions import DAY, WEEKEND, Floats, clock

KINDS, STEPS = 16, 40
BLUR = 1.0  # hours
TOWN_WEIGHT = 2.0  # prior of each type: this many hours of the average distribution
FIRST_SHARES = 0.1  # Dirichlet parameter of the initial type memberships: nearly one-hot
TINY = 1e-9
Random = np.random.Generator


def calendar(begun: Floats) -> tuple[Longs, Longs, Longs]:
    """Return hour, weekend flag and weekday (0 is Monday) of times in days since 1970."""
    weekday, hour = clock(np.rint(begun * DAY).astype(np.int64))  # float64 days are exact to the microsecond
    return hour, (weekday >= WEEKEND).astype(np.int64), weekday


def hours_by_kind(
    person: Longs, hour: Longs, weekend: Longs, random: Random, kinds: int = KINDS
) -> tuple[Floats, Floats]:
    """Return log probabilities of hours on workdays and weekends by type of person [Z, 2, 24], and of types [Z].

    Fitted by EM: a person is of one type, whose smoothed hours generate all their sessions.

    Args:
        person: of each session.
    """
    person = np.unique(person, return_inverse=True)[1]
    seen = np.zeros((int(person.max()) + 1, 2, 24))
    np.add.at(seen, (person, weekend, hour), 1)
    apart = np.minimum(np.arange(24), 24 - np.arange(24))
    around = np.exp(-(apart**2) / 2 / BLUR**2)
    smooth = seen @ np.stack([np.roll(around / around.sum(), turn) for turn in range(24)])
    everybody = smooth.sum(axis=0) + TINY  # uniform if no session is at a weekend
    town = everybody / everybody.sum(axis=1, keepdims=True)
    likely: Floats = random.dirichlet(np.full(kinds, FIRST_SHARES), len(seen))
    for _ in range(STEPS):
        hours = np.einsum("uz,ukh->zkh", likely, smooth) + TOWN_WEIGHT * town
        hours = np.log(hours / hours.sum(axis=2, keepdims=True) + TINY)
        shares = np.log((likely.sum(axis=0) + 1) / (len(seen) + kinds))
        likely = softmax(np.einsum("ukh,zkh->uz", seen, hours) + shares)
    return hours, shares
