"""Learn habits from training logs without member labels, and how much they count from merged accounts.

Shapes: A accounts, S sessions, U people, Z types of people, X examples, P people of an example, W weights.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign, fits, ratios_of, softmax
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.habits import Habits, Weights, calendar, counted
from lightgc2n.people.item_groups import GROUPS, going_together, item_groups
from lightgc2n.people.pair_evidence import Contrast, evidence
from lightgc2n.people.session_features import FOLDS, ItemTables, Sessions
from lightgc2n.people.sessions import DAY, Floats, equal_sizes, sampled

KINDS, KIND_STEPS = 16, 40
BLUR = 1.0  # hours
TOWN_WEIGHT = 2.0  # prior of each type: this many hours of the average distribution
FIRST_SHARES = 0.1  # Dirichlet parameter of the initial type memberships: nearly one-hot
TINY = 1e-9
TYPED_ACCOUNTS, TYPED_SESSIONS = 1000, 100  # that types of people are learned from, at most
EXAMPLES = 250  # merged accounts that weights are learned from
MOVED = 0.2  # share of their sessions that are given to anyone, as assigned sessions are partly wrong
NEWTON_STEPS, RIDGE = 30, 1e-3
HIDDEN = 2.0  # weights of habits are multiplied by this, as likely singles hide people and so dilute habits
Random = np.random.Generator


def learn_habits(sessions: Sessions, fold: Longs, tables: ItemTables, contrast: Contrast, random: Random) -> Habits:
    """Learn the habits of the accounts with these sessions; each fold from the accounts of the others.

    Args:
        fold: of each account.
    """
    event = np.repeat(np.arange(len(sessions.owner)), sessions.size)
    owner, group, together = sessions.owner[event], [], []
    for part in range(FOLDS):
        others = fold[owner] != part
        group.append(item_groups(owner[others], sessions.items[others], tables.vectors[part], random))
        counts = counted(event, group[-1][sessions.items], len(sessions.owner), GROUPS)
        outside = fold[sessions.owner] != part
        together.append(going_together(counts[outside], sessions.owner[outside]))
    hours: Floats | None = None
    kinds: Floats = np.zeros(1)
    if sessions.begun is not None and (np.rint(sessions.begun * DAY) % DAY != 0).any():
        hours, kinds = _hours(sessions, len(fold), contrast, random)
    return Habits(np.array(group, dtype=np.uint8), np.array(together), hours, kinds, Weights(0.0, 0.0))


def _hours(sessions: Sessions, accounts: int, contrast: Contrast, random: Random) -> tuple[Floats, Floats]:
    """Learn types of people by their hours, from the people that the evidence of pairs yields."""
    assert sessions.begun is not None
    bounds = np.searchsorted(sessions.owner, np.arange(accounts + 1))
    number, person = np.diff(bounds), np.full(len(sessions.owner), -1)
    chosen = np.sort(random.permutation(np.flatnonzero(number))[:TYPED_ACCOUNTS])
    for rows in equal_sizes(np.minimum(number[chosen], TYPED_SESSIONS)):
        places = np.stack([bounds[one] + sampled(int(number[one]), TYPED_SESSIONS) for one in chosen[rows].tolist()])
        people = assign(evidence(sessions, contrast, places), sessions.size[places], MOST_PEOPLE).argmax(axis=-1)
        person[places] = chosen[rows][:, None] * MOST_PEOPLE + people
    known = person >= 0
    hour, weekend, _ = calendar(sessions.begun[known])
    return hours_by_kind(person[known], hour, weekend, random)


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
    for _ in range(KIND_STEPS):
        hours = np.einsum("uz,ukh->zkh", likely, smooth) + TOWN_WEIGHT * town
        hours = np.log(hours / hours.sum(axis=2, keepdims=True) + TINY)
        shares = np.log((likely.sum(axis=0) + 1) / (len(seen) + kinds))
        likely = softmax(np.einsum("ukh,zkh->uz", seen, hours) + shares)
    return hours, shares


def with_weights(
    habits: Habits,
    sessions: Sessions,
    fold: Longs,
    contrast: Contrast,
    merged: Sequence[Longs],
    random: Random,
) -> Habits:
    """Return the habits with weights learned from merged accounts, whose people are known.

    A softmax regression says whose a session is, from its evidence with each person's other sessions.

    Args:
        fold: of each account.
        merged: the sessions of each merged account.
    """
    features, target, weight = [], [], []
    for places in merged[:EXAMPLES]:
        person = np.unique(sessions.owner[places], return_inverse=True)[1]
        people = int(person.max()) + 1
        if 1 < people < len(places):
            own = evidence_of(habits, sessions, fold, contrast, places, moved(person, people, random), people)
            missing = np.full((len(own), MOST_PEOPLE - people, own.shape[2]), np.nan)
            features.append(np.concatenate([own, missing], axis=1))
            target.append(person)
            weight.append(np.full(len(places), 1 / len(places)))
    if not features:
        return habits
    learned = regression(np.concatenate(features), np.concatenate(target), np.concatenate(weight))
    fit, plain, *of_habits = learned.tolist()
    return replace(habits, weights=Weights(fit, plain, *(HIDDEN * max(one, 0.0) for one in of_habits)))


def moved(person: Longs, people: int, random: Random) -> Longs:
    """Return the person of each session, a share of them at random."""
    return np.where(random.random(len(person)) < MOVED, random.integers(0, people, len(person)), person)


def evidence_of(
    habits: Habits, sessions: Sessions, fold: Longs, contrast: Contrast, places: Longs, person: Longs, people: int
) -> Floats:
    """Return the evidence of each session with the others of each person [N, P, W], in the order of the weights."""
    pairs = evidence(sessions, contrast, places)
    belongs = np.eye(people)[person]
    mass = belongs * np.sqrt(sessions.size[places])[:, None]
    of_habits = habits.of(sessions, fold, places[None]).each(belongs[None])
    return np.stack([fits(ratios_of(pairs), mass), pairs @ mass, *(kind[0] for kind in of_habits)], axis=-1)


def regression(features: Floats, target: Longs, weight: Floats) -> Floats:
    """Return the weights of a softmax regression, fitted by Newton's method [W].

    Args:
        features: of each choice [X, P, W]; NaN for choices that an example does not have.
        target: the right choice of each example [X].
        weight: of each example [X].
    """
    there = ~np.isnan(features[..., 0])
    rows = np.where(there[..., None], features, 0)
    spread = rows.std(axis=(0, 1))
    rows = rows / np.where(spread > TINY, spread, np.inf)
    weight, found = weight / weight.sum(), np.zeros(rows.shape[2])
    for _ in range(NEWTON_STEPS):
        likely = softmax(np.where(there, rows @ found, -np.inf))
        mean = (likely[..., None] * rows).sum(axis=1)
        slope = weight @ (rows[np.arange(len(target)), target] - mean) - RIDGE * found
        apart = rows - mean[:, None]
        curve = np.einsum("x,xp,xpv,xpw->vw", weight, likely, apart, apart, optimize=True)
        found = found + np.linalg.solve(curve + RIDGE * np.eye(len(found)), slope)
    return found / np.where(spread > TINY, spread, np.inf)
