"""Learn without labels how much more likely two sessions are one person's than two people's.

Two sessions of two accounts are by two people. Two sessions of one account are by one person with probability `share`;
otherwise they are assumed to be as different as strangers: p_account = share p_same + (1 - share) p_other. A classifier
that separates pairs of one account from pairs of two gives odds = p_account / p_other, and hence

    p_same / p_other = 1 + (odds - 1) / share.

Shapes: P pairs, F features, H hidden units.
"""

from dataclasses import dataclass, replace

import numpy as np

from lightgc2n.people.session_points import Floats

SHARE = 0.5
LEAST_RATIO = 0.02  # lower bound: odds below 1 - share would have no logarithm
HIDDEN, EPOCHS, BATCH = 32, 8, 2048
RATE, DECAY = 4e-3, 1e-5
FARTHEST = 6  # standard deviations; features are clipped here
SMALLEST_SPREAD = 1e-6
Weights = tuple[Floats, ...]


def log_ratio(log_odds: Floats, share: float = SHARE) -> Floats:
    """Return log(p_same / p_other) for the log odds that a pair is of one account."""
    return np.log(np.maximum(1 + np.expm1(log_odds) / share, LEAST_RATIO))


@dataclass(frozen=True)
class Contrast:
    """A small network: one hidden layer plus a linear skip connection."""

    centre: Floats  # [F]
    spread: Floats  # [F]
    weights: Weights  # [F, H], [H], [H], [F], [1]
    prior: float = 0.0  # log odds of pairs of one account in the training sample

    def log_odds(self, features: Floats) -> Floats:
        """Return the log odds that each pair [P, F] is of one account, for a balanced prior."""
        scaled = scale(features, self.centre, self.spread).astype(self.weights[0].dtype)
        return outputs(scaled, self.weights)[0] - self.prior

    def in_double(self) -> "Contrast":
        """Return the network in float64: slower, but reproducible across machines and languages."""
        return replace(self, weights=tuple(part.astype(np.float64) for part in self.weights))


def scale(features: Floats, centre: Floats, spread: Floats) -> Floats:
    """Standardise features and clip outliers."""
    return np.clip((features - centre) / spread, -FARTHEST, FARTHEST).astype(np.float32)


def outputs(rows: Floats, weights: Weights) -> tuple[Floats, Floats]:
    """Return the log odds of each row [P], and its hidden layer [P, H]."""
    inward, threshold, outward, straight, constant = weights
    hidden = np.tanh(rows @ inward + threshold)
    return hidden @ outward + rows @ straight + constant, hidden


def gradients(rows: Floats, target: Floats, weights: Weights) -> Weights:
    """Return the gradient of the mean cross-entropy for each weight."""
    log_odds, hidden = outputs(rows, weights)
    error = ((1 / (1 + np.exp(-log_odds)) - target) / len(rows)).astype(rows.dtype)
    inside = np.outer(error, weights[2]) * (1 - hidden**2)
    return rows.T @ inside, inside.sum(axis=0), hidden.T @ error, rows.T @ error, error.sum(keepdims=True)


def learn_contrast(features: Floats, target: Floats, random: np.random.Generator) -> Contrast:
    """Train the network to separate pairs of one account (1) from pairs of two (0); neutral if a class is missing."""
    width = features.shape[1]
    weights = tuple(
        part.astype(np.float32)
        for part in (
            random.normal(0, width**-0.5, (width, HIDDEN)),
            np.zeros(HIDDEN),
            np.zeros(HIDDEN),
            np.zeros(width),
            np.zeros(1),
        )
    )
    if not 0 < target.sum() < len(target):
        return Contrast(np.zeros(width), np.ones(width), weights)
    centre, spread = features.mean(axis=0), features.std(axis=0)
    spread = np.where(spread > SMALLEST_SPREAD, spread, np.inf)  # ignore constant features
    rows, share = scale(features, centre, spread), float(target.mean())
    return Contrast(centre, spread, _descend(rows, target, weights, random), float(np.log(share / (1 - share))))


def _descend(rows: Floats, target: Floats, weights: Weights, random: np.random.Generator) -> Weights:
    """Run Adam with a rate that decays to zero."""
    steps = -(-EPOCHS * len(rows) // BATCH)
    mean, square = ([np.zeros_like(part) for part in weights] for _ in range(2))
    for step in range(1, steps + 1):
        drawn = random.integers(len(rows), size=BATCH)
        rate, moved = RATE * (1 - step / steps), []
        for place, slope in enumerate(gradients(rows[drawn], target[drawn], weights)):
            slope = slope + DECAY * weights[place]
            mean[place] = 0.9 * mean[place] + 0.1 * slope
            square[place] = 0.999 * square[place] + 0.001 * slope**2
            change = mean[place] / (1 - 0.9**step) / (np.sqrt(square[place] / (1 - 0.999**step)) + 1e-8)
            moved.append((weights[place] - rate * change).astype(np.float32))
        weights = tuple(moved)
    return weights
