"""Estimate the number of people, one to five, from pairwise evidence, in a fixed number of array operations.

The count head is trained without labels, on merged accounts whose number of people is known by construction.

1. Assume that some accounts have one person: the fifth with the most similar sessions. Only every second session is
   used to select them, so that selection noise does not carry over to the rest.
2. Merge one to five of them into a new account with that count. If one of them hides a second person, the count is too
   low, so the head errs towards fewer people.
3. Use the trained head to select again the fifth most likely to have one person, and train on both kinds of merges. The
   first selection has more hidden people, the second more accounts that are easy to count.
4. In some data, accounts of more people have longer logs; in others not. Sessions of merged accounts are subsampled
   until log length and session similarity correlate as they do in the data.

Shapes: B accounts of N sessions each (any leading axes, also none), A accounts, S sessions, F features, K people.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign_each, fits, ratios_of, softmax
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.pair_evidence import Contrast, Learned, evidence, learned_from
from lightgc2n.people.session_features import Sessions
from lightgc2n.people.sessions import Floats, Logs, equal_sizes, spread
from lightgc2n.progress import tracked

SHARES = np.array([0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0])  # assumed shares of pairs by one person
OF_EVIDENCE = 3 + len(SHARES) + 3 * MOST_PEOPLE  # features of the evidence; two more follow
FEATURES = OF_EVIDENCE + 2
FARTHEST = 4  # standard deviations; features are clipped here
ROUNDING = 1e-9  # a feature with a smaller spread is constant
STEPS, RATE, DECAY = 600, 0.05, 0.03
CAUTION = 1.0  # default log odds in favour of one person in a decision
MOST_SPLIT = 0.15  # largest share of single-person accounts that may be split, if labels are known
SINGLES = 0.2  # share of accounts assumed to have one person
FEWEST_SESSIONS = 8  # of an account assumed to have one person
MOST_SESSIONS = 150  # of an account; the number of pairs grows with the square
MOST_MERGED_SESSIONS = 300  # of merged accounts
MOST_MERGED_SPLIT = 0.05  # share of "merges" of one account that may be split; low, as their sessions are very similar
PRIOR = np.array([0.28, 0.28, 0.2, 0.16, 0.08])  # default distribution of the number of people
MERGES, TRIALS = 1000, 300  # at most
MERGES_A_SINGLE, TRIALS_A_SINGLE = 10, 3  # limits per single: merging few accounts over and over adds nothing
Random = np.random.Generator


def count_features(evidence: Floats, size: Longs, again: float | Floats) -> Floats:
    """Return the features of each account [B, F]; not the length of its log, which says little about people.

    Args:
        evidence, size: as for `features_and_people`.
        again: as for `with_more`.
    """
    return with_more(features_and_people(evidence, size)[0], size, again)


def with_more(of_evidence: Floats, size: Longs, again: float | Floats) -> Floats:
    """Return the features of the evidence and two more: how much sessions differ in size, and how often items recur.

    Args:
        of_evidence: what `features_and_people` returns first [B, OF_EVIDENCE].
        again: the share of items that an earlier session of the account holds too [B].
    """
    more = np.stack([np.log(size).std(axis=-1), np.log1p(100 * np.asarray(again))], axis=-1)
    return np.concatenate([of_evidence, more], axis=-1)


def features_and_people(evidence: Floats, size: Longs) -> tuple[Floats, list[Floats]]:
    """Return the features of the evidence [B, OF_EVIDENCE], and the sessions assigned to one person, two, ... five.

    Args:
        evidence: log(p_same / p_other) of each pair [B, N, N], symmetric, 0 on the diagonal.
        size: events of each session [B, N].
    """
    number = evidence.shape[-1]
    one, other = np.triu_indices(number, 1)
    pairs = evidence[..., one, other] if number > 1 else np.zeros((*evidence.shape[:-2], 1))
    likely = share_likelihoods(pairs)
    most_likely = SHARES[likely.argmax(axis=-1)]
    missing = [(0, 0)] * (evidence.ndim - 2) + [(0, max(MOST_PEOPLE - number, 0))]
    spectrum = np.pad(np.linalg.eigvalsh(evidence)[..., ::-1], missing)[..., :MOST_PEOPLE] / number
    assigned = assign_each(evidence, size, range(1, MOST_PEOPLE + 1))
    held, fit = _agreements(evidence, size, assigned)
    shape = np.stack([pairs.mean(axis=-1), pairs.std(axis=-1), most_likely], axis=-1)
    return np.concatenate([shape, likely, spectrum, held, fit], axis=-1), assigned


def share_likelihoods(pairs: Floats) -> Floats:
    """Return the mean log likelihood of pairs [B, P] for each of SHARES, relative to a share of 0."""
    above = np.expm1(pairs)
    return np.stack([np.log1p(share * above).mean(axis=-1) for share in SHARES], axis=-1)


def _agreements(evidence: Floats, size: Longs, assigned: list[Floats]) -> tuple[Floats, Floats]:
    """Return what each further person explains, per session: evidence within people, and the fit of sessions."""
    bounds = np.cumsum([belongs.shape[-1] for belongs in assigned])
    belongs, weight = np.concatenate(assigned, axis=-1), np.sqrt(size)[..., None]
    inside = (belongs * (evidence @ belongs)).sum(axis=-2)
    fit = (belongs * fits(ratios_of(evidence), belongs * weight)).sum(axis=-2)
    sums = (
        np.stack([part.sum(axis=-1) for part in np.split(one, bounds[:-1], axis=-1)], axis=-1) for one in (inside, fit)
    )
    held, fitting = (np.diff(total, prepend=0, axis=-1) / evidence.shape[-1] for total in sums)
    return held, fitting


@dataclass(frozen=True)
class CountHead:
    """Softmax regression on features and their squares, for counts of one to five."""

    centre: Floats  # [F]
    spread: Floats  # [F]
    weights: Floats  # [2 F + 1, K]
    caution: float = CAUTION

    @property
    def taught(self) -> bool:
        """Whether the head depends on the evidence; if not, it always predicts one person."""
        return bool(self.weights[1:].any())


def plain_head(features: int = FEATURES) -> CountHead:
    """Return a head that predicts one person regardless of the evidence, for data too small to learn from."""
    weights = np.zeros((2 * features + 1, MOST_PEOPLE))
    weights[0, 0] = np.log(4.0 * (MOST_PEOPLE - 1))  # four to one
    return CountHead(np.zeros(features), np.ones(features), weights)


def learn_head(features: Floats, people: Longs, prior: Floats | None = None, decay: float = DECAY) -> CountHead:
    """Fit a head to accounts whose number of people is known: cross-entropy with weight decay, by Adam.

    Args:
        people: the number of people of each account, 1 to 5.
        prior: expected frequency of each count, if different from these accounts.
    """
    target = np.eye(MOST_PEOPLE)[people - 1]
    weight = np.ones(len(people)) if prior is None else prior[people - 1] / target.mean(axis=0)[people - 1]
    spread = features.std(axis=0)
    weights = np.zeros((2 * features.shape[1] + 1, MOST_PEOPLE))
    head = CountHead(features.mean(axis=0), np.where(spread > ROUNDING, spread, np.inf), weights)
    rows = expanded(head, features)
    mean, square = np.zeros((2, *head.weights.shape))
    for step in range(1, STEPS + 1):
        slope = slopes(head, rows, target, weight / weight.sum(), decay)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        change = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        head = replace(head, weights=head.weights - RATE * (1 - step / STEPS) * change)
    return head


def slopes(head: CountHead, rows: Floats, target: Floats, weight: Floats, decay: float) -> Floats:
    """Return the gradient of the cross-entropy plus half the decay times the squared weights.

    Args:
        rows: expanded features [A, 2 F + 1].
        target: 1 at the true count [A, K].
        weight: of each account [A].
    """
    return rows.T @ ((softmax(rows @ head.weights) - target) * weight[:, None]) + decay * head.weights


def chances(head: CountHead, features: Floats) -> Floats:
    """Return the probability of each count for each account [A, K]; rows sum to one."""
    return softmax(expanded(head, features) @ head.weights)


def expanded(head: CountHead, features: Floats) -> Floats:
    """Return a constant, the standardised features, and half their squares [A, 2 F + 1]."""
    known = features[:, : len(head.centre)]  # a stored head may be older than the last features
    scaled = np.clip((known - head.centre) / head.spread, -FARTHEST, FARTHEST)
    return np.hstack([np.ones((len(scaled), 1)), scaled, (scaled**2 - 1) / 2])


def at_most(likely: Floats, most: int) -> Floats:
    """Return the probabilities [A, K] restricted to at most `most` people."""
    possible = np.where(np.arange(likely.shape[-1]) < most, likely, 0)
    return possible / possible.sum(axis=-1, keepdims=True)


def decide(likely: Floats, caution: float) -> Longs:
    """Return the most likely count of each account; `caution` favours one person."""
    favour = np.zeros(likely.shape[1])
    favour[0] = caution
    return (np.log(likely + 1e-12) + favour).argmax(axis=1) + 1


def fitting_caution(likely: Floats, people: Longs, most: float = MOST_SPLIT) -> float:
    """Return the smallest caution that splits at most the share `most` of single-person accounts."""
    if not (people == 1).any():
        return CAUTION
    odds = np.log(likely[people == 1] + 1e-12)
    needed = np.maximum(odds[:, 1:].max(axis=1) - odds[:, 0], 0)
    return float(np.quantile(needed, 1 - most, method="higher"))


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
        features = np.zeros((len(chosen), FEATURES))
        for rows, places in tracked(f"finding people: {what}", list(together(chosen))):
            pairs = evidence(self.sessions, self.contrast, places)
            features[rows] = count_features(pairs, self.sessions.size[places], self.sessions.again(places))
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
    features = np.full((len(accounts.fold), FEATURES), np.nan)
    known = np.flatnonzero(accounts.number >= FEWEST_SESSIONS)
    halves = [accounts.start[row] + np.arange(0, accounts.number[row], 2)[-MOST_SESSIONS:] for row in known.tolist()]
    features[known] = accounts.features(halves)
    return features


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
