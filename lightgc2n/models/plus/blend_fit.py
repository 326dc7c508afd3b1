"""Fitting the blend: a mixture by expectation maximisation, then weights by Newton's method on the cross-entropy.

Shapes: Q queries, C candidates, S sources, W weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

PULL = 5.0  # strength of the pull towards the learned model alone
MIXTURE_STEPS, MIXTURE_PULL = 120, 10.0
NEWTON_STEPS, SMALLEST_STEP, SMALLEST_GAIN = 15, 1e-3, 1e-3
QUERIES_AT_ONCE = 512
DECIMALS = 4


@dataclass(frozen=True)
class Candidates:
    """The candidates of queries; of a query with fewer than C of them, the rest is padding."""

    shares: Float[Tensor, "Q C S_and_one"]  # of the learned model first, then of each source
    exists: Bool[Tensor, "Q C"]
    place: Int[Tensor, "Q"]  # of the target among the candidates; -1 where it is not one
    target_shares: Float[Tensor, "Q S_and_one"]

    @classmethod
    def joined(cls, parts: Sequence["Candidates"]) -> "Candidates":
        """The queries of several batches as one batch."""
        width = max(part.exists.shape[1] for part in parts)
        more = [width - part.exists.shape[1] for part in parts]
        return cls(
            torch.cat([pad(part.shares, (0, 0, 0, wider)) for part, wider in zip(parts, more, strict=True)]),
            torch.cat([pad(part.exists, (0, wider)) for part, wider in zip(parts, more, strict=True)]),
            torch.cat([part.place for part in parts]),
            torch.cat([part.target_shares for part in parts]),
        )


def fit_mixture(target_shares: Float[Tensor, "Q S_and_one"]) -> Float[Tensor, "S_and_one"]:
    """The mixture of the shares with the largest likelihood of the targets, by expectation maximisation."""
    shares = target_shares[target_shares.sum(dim=1) > 0].double()
    sources = shares.shape[1] - 1
    mixture = torch.full_like(shares[0], 0.5 / sources) if len(shares) else shares.new_zeros(sources + 1)
    mixture[0] = 0.5 if len(shares) else 1.0
    for _ in range(MIXTURE_STEPS if len(shares) else 0):
        parts = mixture * shares
        mixture = (parts / parts.sum(dim=1, keepdim=True)).sum(dim=0)
        mixture[0] += MIXTURE_PULL
        mixture = mixture / mixture.sum()
    return mixture.round(decimals=DECIMALS).float()


def fit_weights(
    features: Float[Tensor, "Q C W"], exists: Bool[Tensor, "Q C"], place: Int[Tensor, "Q"], prior: Float[Tensor, "W"]
) -> Float[Tensor, "W"]:
    """The weights with the largest likelihood of the targets among the candidates, pulled towards `prior`.

    They are rounded, so that they do not depend on the order in which a machine adds.
    """
    in_list = place >= 0
    problem = _Problem(features[in_list], exists[in_list], place[in_list], prior.to(features.device).double())
    weights, value = problem.prior, problem.likelihood(problem.prior)
    for _ in range(NEWTON_STEPS):
        direction = problem.newton_direction(weights)
        step, new = 1.0, value
        while step > SMALLEST_STEP:
            new = problem.likelihood(weights + step * direction)
            if new > value:
                break
            step /= 2
        else:
            break
        weights, gain, value = weights + step * direction, new - value, new
        if gain < SMALLEST_GAIN:
            break
    return weights.round(decimals=DECIMALS).float()


@dataclass(frozen=True)
class _Problem:
    """The penalised log-likelihood of targets among candidates, summed over blocks of queries in float64."""

    features: Float[Tensor, "Q C W"]
    exists: Bool[Tensor, "Q C"]
    place: Int[Tensor, "Q"]
    prior: Float[Tensor, "W"]

    def likelihood(self, weights: Float[Tensor, "W"]) -> float:
        value = -PULL * (weights - self.prior).square().sum()
        for features, exists, target in self._blocks():
            every = torch.where(exists, features @ weights, -torch.inf).logsumexp(dim=1)
            value += (target @ weights - every).sum()
        return float(value)

    def newton_direction(self, weights: Float[Tensor, "W"]) -> Float[Tensor, "W"]:
        gradient = -2 * PULL * (weights - self.prior)
        spread = (2 * PULL + 1e-6) * torch.eye(len(weights), dtype=torch.double, device=weights.device)
        for features, exists, target in self._blocks():
            share = torch.where(exists, features @ weights, -torch.inf).softmax(dim=1)
            mean = (share[:, None] @ features).squeeze(1)
            gradient = gradient + (target - mean).sum(dim=0)
            weighted = (features * share[..., None]).flatten(0, 1)
            spread = spread + weighted.T @ features.flatten(0, 1) - mean.T @ mean
        return torch.linalg.solve(spread, gradient)

    def _blocks(self) -> Iterator[tuple[Float[Tensor, "B C W"], Bool[Tensor, "B C"], Float[Tensor, "B W"]]]:
        for first in range(0, len(self.place), QUERIES_AT_ONCE):
            some = slice(first, first + QUERIES_AT_ONCE)
            features, place = self.features[some].double(), self.place[some]
            yield features, self.exists[some], features[torch.arange(len(place), device=place.device), place]
