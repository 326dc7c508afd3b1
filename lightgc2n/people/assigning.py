"""Assign sessions to people from pairwise evidence, in a fixed number of array operations.

Shapes: N sessions of one account, K people.
"""

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.sessions import Floats

CENTRE_STEPS, STEPS = 10, 20
FIT_WEIGHT, SUM_WEIGHT = 3.0, 0.1
DOUBT = 0.2  # probability spread over all people when mean field starts


def softmax(scores: Floats) -> Floats:
    """Return the softmax along the last axis."""
    likely = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return likely / likely.sum(axis=-1, keepdims=True)


def assign(evidence: Floats, size: Longs, people: int) -> Floats:
    """Return the probability that each session belongs to each person, [N, K]; rows sum to one.

    Args:
        evidence: log(p_same / p_other) of each pair [N, N], symmetric, 0 on the diagonal.
        size: events of each session; a session is weighted by the square root of its size.
        people: the number of people.
    """
    if len(evidence) <= people:
        return np.eye(people)[: len(evidence)]  # no more sessions than people: each person has at most one
    weight = np.sqrt(size)
    belongs = (1 - DOUBT) * spectral_start(evidence, weight, people) + DOUBT / people
    for _ in range(STEPS):
        belongs = mean_field_step(evidence, weight, belongs)
    return belongs


def spectral_start(evidence: Floats, weight: Floats, people: int) -> Floats:
    """Cluster sessions by the leading eigenvectors of the evidence, scaled by the root of their eigenvalues; 0 or 1."""
    values, vectors = np.linalg.eigh(evidence * np.sqrt(weight[:, None] * weight))
    points = vectors[:, -people:] * np.sqrt(np.maximum(values[-people:], 0))
    centres = points[[(points**2).sum(axis=1).argmax()]]
    for _ in range(people - 1):  # farthest-point initialisation
        farthest = _squared_distances(points, centres).min(axis=1).argmax()
        centres = np.vstack([centres, points[farthest]])
    for _ in range(CENTRE_STEPS):
        nearest = np.eye(people)[_squared_distances(points, centres).argmin(axis=1)]
        centres = nearest.T @ points / np.maximum(nearest.sum(axis=0), 1e-9)[:, None]
    return nearest


def _squared_distances(points: Floats, centres: Floats) -> Floats:
    return ((points[:, None] - centres) ** 2).sum(axis=2)


def mean_field_step(evidence: Floats, weight: Floats, belongs: Floats) -> Floats:
    """Update the assignment of each session given the others, by its fit and, slightly, by the plain sum."""
    return _shares(fits(evidence, weight, belongs), evidence @ (belongs * weight[:, None]))


def assign_others(evidence: Floats, weight: Floats, belongs: Floats) -> Floats:
    """Assign M further sessions [M, K], given the assignment of N sessions, in one mean-field step.

    Args:
        evidence: of each pair of one of the M and one of the N sessions [M, N].
    """
    mass = belongs * weight[:, None]
    return _shares(np.log((np.exp(evidence) @ mass + 1) / (mass.sum(axis=0) + 1)), evidence @ mass)


def _shares(fit: Floats, total: Floats) -> Floats:
    return softmax(FIT_WEIGHT * fit + SUM_WEIGHT * total)


def fits(evidence: Floats, weight: Floats, belongs: Floats) -> Floats:
    """Return how well each session fits each person's other sessions, [N, K].

    The fit is log((sum of ratios + 1) / (sum of weights + 1)).

    A person may have several tastes, so the ratios are averaged, not their logarithms.
    """
    mass = belongs * weight[:, None]
    ratios = np.exp(evidence) - np.eye(len(evidence))  # exclude the session itself
    return np.log((ratios @ mass + 1) / (mass.sum(axis=0) - mass + 1))
