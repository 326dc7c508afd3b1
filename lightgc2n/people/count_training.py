"""How counting is learned where nobody's people are known: accounts are merged anew, so that counts are known.

1. Some accounts are one person's, it is assumed: the fifth whose sessions are most alike. Every second session decides,
   so that luck in those does not repeat in the rest.
2. One to five of them make a new account, and that number is its count. Where one of them hides a second person, the
   number is too small, so what is learned errs towards fewer people.
3. What was learned chooses once more the fifth that are likeliest to be one person's, and learns from both kinds of
   merged accounts: the first choice has more hidden people in it, the second more of what is easily counted.
4. In some data an account of more people has a longer log, in some it has not. The logs tell that themselves, by how
   their length goes with how alike their sessions are; sessions of merged accounts are thinned until it is the same.

Shapes: S sessions, A accounts, N sessions of one account.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.contrast import Contrast
from lightgc2n.people.count_people import (
    FEATURES,
    OF_EVIDENCE,
    CountHead,
    chances,
    count_features,
    fitting_caution,
    learn_head,
    plain_head,
)
from lightgc2n.people.pair_evidence import evidence
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.session_points import Floats

SINGLES = 0.2  # share of accounts that are taken to be one person's
FEWEST_SESSIONS = 8  # of an account that is taken to be one person's
MOST_SESSIONS = 150  # that are looked at together; pairs grow with the square
MOST_MERGED_SPLIT = 0.07  # of merged accounts of one person, who are those whose sessions are most alike
PRIOR = np.array([0.28, 0.28, 0.2, 0.16, 0.08])  # how many people there are, as far as nothing else is known
MERGES, TRIALS = 1000, 300  # at most
MERGES_A_SINGLE, TRIALS_A_SINGLE = 10, 3  # few singles, merged over and over, teach no more
Random = np.random.Generator


@dataclass(frozen=True)
class Accounts:
    """Accounts to merge: their sessions, and what tells two of these apart."""

    sessions: Sessions
    contrast: Contrast
    fold: Longs  # [A]
    start: Longs  # [A] where the sessions of each begin
    number: Longs  # [A] how many it has

    def evidence(self, places: Longs) -> Floats:
        return evidence(self.sessions, self.contrast, places)

    def features(self, places: Longs) -> Floats:
        return count_features(self.evidence(places), self.sessions.size[places], self.sessions.again(places))


@dataclass(frozen=True)
class Merged:
    """Accounts merged anew, so that their people are known."""

    places: list[Longs]  # of the sessions of each
    features: Floats  # [A, F]
    people: Longs  # [A]


def learn_count(sessions: Sessions, contrast: Contrast, fold: Longs, random: Random) -> CountHead:
    """What tells how many people are behind an account, from merged accounts; with too few to merge it says one."""
    merged = merged_anew(sessions, contrast, fold, random)
    return plain_head() if merged is None else head_of(merged.features, merged.people)


def head_of(features: Floats, people: Longs, most_split: float = MOST_MERGED_SPLIT) -> CountHead:
    """What merged accounts teach, with as much caution as these need."""
    head = learn_head(features, people, PRIOR)
    return replace(head, caution=fitting_caution(chances(head, features), people, most_split))


def merged_anew(sessions: Sessions, contrast: Contrast, fold: Longs, random: Random) -> Merged | None:
    """Merged accounts of both choices; None with too few to merge."""
    bounds = np.searchsorted(sessions.owner, np.arange(len(fold) + 1))
    accounts = Accounts(sessions, contrast, fold, bounds[:-1], np.diff(bounds))
    halves = np.array([_half_features(accounts, row) for row in range(len(fold))])
    alike = halves[:, 0]
    first = _merged(accounts, by_fold(most_likely(alike), fold), alike, random)
    if first is None:
        return None
    told = learn_head(first.features[:, :OF_EVIDENCE], first.people, PRIOR)  # as at first, the evidence alone chooses
    single = chances(told, halves)[:, 0]
    second = _merged(accounts, by_fold(most_likely(single), fold), alike, random) or first
    features, people = (
        np.concatenate([getattr(one, name) for one in (first, second)]) for name in ("features", "people")
    )
    return Merged(first.places + second.places, features, people)


def _half_features(accounts: Accounts, row: int) -> Floats:
    """Features of every second session of an account, at most MOST_SESSIONS; NaN if it has too few."""
    if accounts.number[row] < FEWEST_SESSIONS:
        return np.full(FEATURES, np.nan)
    places = accounts.start[row] + np.arange(0, accounts.number[row], 2)[-MOST_SESSIONS:]
    return accounts.features(places)


def _merged(accounts: Accounts, groups: list[Longs], alike: Floats, random: Random) -> Merged | None:
    if not groups:
        return None
    thinning = fitting_thinning(accounts, groups, alike, random)
    singles = sum(map(len, groups))
    merged = list(merges(accounts, groups, thinning, min(MERGES, MERGES_A_SINGLE * singles), random))
    features = [accounts.features(places) for places, _ in merged]
    return Merged([places for places, _ in merged], np.array(features), np.array([count for _, count in merged]))


def likeness(found: Floats) -> float:
    """The mean evidence of pairs [N, N] that they are one person's: the first feature of a count."""
    return float(found.sum() / max(len(found) * (len(found) - 1), 1))


