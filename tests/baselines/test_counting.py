"""Floors that count, by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.counting import MarkovRecency, Trending, newest_events
from lightgc2n.data.batches import MICROSECONDS_A_DAY, make_batch
from lightgc2n.data.dataset import Dataset, Domain
from lightgc2n.data.splits import UNSEEN, Split, SplitConfig, split_dataset
from lightgc2n.metrics.ranks import batches_in_domains, rank_by_counting
from tests.worlds import dataset_of, tastes_world

# Training: a p q p q, b p q r, c q p; p occurs 4 times, q 4, r 1, s never
LOGS = [("a", "p q p q r p"), ("b", "p q r q s"), ("c", "q p q p")]
DATA = dataset_of(LOGS, items="p q r s")
SPLIT = split_dataset(DATA, SplitConfig())


def order(name: str, data: Dataset = DATA, split: Split = SPLIT, **settings: object) -> dict[str, str]:
    """account -> all items, the best first."""
    model = zoo.build(name, split.train, settings)
    scores = model.scores(None, make_batch(split.test), Domain("all", 0, split.train.items))
    ranked = scores.argsort(dim=1, descending=True, stable=True)
    accounts = [data.accounts[owner] for owner in split.test.owner]
    return {
        account: " ".join(data.items[i] for i in row) for account, row in zip(accounts, ranked.tolist(), strict=True)
    }


def test_the_training_events_are_those_of_the_comment() -> None:
    assert SPLIT.train.popularity.tolist() == [4, 4, 1, 0]


def test_popularity_by_hand() -> None:
    assert set(order("popularity").values()) == {"p q r s"}


def timed(days: str) -> Dataset:
    """The logs with the day of each event."""
    return replace(DATA, times=np.array(days.split(), dtype=np.int64) * MICROSECONDS_A_DAY)


def test_trending_by_hand() -> None:
    data = timed("0 0 1 1 9 9  0 0 2 8 9  0 1 9 9")
    split = split_dataset(data, SplitConfig())
    # Training: p on the days 0 1 0 1, q on 0 1 0 0, r on 2. Half a day halves: r 1, p 2/4 + 2/16, q 1/4 + 3/16.
    model = zoo.build("trending", split.train)
    assert isinstance(model, Trending)
    assert model.fitted() == {"half-life": np.inf}
    assert order("trending", data, split)["a"] == "p q r s"
    shares = model.lately[0] * (1 + 2 * 0.5 + 2 * 0.25 + 1 * 0.5 + 3 * 0.25)
    assert_close(shares, torch.tensor([2 * 0.5 + 2 * 0.25, 1 * 0.5 + 3 * 0.25, 1.0, 0.0], dtype=torch.float64))
    # b's validation target is q, those of a and c are r and q: one day forgets too fast
    model.calibrate(lambda: batches_in_domains(split.validation, [Domain("all", 0, 4)], "cpu"))
    gains = []
    for shares in model.lately:
        ranks = [1 + (shares > shares[target]).sum() + ((shares == shares[target]).sum() - 1) / 2
                 for target in split.validation.target.tolist()]  # fmt: skip
        gains.append(sum(1 / float(rank) for rank in ranks))
    assert gains[int(model.chosen)] == pytest.approx(max(gains), rel=1e-6)


def test_trending_counts_all_events_known_at_query_time() -> None:
    split = split_dataset(timed("0 0 1 1 2 9  0 0 2 3 9  0 1 3 9"), SplitConfig(protocol="time", test_share=0.2))
    model = zoo.build("trending", split.train)
    assert split.known is not None
    assert isinstance(model, Trending)
    known = np.bincount(split.known.events, minlength=4)
    assert (known >= split.train.popularity).all()
    assert known.sum() > split.train.popularity.sum()
    assert model.refresh(split.known)
    assert_close(model.lately[-1], torch.from_numpy(known / known.sum()))
    assert split.test.times is not None
    first_target = split.test.times[split.test.target_event].min()
    assert split.known.times is not None
    assert split.known.times.max() < first_target


def test_without_times_trending_is_popularity() -> None:
    assert order("trending") == order("popularity")


def test_recency_by_hand() -> None:
    # a was shown p q p q r, b p q r q, c q p q; then popularity
    assert order("recency") == {"a": "r q p s", "b": "q r p s", "c": "q p r s"}


def test_markov_by_hand() -> None:
    # steps: p-q 3 times, q-p 2 times (a, c), q-r once; nothing follows r, so popularity decides for a
    assert order("markov") == {"a": "p q r s", "b": "p r q s", "c": "p r q s"}


def test_account_markov_prefers_its_own_steps() -> None:
    # b's own training steps are p-q and q-r, so after q it expects r; c has q-p, as has everybody
    assert order("account-markov") == {"a": "p q r s", "b": "r p q s", "c": "p r q s"}


def test_account_markov_falls_back_for_a_nameless_account() -> None:
    nameless = replace(SPLIT.test, account=np.full(3, UNSEEN, dtype=np.int32))
    assert order("account-markov", split=replace(SPLIT, test=nameless)) == order("markov")


def test_sequential_rules_by_hand() -> None:
    # one log of six: training p q r s. From p: q 1, r 1/2, s 1/3
    data = dataset_of([("a", "p q r s p p")])
    split = split_dataset(data, SplitConfig())
    model = zoo.build("sequential-rules", split.train)
    scores = model.scores(None, make_batch(split.test), Domain("all", 0, 4))
    assert_close(scores[0], torch.tensor([0, 1, 1 / 2, 1 / 3], dtype=torch.float64), rtol=0, atol=1e-5)


def test_sequential_rules_with_reach_one_are_markov() -> None:
    assert order("sequential-rules", reach=1) == order("markov")


def test_markov_recency_by_hand() -> None:
    # b: after q come p (2 of 3 steps) and r (1 of 3), and 5 imagined steps lead nowhere: 2/8 and 1/8.
    # Its history p q r q gives 0.05 / age^0.3 with the ages p 4, q 1, r 2.
    model = zoo.build("markov-recency", SPLIT.train)
    row = DATA.accounts.index("b")
    scores = model.scores(None, make_batch(SPLIT.test.select(np.array([row]))), Domain("all", 0, 4))[0]
    expected = [2 / 8 + 0.05 / 4**0.3, 0.05, 1 / 8 + 0.05 / 2**0.3, 0.0]
    assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=2e-6)


def test_newest_events_by_hand() -> None:
    row, item, age = newest_events(make_batch(SPLIT.test.select(np.array([0]))))
    assert (row.tolist(), item.tolist(), age.tolist()) == ([0, 0, 0], [0, 1, 2], [3, 2, 1])  # p q p q r


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), halves=st.booleans())
def test_calibration_finds_the_best_of_the_grid(seed: int, halves: bool) -> None:
    """The ladder counts ranks of a few items; here every choice of the grid ranks the whole catalogue, or its part."""
    split = split_dataset(tastes_world(accounts=25, length=8, seed=seed), SplitConfig())
    model = zoo.build("markov-recency", split.train)
    assert isinstance(model, MarkovRecency)
    middle, items = split.train.items // 2, split.train.items
    parts = [Domain("a", 0, middle), Domain("b", middle, items)] if halves else [Domain("all", 0, items)]
    model.calibrate(lambda: batches_in_domains(split.validation, parts, "cpu"))
    chosen = model.mixture.clone()

    def mrr(weight: float, fade: float) -> float:
        model.mixture.copy_(torch.tensor([weight, fade], dtype=torch.float64))
        total = 0.0
        for asked in batches_in_domains(split.validation, parts, "cpu"):
            assert asked.among is not None
            scores = model.scores(None, asked.batch, asked.among)
            ranks = rank_by_counting(scores, asked.target - asked.among.start)
            steps = torch.zeros(len(scores), items, dtype=scores.dtype)
            model.steps.add_rows_to(steps, asked.batch.last)
            seen = ((asked.batch.history == asked.target[:, None]) & asked.batch.known).any(dim=1)
            in_sight = (seen & (weight > 0)) | (steps.gather(1, asked.target[:, None])[:, 0] > 0)
            total += torch.where(in_sight & (ranks <= 20), 1 / ranks, 0.0).sum().item()
        return total

    best = max(mrr(weight, fade) for weight in model.WEIGHTS for fade in model.FADES)
    assert mrr(*chosen.tolist()) == pytest.approx(best, rel=1e-3)
