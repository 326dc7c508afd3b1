"""What merges of two random accounts tell about the number of people, without labels.

A merge of two accounts has as many people as both together, and never one. Hence, if `odds` is how much more common an
account's features are among accounts than among such merges,

    p(one person | features) = 1 - share of several people * p(features | several) / p(features) = 1 - scale / odds,

where several people are assumed to look like merges. And if it is known how likely each account has one person, two,
..., then so it is for each merge: a convolution.

Shapes: A accounts, P pairs of accounts, K people.
"""

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.assigning import softmax
from lightgc2n.people.sessions import Floats

HALVINGS, ROUNDS = 60, 50
SMALLEST = 1e-12


def chances_of_one(log_odds: Floats, share: float) -> Floats:
    """Return the probability that each account has one person [A], with this mean if the odds allow it.

    Args:
        log_odds: of being an account rather than a merge of two accounts [A].
    """
    low, high = float(log_odds.min()), float(log_odds.max())  # of the logarithm of the scale
    for _ in range(HALVINGS):
        scale = (low + high) / 2
        likely = np.clip(-np.expm1(scale - log_odds), 0, 1)
        low, high = (scale, high) if likely.mean() > share else (low, scale)
    return likely


def with_shares(likely: Floats, shares: Floats) -> Floats:
    """Return the probabilities [A, K] multiplied by a factor for each count, so that their means are these shares."""
    scores = np.log(likely + SMALLEST)
    for _ in range(ROUNDS):
        scores = scores + np.log(shares) - np.log(softmax(scores).mean(axis=0) + SMALLEST)
    return softmax(scores)


def counts_of_pairs(likely: Floats, members: Longs, shares: Floats) -> tuple[Floats, Floats]:
    """Return the probabilities of the number of people of merged pairs [P, K], and the weight of each pair [P].

    Pairs of more than K people have no weight. The weights sum to one, and the weighted means of the probabilities are
    in proportion to the shares of two people, three, ...

    Args:
        likely: the probabilities of the number of people of each account [A, K].
        members: the two accounts of each pair [P, 2].
    """
    people = likely.shape[1]
    one, other = likely[members[:, 0]], likely[members[:, 1]]
    sums = np.zeros((len(members), people))
    for count in range(2, people + 1):
        sums[:, count - 1] = sum(one[:, first] * other[:, count - 2 - first] for first in range(count - 1))
    sums *= np.where(np.arange(people) > 0, shares, 0) / np.maximum(sums.sum(axis=0), SMALLEST)
    weight = sums.sum(axis=1)
    return sums / np.maximum(weight[:, None], SMALLEST), weight / max(float(weight.sum()), SMALLEST)
