"""Assign sessions to people from pairwise evidence, in a fixed number of array operations, for many accounts at once.

Shapes: B accounts of N sessions each (any leading axes, also none), K people.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from lightgc2n.data.dataset import Longs
from lightgc2n.people.habits import View
from lightgc2n.people.sessions import Floats

CENTRE_STEPS, STEPS = 10, 20
FIT_WEIGHT, SUM_WEIGHT = 3.0, 0.1
DOUBT = 0.2  # probability spread over all people when mean field starts


def softmax(scores: Floats) -> Floats:
    """Return the softmax along the last axis, which is short: slice by slice is several times faster than `sum`."""
    likely = np.exp(scores - over_last(np.maximum, scores)[..., None])
    return np.asarray(likely / over_last(np.add, likely)[..., None])


def over_last(join: Callable[[Floats, Floats], Floats], values: Floats) -> Floats:
    """Reduce a short last axis, one slice after another."""
    return reduce(join, (values[..., place] for place in range(values.shape[-1])))


def assign(evidence: Floats, size: Longs, people: int, habits: View | None = None) -> Floats:
    """Return the probability that each session belongs to each person, [B, N, K]; rows sum to one.

    Args:
        evidence: log(p_same / p_other) of each pair [B, N, N], symmetric, 0 on the diagonal.
        size: events of each session [B, N]; a session is weighted by the square root of its size.
        people: the number of people.
        habits: what the sessions of a person have in common beside the evidence of pairs.
    """
    return assign_each(evidence, size, [people], habits)[0]


def assign_each(evidence: Floats, size: Longs, counts: Sequence[int], habits: View | None = None) -> list[Floats]:
    """Return what `assign` returns for each number of people; what they have in common is computed once."""
    number, weight = evidence.shape[-1], np.sqrt(size)
    trivial = {
        people: np.broadcast_to(np.eye(people)[:number] if number <= people else 1.0, (*size.shape, people))
        for people in counts
        if people == 1 or number <= people  # no more sessions than people: each person has at most one
    }
    several = [people for people in counts if people not in trivial]
    if not several:
        return [trivial[people] for people in counts]
    values, vectors = np.linalg.eigh(evidence * np.sqrt(weight[..., :, None] * weight[..., None, :]))
    starts = [(1 - DOUBT) * spectral_start(values, vectors, people) + DOUBT / people for people in several]
    bounds = np.cumsum(several)[:-1]
    ratios = ratios_of(evidence)
    belongs = np.concatenate(starts, axis=-1)
    for _ in range(STEPS):
        belongs = mean_field_step(evidence, ratios, weight, belongs, bounds, habits)
    computed = dict(zip(several, np.split(belongs, bounds, axis=-1), strict=True))
    return [computed[people] if people in computed else trivial[people] for people in counts]


def spectral_start(values: Floats, vectors: Floats, people: int) -> Floats:
    """Cluster sessions by the leading eigenvectors of the evidence, scaled by the root of their eigenvalues; 0 or 1."""
    points = vectors[..., -people:] * np.sqrt(np.maximum(values[..., None, -people:], 0))
    centres = _point_at(points, (points**2).sum(axis=-1).argmax(axis=-1))
    for _ in range(people - 1):  # farthest-point initialisation
        farthest = _squared_distances(points, centres).min(axis=-1).argmax(axis=-1)
        centres = np.concatenate([centres, _point_at(points, farthest)], axis=-2)
    for _ in range(CENTRE_STEPS):
        nearest = (_squared_distances(points, centres).argmin(axis=-1)[..., None] == np.arange(people)).astype(float)
        centres = nearest.swapaxes(-1, -2) @ points / np.maximum(nearest.sum(axis=-2), 1e-9)[..., None]
    return nearest


def _point_at(points: Floats, place: Longs) -> Floats:
    return np.take_along_axis(points, np.asarray(place)[..., None, None], axis=-2)


def _squared_distances(points: Floats, centres: Floats) -> Floats:
    return over_last(np.add, (points[..., :, None, :] - centres[..., None, :, :]) ** 2)


def ratios_of(evidence: Floats) -> Floats:
    """Return p_same / p_other of each pair; 0 on the diagonal, since a session is no evidence about itself."""
    return np.exp(evidence) - np.eye(evidence.shape[-1])


def mean_field_step(
    evidence: Floats, ratios: Floats, weight: Floats, belongs: Floats, bounds: Longs, habits: View | None = None
) -> Floats:
    """Update the assignment of each session given the others, by its fit, slightly by the plain sum, and by habits.

    Args:
        belongs: for one or more numbers of people, side by side [B, N, sum of K].
        bounds: where the next number of people begins.
    """
    mass = belongs * weight[..., None]
    fit, plain = (FIT_WEIGHT, SUM_WEIGHT) if habits is None else (habits.weights.fit, habits.weights.sum)
    score = fit * fits(ratios, mass) + plain * (evidence @ mass)
    if habits is not None:
        score += habits.scores(belongs)
    return np.concatenate([softmax(part) for part in np.split(score, bounds, axis=-1)], axis=-1)


def assign_others(evidence: Floats, weight: Floats, belongs: Floats) -> Floats:
    """Assign M further sessions [M, K], given the assignment of N sessions, in one mean-field step.

    Args:
        evidence: of each pair of one of the M and one of the N sessions [M, N].
    """
    mass = belongs * weight[:, None]
    fit = np.log((np.exp(evidence) @ mass + 1) / (mass.sum(axis=0) + 1))
    return softmax(FIT_WEIGHT * fit + SUM_WEIGHT * (evidence @ mass))


def likelihoods(evidence: Floats, size: Longs, assigned: Sequence[Floats], habits: View) -> Floats:
    """Return how likely the sessions are if they belong to these people, for each number of people [B, len(assigned)].

    Args:
        assigned: what `assign_each` returns.
    """
    bounds = np.cumsum([one.shape[-1] for one in assigned])[:-1]
    most = [np.eye(one.shape[-1])[one.argmax(axis=-1)] for one in assigned]
    belongs = np.concatenate(most, axis=-1)
    mass = belongs * np.sqrt(size)[..., None]
    fit, plain = habits.weights.fit * fits(ratios_of(evidence), mass), habits.weights.sum / 2 * (evidence @ mass)
    total = (belongs * (fit + plain)).sum(axis=-2) + habits.totals(belongs)
    return np.stack([part.sum(axis=-1) for part in np.split(total, bounds, axis=-1)], axis=-1)


def fits(ratios: Floats, mass: Floats) -> Floats:
    """Return how well each session fits each person's other sessions, [B, N, K].

    The fit is log((sum of ratios + 1) / (sum of weights + 1)). A person may have several tastes, so the ratios are
    averaged, not their logarithms.

    Args:
        ratios: p_same / p_other of each pair, 0 on the diagonal [B, N, N].
        mass: the share of each person in each session, times the session's weight [B, N, K].
    """
    return np.log((ratios @ mass + 1) / (mass.sum(axis=-2, keepdims=True) - mass + 1))
