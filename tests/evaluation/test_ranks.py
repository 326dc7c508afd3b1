"""Ranking in tiles: no score escapes, no query is lost."""

import numpy as np
import pytest
import torch

from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import ScoreError
from lightgc2n.evaluation import ranks as ranking
from lightgc2n.evaluation.ranks import target_ranks
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
    monkeypatch.setattr(ranking, "TILE_BYTES", {"cpu": 1})
    assert ranking.rows_per_tile(4) == 1
    assert target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=EVERYTHING).tolist() == whole.tolist()


def test_a_target_that_nobody_learned_is_a_miss() -> None:
    learned = np.array([True, True, True, False])  # s, the target of a
    found = target_ranks("fixed", Fixed(1, 2, 3, 4), SPLIT.test, ALL, learned=learned)
    assert found.tolist() == [np.inf, 3, 4]


def test_a_target_that_nobody_learned_counts_when_the_history_has_it() -> None:
    learned = np.array([False, True, True, True])  # p, the target of c, stands in c's history
    assert target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=learned).tolist() == [4, 2, 1]


def test_excluding_seen_items_shortens_the_list() -> None:
    found = target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=EVERYTHING, exclude_seen=True)
    # a has seen p, q, r: s is first. b has seen p, r, s: q is first. c has seen p, its target: a miss.
    assert found.tolist() == [1, 1, np.inf]
    learned = np.array([True, True, True, False])  # s is alone in the list of a, and nobody learned it
    found = target_ranks("fixed", Fixed(4, 3, 2, 1), SPLIT.test, ALL, learned=learned, exclude_seen=True)
    assert found.tolist() == [np.inf, 1, np.inf]
