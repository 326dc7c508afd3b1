"""Train the head that counts people without labels, on merged accounts whose number of people is known by construction.

1. Assume that some accounts have one person: the fifth with the most similar sessions. Only every second session is
   used to select them, so that selection noise does not carry over to the rest.
2. Merge one to five of them into a new account with that count. If one of them hides a second person, the count is too
   low, so the head errs towards fewer people.
3. Use the trained head to select again the fifth most likely to have one person, and train on both kinds of merges. The
   first selection has more hidden people, the second more accounts that are easy to count.
4. Merge pairs of random accounts, half of the sessions of each. Accounts that such pairs do not look like are likely to
   have one person, and are merged as well. The pairs train the head too: their count is the sum of two estimates.
5. In some data, accounts of more people have longer logs; in others not. Sessions of merged accounts are subsampled
   until log length and session similarity correlate as they do in the data. The pairs of random accounts are as long as
   one account, so their weight is smaller the more length tells.

Shapes: B accounts of N sessions each, A accounts, S sessions, P pairs of accounts, F features, K people.
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
    WITHOUT_HABITS,
    CountHead,
    chances,
    exact_targets,
    features_and_people,
    fit_head,
    fitting_caution,
    learn_head,
    plain_head,
)
from lightgc2n.people.habit_training import learn_habits, with_weights
from lightgc2n.people.habits import Habits
from lightgc2n.people.pair_evidence import Contrast, Learned, evidence, learned_from
from lightgc2n.people.random_pairs import chances_of_one, counts_of_pairs, with_shares
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import Floats, Logs, equal_sizes, spread
from lightgc2n.progress import tracked

SINGLES = 0.2  # share of accounts assumed to have one person
FEWEST_SESSIONS = 8  # of an account assumed to have one person
MOST_SESSIONS = 150  # of an account; the number of pairs grows with the square
MOST_MERGED_SESSIONS = 300  # of merged accounts
MOST_MERGED_SPLIT = 0.05  # share of "merges" of one account that may be split; low, as their sessions are very similar
PRIOR = np.array([0.28, 0.28, 0.2, 0.16, 0.08])  # default distribution of the number of people
MERGES, TRIALS = 1000, 300  # at most
MERGES_A_SINGLE, TRIALS_A_SINGLE = 10, 3  # limits per single: merging few accounts over and over adds nothing
PAIRS_AN_ACCOUNT = 2  # limit: pairs of random accounts, at most MERGES
PARTS = 4  # of the accounts that are compared with pairs of the others
PAIR_ROUNDS = 2  # of estimating the counts of pairs and learning from them
EITHER = np.array([0.5, 0.5, 0.0, 0.0, 0.0])  # accounts and pairs equally often
Random = np.random.Generator


@dataclass(frozen=True)
class Accounts:
    """Accounts to merge: their sessions, and the contrast that compares sessions."""

    sessions: Sessions
    contrast: Contrast
    fold: Longs  # [A]
    start: Longs  # [A] position of the first session
    number: Longs  # [A] number of sessions
    habits: Habits | None = None

    def features(self, chosen: Sequence[Longs], what: str = "sessions of each account") -> Floats:
        """Return the count features of each set of sessions [A, F]; no set may be empty."""
        features = np.zeros((len(chosen), WITHOUT_HABITS if self.habits is None else FEATURES))
        for rows, places in tracked(f"finding people: {what}", list(together(chosen))):
            pairs = evidence(self.sessions, self.contrast, places)
            view = None if self.habits is None else self.habits.of(self.sessions, self.fold, places)
            again = self.sessions.again(places)
            features[rows] = features_and_people(pairs, self.sessions.size[places], again, view)[0]
        return features

    def likeness(self, chosen: Sequence[Longs]) -> Floats:
        """Return the mean evidence of all pairs of each set of sessions [A], the first feature of a count."""
        means = np.zeros(len(chosen))
        for rows, places in together(chosen):
            number = places.shape[1]
            pairs = evidence(self.sessions, self.contrast, places)
            means[rows] = pairs.sum(axis=(1, 2)) / max(number * (number - 1), 1)
        return means


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


@dataclass(frozen=True)
class Pairs:
    """Pairs of random accounts, merged."""

    rows: Longs  # [A] the accounts
    of_accounts: Floats  # [A, F] their own features
    members: Longs  # [P, 2] the accounts of each pair, as positions in `rows`
    features: Floats  # [P, F]


def learn_count(training: Logs, learned: Learned, random: Random) -> tuple[CountHead, Habits | None]:
    """Train the count head on merged accounts, and learn the habits that it counts by.

    With too few accounts it always predicts one person, and nothing is learned of habits.
    """
    accounts = learned_from(training, random)
    fold = learned.fold[accounts]
    sessions = learned.described(training.of_accounts(accounts), fold)
    bounds = np.searchsorted(sessions.owner, np.arange(len(fold) + 1))
    habits = learn_habits(sessions, fold, learned.tables, learned.contrast, random.spawn(1)[0])
    found = merged_anew(Accounts(sessions, learned.contrast, fold, bounds[:-1], np.diff(bounds), habits), random)
    if found is None:
        return plain_head(), None
    weighed, merged, pairs, pair_weight = found
    return head_of(merged, pairs, pair_weight), weighed.habits


def head_of(merged: Merged, pairs: Pairs | None = None, pair_weight: float = 0.0) -> CountHead:
    """Train a head on merged accounts and on pairs of random accounts, with the caution that merged accounts need."""
    head = learn_head(merged.features, merged.people, PRIOR)
    target, weight = exact_targets(merged.people, PRIOR)
    for _ in range(PAIR_ROUNDS if pairs is not None and pair_weight > 0 else 0):
        assert pairs is not None
        likely = with_shares(chances(head, pairs.of_accounts), PRIOR)
        guessed, importance = counts_of_pairs(likely, pairs.members, PRIOR)
        head = fit_head(
            np.concatenate([merged.features, pairs.features]),
            np.concatenate([target, guessed]),
            np.concatenate([weight, pair_weight * (1 - PRIOR[0]) * importance]),
        )
    return replace(head, caution=fitting_caution(chances(head, merged.features), merged.people, MOST_MERGED_SPLIT))


def merged_anew(accounts: Accounts, random: Random) -> tuple[Accounts, Merged, Pairs, float] | None:
    """Return merged accounts of three selections, and pairs of random accounts with their weight.

    Before them the accounts with weights of their habits, which are learned from the first selection. None with too few
    accounts.
    """
    fold = accounts.fold
    known, every_second = _halves(accounts)
    alike = np.full(len(fold), np.nan)
    alike[known] = accounts.likeness(every_second)
    groups = by_fold(most_likely(alike), fold)
    if not groups:
        return None
    thinning = fitting_thinning(accounts, groups, alike, random)
    places, people = _merges(accounts, groups, thinning, random)
    if accounts.habits is not None:
        weighed = accounts.habits, accounts.sessions, fold, accounts.contrast, places, random.spawn(1)[0]
        accounts = replace(accounts, habits=with_weights(*weighed))
    first = _merged(accounts, places, people)
    features = accounts.features(every_second)
    halves = np.full((len(fold), features.shape[1]), np.nan)
    halves[known] = features
    head = learn_head(first.features[:, :OF_EVIDENCE], first.people, PRIOR)  # select by the evidence alone, as before
    pairs = random_pairs(accounts, random)
    found = [first]
    for groups in (
        by_fold(most_likely(chances(head, halves)[:, 0]), fold),
        by_fold(unlike_pairs(pairs, len(fold), random), fold),
    ):
        if groups:
            again = fitting_thinning(accounts, groups, alike, random)
            found.append(_merged(accounts, *_merges(accounts, groups, again, random)))
    features, people = (np.concatenate([getattr(one, name) for one in found]) for name in ("features", "people"))
    merged = Merged([places for one in found for places in one.places], features, people)
    return accounts, merged, pairs, thinning


def random_pairs(accounts: Accounts, random: Random) -> Pairs:
    """Merge pairs of random accounts of a fold, half of the sessions of each."""
    rows = np.flatnonzero(accounts.number >= FEWEST_SESSIONS)
    whole = [accounts.start[row] + np.arange(accounts.number[row])[-MOST_SESSIONS:] for row in rows.tolist()]
    groups = by_fold(rows, accounts.fold)
    drawn = [
        random.choice(groups[random.integers(len(groups))], size=2, replace=False)
        for _ in range(min(MERGES, PAIRS_AN_ACCOUNT * len(rows)))
    ]
    places = [_together(accounts, members, 1.0, random) for members in drawn]
    features = accounts.features(places, "pairs of accounts")
    return Pairs(rows, accounts.features(whole), np.searchsorted(rows, np.array(drawn)), features)


def unlike_pairs(pairs: Pairs, accounts: int, random: Random) -> Longs:
    """Draw accounts that are likely to have one person, as merged pairs of other accounts look different."""
    part = random.permutation(len(pairs.rows)) % PARTS
    odds = np.zeros(len(pairs.rows))
    for one in range(PARTS):
        others, apart = part != one, (part[pairs.members] != one).all(axis=1)
        features = np.concatenate([pairs.of_accounts[others], pairs.features[apart]])
        head = learn_head(features, np.repeat([1, 2], [others.sum(), apart.sum()]), EITHER)
        likely = np.log(chances(head, pairs.of_accounts[~others]) + 1e-12)
        odds[~others] = likely[:, 0] - likely[:, 1]
    chance = chances_of_one(odds, SINGLES * accounts / len(odds))
    return pairs.rows[random.random(len(odds)) < chance]


def _halves(accounts: Accounts) -> tuple[Longs, list[Longs]]:
    """Return the accounts with enough sessions, and every second session of each, at most MOST_SESSIONS."""
    known = np.flatnonzero(accounts.number >= FEWEST_SESSIONS)
    return known, [
        accounts.start[row] + np.arange(0, accounts.number[row], 2)[-MOST_SESSIONS:] for row in known.tolist()
    ]


def _merges(accounts: Accounts, groups: list[Longs], thinning: float, random: Random) -> tuple[list[Longs], Longs]:
    """Return the sessions of merged accounts, and their counts."""
    number = min(MERGES, MERGES_A_SINGLE * sum(map(len, groups)))
    merged = list(merges(accounts, groups, thinning, number, random))
    return [places for places, _ in merged], np.array([count for _, count in merged])


def _merged(accounts: Accounts, places: list[Longs], people: Longs) -> Merged:
    return Merged(places, accounts.features(places, "how many there are"), people)


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
        yield _together(accounts, chosen, thinning, random), count


def _together(accounts: Accounts, chosen: Longs, thinning: float, random: Random) -> Longs:
    """Return the sessions of a merged account; `thinning` as for `merges`."""
    sessions = []
    for row in chosen.tolist():
        most = max(2, round(accounts.number[row] * len(chosen) ** -thinning))
        drawn = np.sort(random.permutation(accounts.number[row])[:most])
        sessions.append(accounts.start[row] + drawn[-MOST_SESSIONS:])
    places = np.concatenate(sessions)
    return places[spread(len(places), min(len(places), MOST_MERGED_SESSIONS))]


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
