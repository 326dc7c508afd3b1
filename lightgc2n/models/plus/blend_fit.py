"""Fitting the blend: a mixture by expectation maximisation, then weights by Newton's method on the cross-entropy.

Shapes: Q queries, C candidates, S sources, W weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

PULL = 5.0  # strength of the pull towards the learned model alone
MIXTURE_STEPS, MIXTURE_PULL = 120, 10.0
NEWTON_STEPS, SMALLEST_STEP, SMALLEST_GAIN = 15, 1e-3, 1e-3


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
    return mixture.float()


def fit_weights(
    features: Float[Tensor, "Q C W"], exists: Bool[Tensor, "Q C"], place: Int[Tensor, "Q"], prior: Float[Tensor, "W"]
) -> Float[Tensor, "W"]:
    """The weights with the largest likelihood of the targets among the candidates, pulled towards `prior`."""
    asked = place >= 0
    features, exists, place = features[asked], exists[asked], place[asked]
    prior = prior.to(features.device).double()
    target = features[torch.arange(len(place), device=place.device), place].double()
    weights, value = prior, _likelihood(features, exists, target, prior, prior)
    for _ in range(NEWTON_STEPS):
        direction = _newton_direction(features, exists, target, weights, prior)
        step, new = 1.0, value
        while step > SMALLEST_STEP:
            new = _likelihood(features, exists, target, weights + step * direction, prior)
            if new > value:
                break
            step /= 2
        else:
            break
        weights, gain, value = weights + step * direction, new - value, new
        if gain < SMALLEST_GAIN:
            break
    return weights.float()


def _logits(
    features: Float[Tensor, "Q C W"], exists: Bool[Tensor, "Q C"], weights: Float[Tensor, "W"]
) -> Float[Tensor, "Q C"]:
    return torch.where(exists, (features @ weights.float()).double(), -torch.inf)


def _likelihood(
    features: Float[Tensor, "Q C W"],
    exists: Bool[Tensor, "Q C"],
    target: Float[Tensor, "Q W"],
    weights: Float[Tensor, "W"],
    prior: Float[Tensor, "W"],
) -> float:
    """The log-likelihood of the targets, less the pull of the prior."""
    every = _logits(features, exists, weights).logsumexp(dim=1)
    return float((target @ weights - every).sum() - PULL * (weights - prior).square().sum())


def _newton_direction(
    features: Float[Tensor, "Q C W"],
    exists: Bool[Tensor, "Q C"],
    target: Float[Tensor, "Q W"],
    weights: Float[Tensor, "W"],
    prior: Float[Tensor, "W"],
) -> Float[Tensor, "W"]:
    share = _logits(features, exists, weights).softmax(dim=1).float()
    mean = (share[:, None] @ features).squeeze(1)
    gradient = (target - mean).sum(dim=0) - 2 * PULL * (weights - prior)
    spread = ((features * share[..., None]).flatten(0, 1).T @ features.flatten(0, 1) - mean.T @ mean).double()
    return torch.linalg.solve(spread + (2 * PULL + 1e-6) * torch.eye(len(weights), device=spread.device), gradient)