def most_likely(score: Floats) -> Longs:
    """The accounts that are taken to be one person's: those with the largest scores; NaN is none."""
    known = np.flatnonzero(~np.isnan(score))
    return known[np.argsort(-score[known], kind="stable")[: round(SINGLES * len(score))]]


def by_fold(singles: Longs, fold: Longs) -> list[Longs]:
    """The singles of each fold, which the same tables describe; folds with fewer than can be merged are left out."""
    groups = [singles[fold[singles] == part] for part in np.unique(fold[singles])]
    return [group for group in groups if len(group) >= MOST_PEOPLE]


def merges(
    accounts: Accounts, groups: list[Longs], thinning: float, number: int, random: Random
) -> Iterator[tuple[Longs, int]]:
    """Sessions of merged accounts and how many were merged, each count as often as another.

    Args:
        thinning: of each of k accounts a share k ** -thinning of its sessions is kept: 0 all, 1 as many as one has.
    """
    for place in range(number):
        count = place % MOST_PEOPLE + 1
        chosen = random.choice(groups[random.integers(len(groups))], size=count, replace=False)
        kept = []
        for row in chosen.tolist():
            most = max(2, round(accounts.number[row] * count**-thinning))
            kept.append(accounts.start[row] + np.sort(random.permutation(accounts.number[row])[:most])[-MOST_SESSIONS:])
        yield np.concatenate(kept), count


def fitting_thinning(accounts: Accounts, groups: list[Longs], alike: Floats, random: Random) -> float:
    """How far merged accounts are thinned, 0 to 1, so that length and likeness go together as they do in the logs."""
    known = ~np.isnan(alike)
    wanted = rank_correlation(accounts.number[known], alike[known])
    whole, thinned = (_merged_correlation(accounts, groups, thinning, random) for thinning in (0.0, 1.0))
    return float(np.clip((wanted - whole) / max(thinned - whole, 1e-9), 0, 1))


def _merged_correlation(accounts: Accounts, groups: list[Longs], thinning: float, random: Random) -> float:
    trials = min(TRIALS, TRIALS_A_SINGLE * sum(map(len, groups)))
    merged = [places for places, _ in merges(accounts, groups, thinning, trials, random)]
    alike = np.array([likeness(accounts.evidence(places[::2])) for places in merged])
    return rank_correlation(np.array([len(places) for places in merged]), alike)


def rank_correlation(one: npt.NDArray[np.number], other: npt.NDArray[np.number]) -> float:
    """Spearman's, equal values in the order they stand; 0 for fewer than two."""
    if len(one) < 2:
        return 0.0
    first, second = (np.argsort(np.argsort(values, kind="stable")) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])
