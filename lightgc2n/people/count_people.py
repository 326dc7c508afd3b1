"""Estimate the number of people, one to five, from pairwise evidence, in a fixed number of array operations.

The head that estimates it is trained without labels, in `count_training`.

Shapes: B accounts of N sessions each (any leading axes, also none), A accounts, F features, K people.
"""

from dataclasses import dataclass, replace

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import assign_each, fits, likelihoods, ratios_of, softmax
from lightgc2n.people.clustering import MOST_PEOPLE
from lightgc2n.people.habits import View
from lightgc2n.people.sessions import Floats

SHARES = np.array([0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0])  # assumed shares of pairs by one person
OF_EVIDENCE = 3 + len(SHARES) + 3 * MOST_PEOPLE  # features of the evidence; two more follow
OF_HABITS = MOST_PEOPLE - 1  # features of habits, the last ones
WITHOUT_HABITS = OF_EVIDENCE + 2
FEATURES = WITHOUT_HABITS + OF_HABITS
FARTHEST = 4  # standard deviations; features are clipped here
ROUNDING = 1e-9  # a feature with a smaller spread is constant
STEPS, RATE, DECAY = 600, 0.05, 0.03
CAUTION = 1.0  # default log odds in favour of one person in a decision
MOST_SPLIT = 0.15  # largest share of single-person accounts that may be split, if labels are known


def features_and_people(
    evidence: Floats, size: Longs, again: float | Floats, habits: View | None = None
) -> tuple[Floats, list[Floats]]:
    """Return the features of each account [B, F], and the sessions assigned to one person, two, ... five.

    The length of the log is no feature, as it says little about people. After the features of the evidence: how much
    sessions differ in size, how often items recur, and, with habits, how much likelier each further person makes the
    sessions.

    Args:
        evidence: log(p_same / p_other) of each pair [B, N, N], symmetric, 0 on the diagonal.
        size: events of each session [B, N].
        again: the share of items that an earlier session of the account holds too [B].
        habits: of the same sessions.
    """
    number = evidence.shape[-1]
    one, other = np.triu_indices(number, 1)
    pairs = evidence[..., one, other] if number > 1 else np.zeros((*evidence.shape[:-2], 1))
    likely = share_likelihoods(pairs)
    most_likely = SHARES[likely.argmax(axis=-1)]
    missing = [(0, 0)] * (evidence.ndim - 2) + [(0, max(MOST_PEOPLE - number, 0))]
    spectrum = np.pad(np.linalg.eigvalsh(evidence)[..., ::-1], missing)[..., :MOST_PEOPLE] / number
    assigned = assign_each(evidence, size, range(1, MOST_PEOPLE + 1), habits)
    held, fit = _agreements(evidence, size, assigned)
    shape = np.stack([pairs.mean(axis=-1), pairs.std(axis=-1), most_likely], axis=-1)
    more = np.stack([np.log(size).std(axis=-1), np.log1p(100 * np.asarray(again))], axis=-1)
    features = [shape, likely, spectrum, held, fit, more]
    if habits is not None:
        features.append(np.diff(likelihoods(evidence, size, assigned, habits), axis=-1) / number)
    return np.concatenate(features, axis=-1), assigned


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


def plain_head(features: int = WITHOUT_HABITS) -> CountHead:
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
    target, weight = exact_targets(people, prior)
    return fit_head(features, target, weight, decay)


def exact_targets(people: Longs, prior: Floats | None = None) -> tuple[Floats, Floats]:
    """Return 1 at the true count of each account [A, K], and its weight [A]; weights sum to one."""
    target = np.eye(MOST_PEOPLE)[people - 1]
    weight = np.ones(len(people)) if prior is None else prior[people - 1] / target.mean(axis=0)[people - 1]
    return target, weight / weight.sum()


def fit_head(features: Floats, target: Floats, weight: Floats, decay: float = DECAY) -> CountHead:
    """Fit a head to accounts whose number of people is known with these probabilities.

    Args:
        target: the probability of each count [A, K].
        weight: of each account [A].
    """
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
