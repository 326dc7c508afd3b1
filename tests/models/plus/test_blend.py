"""The blend by hand, its fit against slow references, and what must hold of its scores."""

import math

import numpy as np
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n.data.dataset import Domain
from lightgc2n.models.plus.blend import (
    Blend,
    Candidates,
    LearnedScores,
    candidates,
    features,
    fit_mixture,
    fit_weights,
    learned_alone,
)
from lightgc2n.models.plus.transitions import count_neighbours
from tests.graph.logs import training_of

ITEMS = torch.ones(4, dtype=torch.bool)
LEARNED = tensor([[0.4, 0.3, 0.2, 0.1]])
# Six sources that give shares to item 3 alone, or to items 2 and 3.
SHARES = [tensor([[0, 0, 0.25, 0.125]]), *[torch.zeros(1, 4)] * 2, tensor([[0, 0, 0, 0.5]]), *[torch.zeros(1, 4)] * 2]


def blend() -> Blend:
    return Blend(count_neighbours(training_of([[0, 1, 2, 3]], items=4)), timed=0)


def test_the_score_by_hand() -> None:
    layer = blend()
    layer.weights.copy_(tensor([0.5, 0.1, 0.3, *[0.0] * 4, 0.2, *[0.0] * 5, 0.25]))
    layer.mixture.copy_(tensor([0.7, 0.1, 0, 0, 0.2, 0, 0]))
    actual = layer(LEARNED.log(), SHARES, ITEMS)[0]
    assert_close(actual[0], tensor(0.5 * math.log(0.4) + 0.25 * math.log(0.7 * 0.4)))
    counted = 0.1 * math.log1p(0.125 / 1e-4) + 0.3 * math.log1p(0.125 / 1e-2) + 0.2 * math.log1p(0.5 / 1e-4)
    mixed = 0.7 * 0.1 + 0.1 * 0.125 + 0.2 * 0.5
    assert_close(actual[3], tensor(0.5 * math.log(0.1) + counted + 0.25 * math.log(mixed)))


def test_without_a_fit_the_order_is_the_learned_one() -> None:
    assert not blend().is_fitted
    assert_close(blend()(LEARNED.log(), SHARES, ITEMS), LEARNED.log())


def test_items_without_events_come_last() -> None:
    layer = blend()
    layer.weights.copy_(tensor([-0.5, *[0.0] * 12, 1.0]))  # a negative weight must not lift what has no probability
    layer.mixture.copy_(tensor([0.9, 0.1, 0, 0, 0, 0, 0]))
    scores = layer(tensor([[0.0, 5.0, 1.0, 2.0]]), SHARES, tensor([True, False, True, True]))
    assert scores.argmin(dim=1).tolist() == [1]
    assert scores.isfinite().all()


def test_candidates_of_another_domain_do_not_count_in_the_fit() -> None:
    shares, target = [share.clone() for share in SHARES], tensor([3])
    chosen = candidates(LearnedScores(LEARNED.log(), shares, target, Domain("later", 2, 4), ITEMS))
    assert chosen.exists.sum() == 2
    assert_close(chosen.shares[0, chosen.exists[0], 0], LEARNED[0, 2:])
    assert chosen.place.tolist() == [int(chosen.exists[0].nonzero()[1])]


def test_candidates_are_the_best_by_the_model_and_by_each_source() -> None:
    items, rows = 1000, 3
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(rows, items, generator=generator)
    shares = [torch.rand(rows, items, generator=generator) * (torch.arange(items) < 20) for _ in range(6)]
    rankable = torch.arange(items) != 5
    target = tensor([0, 5, int(scores[2].argmin())])
    domain = Domain("all", 0, items)
    chosen = candidates(LearnedScores(scores, shares, target, domain, rankable))
    layer = blend()
    layer.weights.copy_(torch.linspace(-0.5, 1.0, 14))
    layer.mixture.copy_(torch.full((7,), 1 / 7))
    blended = layer(scores, shares, rankable)
    for row in range(rows):
        top = set(scores[row].where(rankable, -torch.inf).topk(100).indices.tolist()) | (set(range(20)) - {5})
        assert int(chosen.exists[row].sum()) == len(top)
        order = blended[row].argsort(descending=True).tolist()  # every item with a share is among the best of a source
        assert set(order[: len(top)]) == top
        others = sorted(set(range(items)) - top - {5}, key=lambda item: -float(scores[row, item]))
        assert blended[row, others].diff().max() <= 0  # far below zero close scores may tie
        assert order[-1] == 5
    assert chosen.place[0] >= 0
    assert chosen.place[1:].tolist() == [-1, -1]
    assert_close(chosen.target_shares[0, 1:], torch.stack([share[0, 0] for share in shares]))


