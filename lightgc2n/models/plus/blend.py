"""The blend: the learned score of an item joined with counted evidence, by a few weights fitted to validation queries.

    score(i) = w · log p(i) + Σ_s [ a_s · log(1 + p_s(i) / 1e-4) + b_s · log(1 + p_s(i) / 1e-2) ]
             + v · log( π_0 · p(i) + Σ_s π_s · p_s(i) )

p is the softmax of the learned scores, p_s the share of the item by source s. The learned model alone is w = 1 and all
other weights 0; the fit is pulled towards it. The 100 best items by p and all items with counted evidence are blended;
all others rank below them. The weights are fitted to the best of these alone, which orders the top of a list best.
The mixture π is fitted by expectation maximisation, the weights by Newton's method on the cross-entropy.
Each source turns a history into shares of the items; a share is 0 where the source knows nothing.
Shapes: B or Q queries, T events, M items, K items kept, N newest events, S sources, C candidates, W weights or columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Training
from lightgc2n.models.plus.transitions import PairCounts, count_neighbours

PULL = 5.0  # strength of the pull towards the learned model alone
MIXTURE_STEPS, MIXTURE_PULL = 120, 10.0
NEWTON_STEPS, SMALLEST_STEP, SMALLEST_GAIN = 15, 1e-3, 1e-3
QUERIES_AT_ONCE = 512
DECIMALS = 4


@dataclass(frozen=True)
class Candidates:
    """The candidates of queries; of a query with fewer than C of them, the rest is padding."""

    shares: Float[Tensor, "Q C S_and_one"]  # the share by the learned model, then by each source
    exists: Bool[Tensor, "Q C"]
    place: Int[Tensor, "Q"]  # the index of the target among the candidates; -1 if it is not a candidate
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


SCALES = (1e-4, 1e-2)  # shares around which each source is resolved
LEAST_LOG, LEAST_SHARE = -60.0, 1e-12
LEARNED_CANDIDATES, SOURCE_CANDIDATES = 100, 30  # the best items of each, which the weights are fitted to
BEHIND = 1000.0  # further than any blended score is below zero
NEWEST = 10  # events whose followers and neighbours count
FOLLOWER_FADE, NEIGHBOUR_FADE = 0.7, 0.8  # weight of an event relative to the next newer one
OWN_REACH = 5
FREQUENCY_FADE = 0.7  # exponent of an event's age
HISTORY_SOURCES = ("follower", "followers", "neighbours", "own followers", "recency", "frequency")
Shares = Iterable[Float[Tensor, "B M"]]


@dataclass(frozen=True)
class LearnedScores:
    """Validation queries: the learned scores of all items, and their shares by each source."""

    scores: Float[Tensor, "B M"]
    shares: Shares
    target: Int[Tensor, "B"]
    domain: Domain  # the items that the target is ranked among
    rankable: Bool[Tensor, "M"]


class Blend(nn.Module):
    """Joins learned scores and counted shares; without a fit it leaves the learned scores as they are."""

    counts_events = True  # so that newer events can be counted without training
    weights: Float[Tensor, "W"]  # w, then a_s and b_s for each source, then v
    mixture: Float[Tensor, "S_and_one"]  # π; sums to one
    columns: Int[Tensor, "M K"]  # neighbours of each item
    counts: Float[Tensor, "M K"]
    total: Float[Tensor, "M"]

    def __init__(self, neighbours: PairCounts, timed: int) -> None:
        """For the given neighbours and as many sources of trends as there are half-lives."""
        super().__init__()
        sources = len(HISTORY_SOURCES) + timed
        self.register_buffer("weights", learned_alone(sources))
        self.register_buffer("mixture", torch.eye(sources + 1)[0])
        self._set_neighbours(neighbours)

    @property
    def is_fitted(self) -> bool:
        """Whether the blend changes any score."""
        return bool(self.mixture[0] < 1)

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to fit."""
        return self.is_fitted

    @property
    def neighbours(self) -> PairCounts:
        return PairCounts(self.columns, self.counts, self.total)

    @property
    def stored_numbers(self) -> int:
        """The weights, the mixture and the neighbours."""
        return len(self.weights) + len(self.mixture) + self.neighbours.stored_numbers

    def recount(self, known: Training) -> bool:
        """Replace the neighbours by those of newer events; return whether there are any to replace."""
        self._set_neighbours(count_neighbours(known))
        return True

    def _set_neighbours(self, neighbours: PairCounts) -> None:
        for name in ("columns", "counts", "total"):
            self.register_buffer(name, getattr(neighbours, name).to(self.weights.device))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        for name, tensor in self.state_dict().items():
            state_dict.setdefault(prefix + name, tensor)  # checkpoints of earlier versions have no blend
        super()._load_from_state_dict(state_dict, prefix, *more)

    def shares(self, batch: Batch, followers: PairCounts, trends: Shares) -> Iterator[Float[Tensor, "B M"]]:
        """The shares of all items by each source: those of the history, then trends."""
        yield from history_shares(batch, followers, self.neighbours)
        yield from trends

    def forward(
        self, learned: Float[Tensor, "B M"], shares: Shares, rankable: Bool[Tensor, "M"]
    ) -> Float[Tensor, "B M"]:
        """The scores of all items.

        Args:
            learned: the scores of the model without the blend.
            shares: the shares of all items by each source.
            rankable: the items with events that the model or its counts know.
        """
        share = probabilities(learned, rankable)
        alone = share.log().clamp(min=LEAST_LOG)
        scores, mixed, chosen = self.weights[0] * alone, self.mixture[0] * share, is_best(share)
        for number, source in enumerate(shares, start=1):
            first = 1 + len(SCALES) * (number - 1)
            for scale, weight in zip(SCALES, self.weights[first:], strict=False):
                scores += weight * torch.log1p(source / scale)
            mixed += self.mixture[number] * source
            chosen |= source > 0
        scores += self.weights[-1] * torch.log(mixed + LEAST_SHARE)
        return torch.where(chosen & rankable, scores, alone - BEHIND)

    @torch.no_grad()
    def fit(self, queries: Iterable["LearnedScores"]) -> None:
        """Fit mixture and weights to validation queries."""
        joined = Candidates.joined([candidates(one) for one in queries])
        mixture = fit_mixture(joined.target_shares)
        prior = learned_alone(len(mixture) - 1)
        weights = fit_weights(features(joined.shares, mixture), joined.exists, joined.place, prior)
        self.mixture.copy_(mixture)
        self.weights.copy_(weights)

    def fitted(self) -> dict[str, float]:
        if not self.is_fitted:
            return {}
        trends = [f"trend {number}" for number in range(1, len(self.mixture) - len(HISTORY_SOURCES))]
        counted = [f"{source}, scale {scale:g}" for source in (*HISTORY_SOURCES, *trends) for scale in SCALES]
        names = [f"blend: {name}" for name in ("learned", *counted, "mixture")]
        return dict(zip(names, self.weights.tolist(), strict=True))


