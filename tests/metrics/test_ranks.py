"""Ranking in tiles: no score escapes, no query is lost."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.devices import CPU, DEVICES
from lightgc2n.errors import ScoreError
from lightgc2n.metrics.ranks import rank_by_counting, rows_per_tile, target_ranks
from tests.worlds import dataset_of

DATA = dataset_of([("a", "p q r s"), ("b", "p r s q"), ("c", "q p p p")])
SPLIT = split_dataset(DATA, SplitConfig())
ALL = Domain("all", 0, 4)
EVERYTHING = np.ones(4, dtype=bool)


class Fixed:
    """A model with the same scores for everybody."""

    def __init__(self, *scores: float) -> None:
        self.row = torch.tensor(scores, dtype=torch.float64)

    def encode(self) -> None:
        return None

    def scores(self, encoded: None, batch: Batch, domain: Domain) -> torch.Tensor:
        return self.row.expand(len(batch.length), -1).clone()


def test_ranks_by_hand() -> None:
    # targets: s for a, q for b, p for c; scores p 4, q 3, r 2, s 1
    assert target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=EVERYTHING).tolist() == [4, 2, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_not_finite_is_an_error(bad: float) -> None:
    with pytest.raises(ScoreError, match="broken: score"):
        target_ranks("broken", Fixed(1, bad, 2, 3), SPLIT.test, ALL, learned=EVERYTHING)


def test_tiles_do_not_change_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=EVERYTHING)
    monkeypatch.setitem(DEVICES, "cpu", replace(CPU, tile_bytes=1))
    assert rows_per_tile(4) == 1
    assert target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=EVERYTHING).tolist() == whole.tolist()


def test_an_unlearned_target_is_a_miss() -> None:
    learned = np.array([True, True, True, False])  # s, the target of a
    actual = target_ranks("fixed", Fixed(1, 2, 3, 4), SPLIT.test, ALL, learned=learned)
    assert actual.tolist() == [np.inf, 3, 4]


def test_an_unlearned_target_in_the_history_counts() -> None:
    learned = np.array([False, True, True, True])  # p, the target of c, stands in c's history
    assert target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=learned).tolist() == [4, 2, 1]


def test_excluding_seen_items_shortens_the_list() -> None:
    actual = target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=EVERYTHING, exclude_seen=True)
    # a has seen p, q, r: s is first. b has seen p, r, s: q is first. c has seen p, its target: a miss.
    assert actual.tolist() == [1, 1, np.inf]
    learned = np.array([True, True, True, False])  # s is alone in the list of a, and nobody learned it
    actual = target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=learned, exclude_seen=True)
    assert actual.tolist() == [np.inf, 1, np.inf]


def test_ranks_by_counting_by_hand() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5], [1.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    # second of three; three equal share (1 + 2 + 3) / 3; two equal share (2 + 3) / 2
    assert rank_by_counting(scores, torch.tensor([2, 0, 1])).tolist() == [2.0, 2.0, 2.5]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_ties_share_their_mean_rank(values: list[int], data: st.DataObject) -> None:
    target = data.draw(st.integers(0, len(values) - 1))
    ordered = sorted(values, reverse=True)
    places = [place + 1 for place, value in enumerate(ordered) if value == values[target]]
    actual = rank_by_counting(torch.tensor([values], dtype=torch.float64), torch.tensor([target]))
    assert actual.item() == sum(places) / len(places)
