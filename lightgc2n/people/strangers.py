"""Pairs of sessions of one account, and of two: strangers of any time, or of the same days.

People of one account may come one after the other, so that dates tell them apart, or be there all the time, as those
who live together. Against strangers of any time dates are evidence, against strangers of the same days they are not.
How many of each are drawn follows from the logs: sessions that look alike in all other ways are put together, and it
is measured whether the two halves of an account then lie apart in time.

Shapes: S sessions, P pairs, N sessions of one account.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign
from lightgc2n.people.session_features import FOLDS, Sessions
from lightgc2n.people.sessions import Floats, equal_sizes, sampled

OFFERED, NEAR = 8, 0.01  # strangers' sessions that one is drawn from; how near in time, as a share of all sessions
ASKED, FEWEST, MOST = 800, 8, 100  # accounts whose halves are compared, and sessions of one
STEADY, APART = 1.13, 1.2  # distance in time of halves, relative to chance: who live together, who come and go
SHUFFLES = 3
Random = np.random.Generator


def pairs_inside(sessions: Sessions, most: int, random: Random) -> tuple[Longs, Longs]:
    """Draw pairs of different sessions of one account; each account is equally frequent."""
    start, stop = (np.searchsorted(sessions.owner, sessions.owner, side=side) for side in ("left", "right"))
    number = stop - start
    chance = np.where(number > 1, 1 / number, 0)  # of a session, so that accounts are equally frequent
    if not chance.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    drawn = min(most, int((number - 1).sum()))
    one = random.choice(len(number), size=drawn, p=chance / chance.sum())
    step = 1 + (random.random(drawn) * (number[one] - 1)).astype(np.int64)
    return one, start[one] + (one - start[one] + step) % number[one]


def pairs_across(sessions: Sessions, fold: Longs, gap: float | None, most: int, random: Random) -> tuple[Longs, Longs]:
    """Draw pairs of sessions of two accounts in the same fold.

    Args:
        gap: days; sessions of one account are never closer, so closer pairs would be trivial to recognise.
    """
    session_fold = fold[sessions.owner]
    number = np.bincount(sessions.owner)[sessions.owner]
    one, other = [], []
    for part in range(FOLDS):
        places = np.flatnonzero(session_fold == part)
        if len(places):
            drawn = round(most * len(places) / len(number))
            chance = 1 / number[places]
            sides = random.choice(places, size=(2, drawn), p=chance / chance.sum())
            one.append(sides[0])
            other.append(sides[1])
    left, right = np.concatenate(one), np.concatenate(other)
    valid = sessions.owner[left] != sessions.owner[right]
    if sessions.begun is not None and gap is not None:
        valid &= np.abs(sessions.begun[left] - sessions.begun[right]) > gap
    return left[valid], right[valid]


def pairs_of_strangers(
    sessions: Sessions,
    fold: Longs,
    gap: float | None,
    inside: tuple[Longs, Longs],
    of_any_time: float,
    random: Random,
) -> tuple[Longs, Longs]:
    """Draw as many pairs of sessions of two accounts as there are inside: some of any time, others of the same time.

    Args:
        of_any_time: the share of pairs that are drawn without regard to time.
    """
    if sessions.begun is None:
        return pairs_across(sessions, fold, gap, len(inside[0]), random)
    anytime = round(of_any_time * len(inside[0]))
    anywhere = pairs_across(sessions, fold, gap, anytime, random)
    near = pairs_of_a_time(sessions, fold, gap, (inside[0][anytime:], inside[1][anytime:]), random)
    left, right = (np.concatenate(sides) for sides in zip(anywhere, near, strict=True))
    return left, right


def pairs_of_a_time(
    sessions: Sessions, fold: Longs, gap: float | None, inside: tuple[Longs, Longs], random: Random
) -> tuple[Longs, Longs]:
    """Return the pairs with their second session replaced by one of another account from about the same time.

    Dates tell nothing about such pairs, as they tell nothing about people who live together.
    """
    assert sessions.begun is not None
    session_fold, number = fold[sessions.owner], np.bincount(sessions.owner)
    one, other = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for part in range(FOLDS):
        places, chosen = np.flatnonzero(session_fold == part), session_fold[inside[0]] == part
        order = places[np.argsort(sessions.begun[places], kind="stable")]
        left, right = inside[0][chosen], inside[1][chosen]
        window = max(OFFERED, round(NEAR * len(order)))
        place = np.searchsorted(sessions.begun[order], sessions.begun[right])[:, None]
        offered = place + random.integers(-window, window + 1, size=(len(left), OFFERED))
        candidates = order[np.clip(offered, 0, len(order) - 1)] if len(order) else offered
        owner = sessions.owner[candidates]
        reach = np.cumsum((owner != sessions.owner[left][:, None]) / number[owner], axis=1)
        drawn = (reach < random.random((len(left), 1)) * reach[:, -1:]).sum(axis=1)
        one.append(left)
        other.append(candidates[np.arange(len(left)), np.minimum(drawn, OFFERED - 1)])
    left, right = np.concatenate(one), np.concatenate(other)
    valid = sessions.owner[left] != sessions.owner[right]
    if gap is not None:
        valid &= np.abs(sessions.begun[left] - sessions.begun[right]) > gap
    return left[valid], right[valid]


def share_of_any_time(sessions: Sessions, compare: Callable[[Longs], Floats], random: Random) -> float:
    """Return the share of strangers to draw from any time: 0 if dates do not tell people apart, 1 if they do.

    Args:
        compare: returns the evidence of all pairs of sessions at some positions [B, N], learned from strangers of the
            same days.
    """
    assert sessions.begun is not None
    bounds = np.searchsorted(sessions.owner, np.arange(int(sessions.owner.max(initial=-1)) + 2))
    number = np.diff(bounds)
    known = np.flatnonzero(number >= FEWEST)
    chosen = np.sort(random.permutation(known)[:ASKED])
    found: list[float] = []
    chance: list[float] = []
    for group in equal_sizes(np.minimum(number[chosen], MOST)):
        places = np.stack([bounds[one] + sampled(int(number[one]), MOST) for one in chosen[group].tolist()])
        halves = assign(compare(places), sessions.size[places], 2).argmax(axis=-1) == 0
        for half, day in zip(halves, sessions.begun[places], strict=True):
            if 2 < half.sum() < len(half) - 2:
                found.append(distance_in_time(day, half))
                chance += [distance_in_time(day, random.permutation(half)) for _ in range(SHUFFLES)]
    if not found:
        return 1.0
    ratio = float(np.mean(found)) / max(float(np.mean(chance)), 1e-9)
    return float(np.clip((ratio - STEADY) / (APART - STEADY), 0, 1))


def distance_in_time(day: Floats, half: npt.NDArray[np.bool_]) -> float:
    """Return the largest difference, at any time, of the shares of sessions that a half [N] and the rest have begun."""
    begun = np.sort(day)
    shares = [np.searchsorted(np.sort(day[one]), begun, side="right") / one.sum() for one in (half, ~half)]
    return float(np.abs(shares[0] - shares[1]).max())
