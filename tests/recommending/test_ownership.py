"""Whose each event is, asked by ids: the three ways to ask, what is left out and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lightgc2n.data.batches import Batch
from lightgc2n.data.splits import UNSEEN, SplitConfig, split_dataset
from lightgc2n.errors import DataError, ScoreError, SettingError
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Ownership
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.recommending.test_recommender import log_of

FEW = TrainingConfig(epochs=2, batch_size=32)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    generate(HouseholdConfig(accounts=60), seed=3, out=folder / "data")
    train_run(RunPlan(folder / "data", "lightgc2n", training=FEW), folder / "run")
    return folder


@pytest.fixture(scope="module")
def recommender(world: Path) -> Recommender:
    return load(world / "run")


def expected(recommender: Recommender, account: int, history: list[str]) -> tuple[list[list[float]], list[float]]:
    """The shares event by event, and the weights, straight from the model."""
    items = torch.tensor([[recommender.dataset.item_index[item] for item in history]])
    with torch.no_grad():
        encoded = recommender.scorer.model.encode()
        users = recommender.scorer.model.latent_users(
            encoded, Batch(torch.tensor([account]), items, torch.tensor([len(history)]))
        )
    return users.ownership[0].T.tolist(), users.weight[0].tolist()


def assert_same(found: Ownership, history: list[str], wanted: tuple[list[list[float]], list[float]]) -> None:
    assert [one.item_id for one in found] == history
    np.testing.assert_allclose([one.shares for one in found], wanted[0], atol=1e-6)
    np.testing.assert_allclose(found.weights, wanted[1], atol=1e-6)


def test_an_account_has_its_whole_log(recommender: Recommender) -> None:
    account = recommender.dataset.accounts[7]
    log = log_of(recommender, account)
    found = recommender.ownership(account)
    assert_same(found, log, expected(recommender, 7, log))
    assert (found.account_id, found.notes, len(found)) == (account, (), len(log))
    assert found.interactions == recommender.ownership(account, log).interactions
    assert all(type(share) is float for one in found for share in one.shares)
    assert [sum(one.shares) for one in found] == pytest.approx([1.0] * len(log))
    assert sum(found.weights) == pytest.approx(1)


def test_a_given_history_is_all_there_is(recommender: Recommender) -> None:
    account = recommender.dataset.accounts[7]
    log = log_of(recommender, account)[2:6] * 2
    assert_same(recommender.ownership(account, log), log, expected(recommender, 7, log))
    alone = recommender.ownership(history=log)
    assert_same(alone, log, expected(recommender, UNSEEN, log))
    named = recommender.ownership("somebody new", log)
    assert named.interactions == alone.interactions
    assert named.notes == ("account 'somebody new' is not known: the history alone decides",)
    assert alone.weights != recommender.ownership(account, log).weights


def test_the_shares_of_an_event_do_not_depend_on_its_place(recommender: Recommender) -> None:
    log = log_of(recommender, recommender.dataset.accounts[4])
    forward, backward = recommender.ownership(history=log), recommender.ownership(history=log[::-1])
    assert backward.interactions == forward.interactions[::-1]
    assert backward.weights == forward.weights
    assert forward[1:3] == forward.interactions[1:3]
    assert len(set(forward.interactions)) == len(set(log))  # a repeated item has one set of shares


def test_unknown_items_are_left_out_with_a_note(recommender: Recommender) -> None:
    known = list(recommender.dataset.items[:3])
    found = recommender.ownership(history=["?", known[0], known[1], "!", known[2]])
    assert found.interactions == recommender.ownership(history=known).interactions
    assert found.notes == ("left out of the history, because not in data: '?', '!'",)


def test_items_without_training_events_have_shares(recommender: Recommender) -> None:
    train = split_dataset(recommender.dataset, SplitConfig()).train
    new = recommender.dataset.items[int(np.flatnonzero(train.popularity == 0)[0])]
    found = recommender.ownership(history=[recommender.dataset.items[0], new])
    assert sum(found[1].shares) == pytest.approx(1)


def test_without_a_history_there_is_nothing_to_own(recommender: Recommender) -> None:
    found = recommender.ownership(history=["?"])
    assert (len(found), found.notes[-1]) == (0, "no history: there is nothing to own")
    assert sum(found.weights) == pytest.approx(1)


def test_what_cannot_be_answered_is_refused(recommender: Recommender) -> None:
    with pytest.raises(SettingError, match="or both, found neither"):
        recommender.ownership()
    with pytest.raises(DataError, match="unknown account 'x'"):
        recommender.ownership("x")
    with pytest.raises(SettingError, match="expected a list of item ids"):
        recommender.ownership(history="abc")


def test_a_share_that_is_no_number_is_refused(world: Path) -> None:
    broken = load(world / "run")
    with torch.no_grad():
        broken.scorer.model.account_embeddings[0] = torch.nan  # type: ignore[union-attr, operator, index]
    with pytest.raises(ScoreError, match="lightgc2n: a latent user's share is not finite"):
        broken.ownership(broken.dataset.accounts[0])


@pytest.mark.parametrize("name", ["lightgc2n-wo-a", "lightgc2n-wo-c"])
def test_a_run_without_latent_users_says_so(name: str, world: Path, tmp_path: Path) -> None:
    train_run(RunPlan(world / "data", name, training=FEW), tmp_path / "run")
    plain = load(tmp_path / "run")
    with pytest.raises(SettingError, match="this model has no latent users"):
        plain.ownership(plain.dataset.accounts[0])