def test_the_mixture_against_a_grid() -> None:
    shares = tensor([[0.5, 0.1], [0.5, 0.1], [0.01, 0.9], [0.3, 0.4]]).repeat(50, 1)
    grid = np.linspace(0.001, 0.999, 999)
    # The pull counts like ten more targets that the learned model alone explains.
    value = [float(torch.log(shares @ tensor([g, 1 - g]).float()).sum()) + 10 * math.log(g) for g in grid]
    assert abs(float(fit_mixture(shares)[0]) - grid[int(np.argmax(value))]) < 0.002


def test_the_weights_have_no_slope_left() -> None:
    """At the fitted weights the gradient of the penalised likelihood, summed query by query, is zero."""
    generator = np.random.default_rng(0)
    table = generator.normal(size=(60, 5, 4)).astype(np.float32)
    place, exists = generator.integers(0, 5, 60), np.ones((60, 5), bool)
    exists[:, 4], place[place == 4] = False, 0
    prior = tensor([1.0, 0, 0, 0])
    weights = fit_weights(torch.from_numpy(table), torch.from_numpy(exists), torch.from_numpy(place), prior).numpy()
    slope = -2 * 5.0 * (weights - prior.numpy())
    for row in range(60):
        power = np.exp(table[row, :4] @ weights)
        slope += table[row, place[row]] - (power[:, None] * table[row, :4]).sum(axis=0) / power.sum()
    assert np.abs(slope).max() < 0.02


def test_a_fit_finds_the_source_that_knows() -> None:
    rows = 200
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(50, (rows,), generator=generator)
    knows = torch.nn.functional.one_hot(target, 50).float() * 0.3
    shares = [knows, *[torch.rand(rows, 50, generator=generator) / 50 for _ in range(5)]]
    layer, items = blend(), torch.ones(50, dtype=torch.bool)
    queries = LearnedScores(torch.randn(rows, 50, generator=generator), shares, target, Domain("all", 0, 50), items)
    layer.fit([queries])
    assert layer.is_fitted
    scores = layer(queries.scores, shares, items)
    assert (scores.argmax(dim=1) == target).float().mean() > 0.95


def test_features_are_what_the_weights_are_multiplied_with() -> None:
    layer = blend()
    layer.weights.copy_(torch.linspace(-0.5, 1.0, 14))
    layer.mixture.copy_(torch.full((7,), 1 / 7))
    shares = torch.stack([LEARNED, *SHARES], dim=-1)
    assert_close(features(shares, layer.mixture) @ layer.weights, layer(LEARNED.log(), SHARES, ITEMS))
    assert_close(learned_alone(6), tensor([1.0, *[0.0] * 13]))


def test_padding_of_joined_batches_changes_nothing() -> None:
    table = torch.rand(4, 3, 7, generator=torch.Generator().manual_seed(0))
    narrow = Candidates(table[:, :2], torch.ones(4, 2, dtype=torch.bool), tensor([0, 1, 1, -1]), table[:, 1])
    wide = Candidates(table, torch.ones(4, 3, dtype=torch.bool), torch.full((4,), -1), table[:, 0])
    joined = Candidates.joined([narrow, wide])  # the wide queries have no target, so they only bring padding
    assert joined.exists.sum(dim=1).tolist() == [2] * 4 + [3] * 4
    alone, padded = (
        fit_weights(features(part.shares, torch.eye(7)[0]), part.exists, part.place, learned_alone(6))
        for part in (narrow, joined)
    )
    assert_close(padded, alone)
