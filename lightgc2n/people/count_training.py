"""Train the count head without labels, on merged accounts whose number of people is known by construction.

1. Assume that some accounts have one person: the fifth with the most similar sessions. Only every second session is
   used to select them, so that selection noise does not carry over to the rest.
2. Merge one to five of them into a new account with that count. If one of them hides a second person, the count is too
   low, so the head errs towards fewer people.
3. Use the trained head to select again the fifth most likely to have one person, and train on both kinds of merges. The
   first selection has more hidden people, the second more accounts that are easy to count.
4. In some data, accounts of more people have longer logs; in others not. Sessions of merged accounts are subsampled
   until log length and session similarity correlate as they do in the data.

Shapes: S sessions, A accounts, N sessions of one account.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.people.clustering import MOST_PEOPLE
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
from lightgc2n.people.pair_evidence import Contrast, Learned, evidence, learned_from
from lightgc2n.people.progress_hook import tracked
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import Floats, Logs, equal_sizes, spread

SINGLES = 0.2  # share of accounts assumed to have one person
FEWEST_SESSIONS = 8  # of an account assumed to have one person
MOST_SESSIONS = 150  # of an account; the number of pairs grows with the square
MOST_MERGED_SESSIONS = 300  # of merged accounts
MOST_MERGED_SPLIT = 0.05  # share of "merges" of one account that may be split; low, as their sessions are very similar
PRIOR = np.array([0.28, 0.28, 0.2, 0.16, 0.08])  # default distribution of the number of people
MERGES, TRIALS = 1000, 300  # at most
MERGES_A_SINGLE, TRIALS_A_SINGLE = 10, 3  # limits per single: merging few accounts over and over adds nothing
Random = np.random.Generator


@dataclass(frozen=True)
class Accounts:
    """Accounts to merge: their sessions, and the contrast that compares sessions."""

    sessions: Sessions
    contrast: Contrast
    fold: Longs  # [A]
    start: Longs  # [A] position of the first session
    number: Longs  # [A] number of sessions

    def features(self, chosen: Sequence[Longs], what: str = "sessions of each account") -> Floats:
        """Return the count features of each set of sessions [A, F]; no set may be empty."""
        found = np.zeros((len(chosen), FEATURES))
        for rows, places in tracked(f"finding people: {what}", list(together(chosen))):
            pairs = evidence(self.sessions, self.contrast, places)
            found[rows] = count_features(pairs, self.sessions.size[places], self.sessions.again(places))
        return found

    def likeness(self, chosen: Sequence[Longs]) -> Floats:
        """Return the mean evidence of all pairs of each set of sessions [A], the first feature of a count."""
        found = np.zeros(len(chosen))
        for rows, places in together(chosen):
            number = places.shape[1]
            pairs = evidence(self.sessions, self.contrast, places)
            found[rows] = pairs.sum(axis=(1, 2)) / max(number * (number - 1), 1)
        return found


def together(chosen: Sequence[Longs]) -> Iterator[tuple[Longs, Longs]]:
    """Yield sets of equally many sessions: which they are, and their positions [B, N]."""
    for rows in equal_sizes(np.array([len(places) for places in chosen], dtype=np.int64)):
        yield rows, np.stack([chosen[row] for row in rows.tolist()])


@dataclass(frozen=True)
class Merged:
    """Merged accounts with known counts."""

    places: list[Longs]  # positions of the sessions of each merged account
    features: Floats  # [A, F]
    people: Longs  # [A]


def learn_count(training: Logs, learned: Learned, random: Random) -> CountHead:
    """Train the count head on merged accounts; with too few accounts it always predicts one person."""
    accounts = learned_from(training, random)
    fold = learned.fold[accounts]
    sessions = learned.described(training.of_accounts(accounts), fold)
    merged = merged_anew(sessions, learned.contrast, fold, random)
    return plain_head() if merged is None else head_of(merged.features, merged.people)


def head_of(features: Floats, people: Longs, most_split: float = MOST_MERGED_SPLIT) -> CountHead:
    """Train a head on merged accounts, with the caution that these need."""
    head = learn_head(features, people, PRIOR)
    return replace(head, caution=fitting_caution(chances(head, features), people, most_split))


def merged_anew(sessions: Sessions, contrast: Contrast, fold: Longs, random: Random) -> Merged | None:
    """Return merged accounts of both selections; None with too few accounts."""
    bounds = np.searchsorted(sessions.owner, np.arange(len(fold) + 1))
    accounts = Accounts(sessions, contrast, fold, bounds[:-1], np.diff(bounds))
    halves = _half_features(accounts)
    alike = halves[:, 0]
    first = _merged(accounts, by_fold(most_likely(alike), fold), alike, random)
    if first is None:
        return None
    head = learn_head(first.features[:, :OF_EVIDENCE], first.people, PRIOR)  # select by the evidence alone, as before
    single = chances(head, halves)[:, 0]
    second = _merged(accounts, by_fold(most_likely(single), fold), alike, random) or first
    features, people = (
        np.concatenate([getattr(one, name) for one in (first, second)]) for name in ("features", "people")
    )
    return Merged(first.places + second.places, features, people)


def _half_features(accounts: Accounts) -> Floats:
    """Return the features of every second session of each account, at most MOST_SESSIONS; NaN if it has too few."""
    found = np.full((len(accounts.fold), FEATURES), np.nan)
    known = np.flatnonzero(accounts.number >= FEWEST_SESSIONS)
    halves = [accounts.start[row] + np.arange(0, accounts.number[row], 2)[-MOST_SESSIONS:] for row in known.tolist()]
    found[known] = accounts.features(halves)
    return found


def _merged(accounts: Accounts, groups: list[Longs], alike: Floats, random: Random) -> Merged | None:
    if not groups:
        return None
    thinning = fitting_thinning(accounts, groups, alike, random)
    singles = sum(map(len, groups))
    merged = list(merges(accounts, groups, thinning, min(MERGES, MERGES_A_SINGLE * singles), random))
    places = [places for places, _ in merged]
    return Merged(places, accounts.features(places, "how many there are"), np.array([count for _, count in merged]))


def most_likely(score: Floats) -> Longs:
    """Return the accounts assumed to have one person: those with the largest scores; NaN is excluded."""
    known = np.flatnonzero(~np.isnan(score))
    return known[np.argsort(-score[known], kind="stable")[: round(SINGLES * len(score))]]


def by_fold(singles: Longs, fold: Longs) -> list[Longs]:
    """Return the singles of each fold, which share item tables; folds with too few to merge are left out."""
    groups = [singles[fold[singles] == part] for part in np.unique(fold[singles])]
    return [group for group in groups if len(group) >= MOST_PEOPLE]


def merges(
    accounts: Accounts, groups: list[Longs], thinning: float, number: int, random: Random
) -> Iterator[tuple[Longs, int]]:
    """Yield the sessions of merged accounts and their count; all counts are equally frequent.

    Args:
        thinning: keep a share k ** -thinning of the sessions of each of k accounts: 0 keeps all, 1 as many as one has.
    """
    for place in range(number):
        count = place % MOST_PEOPLE + 1
        chosen = random.choice(groups[random.integers(len(groups))], size=count, replace=False)
        sessions = []
        for row in chosen.tolist():
            most = max(2, round(accounts.number[row] * count**-thinning))
            sessions.append(
                accounts.start[row] + np.sort(random.permutation(accounts.number[row])[:most])[-MOST_SESSIONS:]
            )
        places = np.concatenate(sessions)
        yield places[spread(len(places), min(len(places), MOST_MERGED_SESSIONS))], count


def fitting_thinning(accounts: Accounts, groups: list[Longs], alike: Floats, random: Random) -> float:
    """Return the thinning, 0 to 1, for which length and similarity correlate as they do in the data."""
    known = ~np.isnan(alike)
    wanted = rank_correlation(accounts.number[known], alike[known])
    whole, thinned = (_merged_correlation(accounts, groups, thinning, random) for thinning in (0.0, 1.0))
    return float(np.clip((wanted - whole) / max(thinned - whole, 1e-9), 0, 1))


def _merged_correlation(accounts: Accounts, groups: list[Longs], thinning: float, random: Random) -> float:
    trials = min(TRIALS, TRIALS_A_SINGLE * sum(map(len, groups)))
    merged = [places for places, _ in merges(accounts, groups, thinning, trials, random)]
    alike = accounts.likeness([places[::2] for places in merged])
    return rank_correlation(np.array([len(places) for places in merged]), alike)


def rank_correlation(one: npt.NDArray[np.number], other: npt.NDArray[np.number]) -> float:
    """Return Spearman's rank correlation, ties in order of position; 0 for fewer than two values."""
    if len(one) < 2:
        return 0.0
    first, second = (np.argsort(np.argsort(values, kind="stable")) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])