class NoBlend(nn.Module):
    """Ablation of `Blend`: the learned scores alone."""

    counts_events = False
    is_fitted = False
    is_finished = True
    stored_numbers = 0

    def recount(self, known: Training) -> bool:
        return False

    def shares(self, batch: Batch, followers: PairCounts, trends: Shares) -> Iterator[Float[Tensor, "B M"]]:
        return iter(())

    def forward(
        self, learned: Float[Tensor, "B M"], shares: Shares, rankable: Bool[Tensor, "M"]
    ) -> Float[Tensor, "B M"]:
        return learned

    def fit(self, queries: Iterable[LearnedScores]) -> None:
        """Nothing is fitted."""

    def fitted(self) -> dict[str, float]:
        return {}


def learned_alone(sources: int) -> Float[Tensor, "W"]:
    """The weights that leave the learned scores as they are."""
    return torch.eye(2 + len(SCALES) * sources)[0]


def is_best(share: Float[Tensor, "B M"]) -> Bool[Tensor, "B M"]:
    """Whether an item is among the best of the learned model."""
    return share >= share.topk(min(LEARNED_CANDIDATES, share.shape[1]), dim=1).values[:, -1:]


def probabilities(scores: Float[Tensor, "B M"], rankable: Bool[Tensor, "M"]) -> Float[Tensor, "B M"]:
    """The softmax over the items that can be ranked; 0 for all others."""
    return torch.where(rankable, scores, -torch.inf).softmax(dim=1)


def features(shares: Float[Tensor, "Q C S_and_one"], mixture: Float[Tensor, "S_and_one"]) -> Float[Tensor, "Q C W"]:
    """The factors of the weights, in the order of the weights."""
    learned = shares[..., :1].log().clamp(min=LEAST_LOG)
    counted = [torch.log1p(shares[..., 1:] / scale) for scale in SCALES]
    pairs = torch.stack(counted, dim=-1).flatten(-2)
    return torch.cat([learned, pairs, torch.log(shares @ mixture + LEAST_SHARE)[..., None]], dim=-1)


