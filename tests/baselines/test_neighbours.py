"""Neighbour floors by hand, and the acceptance checks of their descriptions."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines import neighbours
from lightgc2n.baselines.neighbours import ItemKnn, SessionKnn, distinct_items
from lightgc2n.data.batches import Batch, make_batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.metrics.ranks import batches_in_domains, ranks_in_domains
from tests.worlds import dataset_of, tastes_world


def batch_of(*history: int) -> Batch:
    return Batch(torch.tensor([-1]), torch.tensor([list(history)]), torch.tensor([len(history)]))


def cold(*logs: str, items: str = "") -> neighbours.Training:
    """Training on whole logs: the accounts held out are two that are added."""
    rows = [(f"a{number}", log) for number, log in enumerate(logs)]
    split = split_dataset(dataset_of([*rows, ("end", "x x x")], items=items), SplitConfig())
    return split.train


# After the last two events are taken off, training holds: p q r, p q, q r r, and one x.
TRAIN = cold("p q r x x", "p q x x", "q r r x x", items="p q r x")
P, Q, R, X = range(4)


def test_item_likeness_by_hand() -> None:
    # p stands in 2 rows, q in 3, r in 2; p and q share 2, q and r share 2, p and r share 1; damping 20
    model = zoo.build("item-knn", TRAIN, {"fade": 0.0})
    scores = model.scores(None, batch_of(R, Q), Domain("all", 0, 4))[0]
    shared = 2 / math.sqrt((3 + 20) * (2 + 20))
    assert_close(scores, torch.tensor([shared, 0, shared, 0], dtype=torch.float64), rtol=0, atol=2e-6)


def test_an_item_is_like_itself_as_often_as_it_repeats() -> None:
    # of r's one step in training, r-r, all lead to r itself
    model = zoo.build("item-knn", TRAIN, {"fade": 0.0})
    assert model.scores(None, batch_of(R), Domain("all", 0, 4))[0, R].item() == pytest.approx(1.0, abs=1e-5)


def test_older_events_fade() -> None:
    model = zoo.build("item-knn", TRAIN, {"fade": 0.5, "damping": 0.0})
    scores = model.scores(None, batch_of(P, R), Domain("all", 0, 4))[0]
    # q is like r by 2 / sqrt(3 * 2), and like p, one event older, by as much
    assert scores[Q].item() == pytest.approx(1.5 * 2 / math.sqrt(6), abs=1e-5)


@pytest.mark.parametrize("halves", [False, True])
def test_validation_chooses_the_fade(halves: bool) -> None:
    split = split_dataset(tastes_world(accounts=40, length=8, seed=1), SplitConfig())
    middle, items = split.train.items // 2, split.train.items
    parts = [Domain("a", 0, middle), Domain("b", middle, items)] if halves else [Domain("all", 0, items)]
    model = zoo.build("item-knn", split.train)
    assert isinstance(model, ItemKnn)
    model.calibrate(lambda: batches_in_domains(split.validation, parts, "cpu"))
    gains = {}
    for fade in model.FADES:
        fixed = zoo.build("item-knn", split.train, {"fade": fade})
        ranks = ranks_in_domains("x", fixed, split.validation, parts, learned=np.ones(items, dtype=bool))
        gains[fade] = np.where(ranks <= 20, 1 / ranks, 0).sum()
    assert len(set(gains.values())) > 1
    assert gains[model.fitted()["fade"]] == pytest.approx(max(gains.values()))
    model.calibrate(lambda: iter(()))  # nothing to choose by
    assert model.fitted() == {"fade": 0.8}


def test_only_the_likest_neighbours_are_kept() -> None:
    model = zoo.build("item-knn", TRAIN, {"neighbours": 1, "damping": 0.0})
    kept = np.diff(model.likeness.offsets.numpy())
    assert kept.max() == 1


def test_pairs_are_counted_alike_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    train = split_dataset(tastes_world(), SplitConfig()).train
    whole = zoo.build("item-knn", train).likeness.values
    monkeypatch.setattr(neighbours, "PAIRS_AT_ONCE", 30)
    assert_close(zoo.build("item-knn", train).likeness.values, whole)


def test_only_the_newest_distinct_items_of_a_long_sequence_count() -> None:
    train = cold("p q p r x x", items="p q r x")
    row, item = distinct_items(train, newest=2)
    assert list(zip(row.tolist(), item.tolist(), strict=True)) == [(0, R), (0, P), (1, X)]


def test_session_likeness_by_hand() -> None:
    """SKNN: the query {q, r} and the rows {p, q, r}, {p, q}, {q, r}: 2/√6, 1/√4 and 2/√4."""
    model = zoo.build("session-knn", TRAIN, {"vector": False})
    scores = model.scores(None, batch_of(Q, R), Domain("all", 0, 4))[0]
    first, second, third = 2 / math.sqrt(6), 1 / 2, 1.0
    expected = [first + second, first + second + third, first + third, 0]
    assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=2e-6)


def test_vector_session_likeness_by_hand() -> None:
    """VSKNN: q weighs 1/2 and r 1, so the norm is √1.25; rows without r count half, since q is one step back."""
    model = zoo.build("session-knn", TRAIN)
    scores = model.scores(None, batch_of(Q, R), Domain("all", 0, 4))[0]
    norm = math.sqrt(1.25)
    first, second, third = 1.5 / (norm * math.sqrt(3)), 0.5 / (norm * math.sqrt(2)) / 2, 1.5 / (norm * math.sqrt(2))
    expected = [first + second, first + second + third, first + third, 0]
    assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=2e-6)


def test_a_training_row_is_its_own_nearest_neighbour() -> None:
    model = zoo.build("session-knn", TRAIN, {"vector": False, "neighbours": 1})
    assert isinstance(model, SessionKnn)
    scores = model.scores(None, batch_of(P, Q, R), Domain("all", 0, 4))[0]
    assert_close(scores, torch.tensor([1.0, 1, 1, 0], dtype=torch.float64), rtol=0, atol=2e-6)


def test_queries_are_scored_alike_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    split = split_dataset(tastes_world(), SplitConfig())
    model = zoo.build("session-knn", split.train)
    everything = Domain("all", 0, split.train.items)
    whole = model.scores(None, make_batch(split.test), everything)
    monkeypatch.setattr(neighbours, "CELLS_AT_ONCE", 1)
    assert_close(model.scores(None, make_batch(split.test), everything), whole)
