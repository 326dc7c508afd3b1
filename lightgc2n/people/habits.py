"""When people act: days of the week, hours of the day, and the kinds of people there are by their hours.

Shapes: S sessions, U people, Z kinds.
"""

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.groups import softmax
from lightgc2n.people.session_points import WEEKEND, Floats
from lightgc2n.people.sessions import DAY, clock

KINDS, STEPS = 16, 40
BLUR = 1.0  # hours
TOWN_WEIGHT = 2.0  # hours of everybody that each kind is given
FIRST_SHARES = 0.1  # of the Dirichlet that first shares are drawn from: nearly all of one kind
TINY = 1e-9
Random = np.random.Generator


def calendar(begun: Floats) -> tuple[Longs, Longs, Longs]:
    """Hour, whether it is a weekend, and day of the week from Monday, of times in days since 1970."""
    weekday, hour = clock(np.rint(begun * DAY).astype(np.int64))  # days in 64 bits are right to the microsecond
    return hour, (weekday >= WEEKEND).astype(np.int64), weekday


def hours_by_kind(
    person: Longs, hour: Longs, weekend: Longs, random: Random, kinds: int = KINDS
) -> tuple[Floats, Floats]:
    """Log chances of hours on working days and at weekends for each kind of people [Z, 2, 24], and of the kinds [Z].

    By EM: a person is of one kind, and all their sessions begin by its hours, blurred by an hour or so.

    Args:
        person: of each session.
    """
    person = np.unique(person, return_inverse=True)[1]
    seen = np.zeros((int(person.max()) + 1, 2, 24))
    np.add.at(seen, (person, weekend, hour), 1)
    apart = np.minimum(np.arange(24), 24 - np.arange(24))
    around = np.exp(-(apart**2) / 2 / BLUR**2)
    smooth = seen @ np.stack([np.roll(around / around.sum(), turn) for turn in range(24)])
    everybody = smooth.sum(axis=0) + TINY  # where nobody acts at weekends, all their hours are alike
    town = everybody / everybody.sum(axis=1, keepdims=True)
    likely: Floats = random.dirichlet(np.full(kinds, FIRST_SHARES), len(seen))
    for _ in range(STEPS):
        hours = np.einsum("uz,ukh->zkh", likely, smooth) + TOWN_WEIGHT * town
        hours = np.log(hours / hours.sum(axis=2, keepdims=True) + TINY)
        shares = np.log((likely.sum(axis=0) + 1) / (len(seen) + kinds))
        likely = softmax(np.einsum("ukh,zkh->uz", seen, hours) + shares)
    return hours, shares