def candidates(queries: LearnedScores) -> Candidates:
    """The candidates of each query with their shares."""
    rankable, target = queries.rankable, queries.target[:, None]
    every = [probabilities(queries.scores, rankable), *(share * rankable for share in queries.shares)]
    items = torch.cat([best_of(number, share) for number, share in enumerate(every)], dim=1).sort(dim=1).values
    exists = items.diff(dim=1, prepend=torch.full_like(items[:, :1], -1)) > 0  # each item once, and no padding
    exists &= (items >= queries.domain.start) & (items < queries.domain.stop)
    is_target = (items == target) & exists
    return Candidates(
        torch.stack([share.gather(1, items.clamp(min=0)) for share in every], dim=-1),
        exists,
        torch.where(is_target.any(dim=1), is_target.int().argmax(dim=1), -1),
        torch.cat([share.gather(1, target) for share in every], dim=1),
    )


def best_of(number: int, share: Float[Tensor, "B M"]) -> Int[Tensor, "B C"]:
    """The items that are candidates by the learned model (number 0) or by a source; -1 where it has no more."""
    kept = SOURCE_CANDIDATES if number else LEARNED_CANDIDATES
    best = share.topk(min(kept, share.shape[1]), dim=1)
    return best.indices.where(best.values > 0, -1)


def history_shares(batch: Batch, followers: PairCounts, neighbours: PairCounts) -> Iterator[Float[Tensor, "B M"]]:
    """The shares of all items by each of `HISTORY_SOURCES` in turn; zeros for an empty history."""
    items = len(neighbours.total)
    newest, exists = newest_events(batch, NEWEST)
    yield fading(followers, newest[:, :1], exists[:, :1], FOLLOWER_FADE, items)
    yield fading(followers, newest, exists, FOLLOWER_FADE, items)
    yield fading(neighbours, newest, exists, NEIGHBOUR_FADE, items)
    yield own_followers(batch, items)
    yield from repeats(batch, items)


def newest_events(batch: Batch, count: int) -> tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"]]:
    """The newest events, the newest first, and which of them exist."""
    place = batch.length[:, None] - 1 - torch.arange(count, device=batch.length.device)
    return batch.history.gather(1, place.clamp(min=0)), place >= 0


def fading(
    pairs: PairCounts, events: Int[Tensor, "B N"], exists: Bool[Tensor, "B N"], fade: float, items: int
) -> Float[Tensor, "B M"]:
    """The mean of the shares after each event, weighted by fade ** (number of newer events)."""
    weight = exists * fade ** torch.arange(events.shape[1], device=events.device)
    columns, shares = pairs.shares(events)
    weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-9)
    return scatter(columns.flatten(1), (shares * weight[..., None]).flatten(1), items)


def own_followers(batch: Batch, items: int) -> Float[Tensor, "B M"]:
    """The items that came up to five events after earlier occurrences of the newest item, in this history alone."""
    places = torch.arange(batch.history.shape[1], device=batch.history.device)
    earlier = (batch.history == batch.last[:, None]) & (places < batch.length[:, None] - 1)
    following = torch.zeros_like(batch.history, dtype=torch.float32)
    for gap in range(1, min(OWN_REACH, batch.history.shape[1] - 1) + 1):
        following[:, gap:] += earlier[:, :-gap].float() / gap
    following = following * batch.known
    return scatter(batch.history, following / (following.sum(dim=1, keepdim=True) + 1), items)


def repeats(batch: Batch, items: int) -> Iterator[Float[Tensor, "B M"]]:
    """The items of the history, by 1 / age of the newest event of each, and by the sum over events of age ** -0.7."""
    place = torch.arange(batch.history.shape[1], device=batch.history.device)
    age = (batch.length[:, None] - place).clamp(min=1).float()
    empty = torch.zeros(len(age), items, device=age.device)
    yield normalised(empty.scatter_reduce(1, batch.history, batch.known / age, "amax"))
    yield normalised(scatter(batch.history, batch.known * age**-FREQUENCY_FADE, items))


def scatter(columns: Int[Tensor, "B W"], values: Float[Tensor, "B W"], items: int) -> Float[Tensor, "B M"]:
    """A row for each history with the values added at their columns."""
    return torch.zeros(len(columns), items, device=values.device).scatter_add_(1, columns, values)


def normalised(counts: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    return counts / counts.sum(dim=1, keepdim=True).clamp(min=1e-9)
