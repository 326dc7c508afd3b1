"""From evidence about pairs of sessions to who did what: one function of a fixed number of array steps.

Shapes: N sessions of one account, K people.
"""

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.session_points import Floats

CENTRE_STEPS, STEPS = 10, 20
FIT_WEIGHT, SUM_WEIGHT = 3.0, 0.1
DOUBT = 0.2  # left to everybody when mean field begins


def assign(evidence: Floats, size: Longs, people: int) -> Floats:
    """How far each session is each person's, [N, K]; rows sum to one.

    Args:
        evidence: log(p_same / p_other) of each pair [N, N], symmetric, 0 on the diagonal.
        size: events of each session; a longer one counts more, by its root.
        people: how many there are.
    """
    if len(evidence) <= people:
        return np.eye(people)[: len(evidence)]  # nobody can be shown to have come twice
    weight = np.sqrt(size)
    belongs = (1 - DOUBT) * spectral_start(evidence, weight, people) + DOUBT / people
    for _ in range(STEPS):
        belongs = mean_field_step(evidence, weight, belongs)
    return belongs


def spectral_start(evidence: Floats, weight: Floats, people: int) -> Floats:
    """Sessions grouped by the leading eigenvectors of the evidence, each scaled by the root of its value; 0 or 1."""
    values, vectors = np.linalg.eigh(evidence * np.sqrt(weight[:, None] * weight))
    points = vectors[:, -people:] * np.sqrt(np.maximum(values[-people:], 0))
    centres = points[[(points**2).sum(axis=1).argmax()]]
    for _ in range(people - 1):  # each next centre is the point farthest from all so far
        farthest = _squared_distances(points, centres).min(axis=1).argmax()
        centres = np.vstack([centres, points[farthest]])
    for _ in range(CENTRE_STEPS):
        nearest = np.eye(people)[_squared_distances(points, centres).argmin(axis=1)]
        centres = nearest.T @ points / np.maximum(nearest.sum(axis=0), 1e-9)[:, None]
    return nearest


def _squared_distances(points: Floats, centres: Floats) -> Floats:
    return ((points[:, None] - centres) ** 2).sum(axis=2)


def mean_field_step(evidence: Floats, weight: Floats, belongs: Floats) -> Floats:
    """The shares of each session, given those of the others: by how well it fits, and a little by the plain sum."""
    return _shares(fits(evidence, weight, belongs), evidence @ (belongs * weight[:, None]))


def assign_others(evidence: Floats, weight: Floats, belongs: Floats) -> Floats:
    """The shares of M further sessions [M, K], given those of N, as in one mean-field step.

    Args:
        evidence: of each pair of one of the M and one of the N [M, N].
    """
    mass = belongs * weight[:, None]
    return _shares(np.log((np.exp(evidence) @ mass + 1) / (mass.sum(axis=0) + 1)), evidence @ mass)


def _shares(fit: Floats, total: Floats) -> Floats:
    score = FIT_WEIGHT * fit + SUM_WEIGHT * total
    likely = np.exp(score - score.max(axis=1, keepdims=True))
    return likely / likely.sum(axis=1, keepdims=True)


def fits(evidence: Floats, weight: Floats, belongs: Floats) -> Floats:
    """How well each session fits each person's other sessions [N, K]: log((sum of ratios + 1) / (sum of weights + 1)).

    A person may have several tastes, so what counts is the mean of ratios, not that of their logarithms.
    """
    mass = belongs * weight[:, None]
    ratios = np.exp(evidence) - np.eye(len(evidence))  # a session is no evidence about itself
    return np.log((ratios @ mass + 1) / (mass.sum(axis=0) - mass + 1))
