"""Steps grow with the accounts where every step encodes all of them, and not where today's sizes end."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from lightgc2n.data.account_parts import part_of_split
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.models.contract import Model
from lightgc2n.training.loop import Steps, TrainingConfig, learning_rate_for, rows_per_step, train
from lightgc2n.training.run import new_model
from lightgc2n.training.worker_steps import PartOfAccounts
from tests.worlds import WORLDS

SPLIT = split_dataset(WORLDS["tastes"], SplitConfig())


def fresh(name: str = "lightgc2n") -> Model:
    return new_model(name, SPLIT, {}, 0)


@pytest.mark.parametrize(("accounts", "rows"), [(13_714, 256), (32_768, 256), (64_000, 500), (1_000_000, 7_813)])
def test_a_step_has_a_128th_of_the_accounts_but_not_less_than_the_batch_size(accounts: int, rows: int) -> None:
    assert rows_per_step(fresh(), accounts, TrainingConfig()) == rows


def test_every_variant_has_the_same_steps() -> None:
    for name in ("lightgc2n-wo-a", "lightgc2n-wo-c"):
        assert rows_per_step(fresh(name), 1_000_000, TrainingConfig()) == 7_813


def test_a_model_that_does_not_encode_all_accounts_keeps_its_batch_size() -> None:
    assert rows_per_step(fresh("lightgc2n-plus"), 1_000_000, TrainingConfig()) == 256


def test_without_a_share_the_batch_size_decides() -> None:
    assert rows_per_step(fresh(), 1_000_000, TrainingConfig(batch_size=100, batch_share=0.0)) == 100


@pytest.mark.parametrize(("rows", "factor"), [(256, 1.0), (1024, 2.0), (4096, 4.0), (65_536, 4.0)])
def test_the_learning_rate_grows_with_the_root_of_the_step_up_to_four_times(rows: int, factor: float) -> None:
    assert learning_rate_for(rows, TrainingConfig(learning_rate=0.005)) == 0.005 * factor


def test_steps_train_all_sequences_once_with_the_enlarged_size_and_rate() -> None:
    accounts = SPLIT.train.accounts
    config = TrainingConfig(batch_size=accounts // 16, batch_share=0.25, learning_rate=0.01)
    steps = Steps(fresh(), SPLIT.train, config, "cpu")
    batches = list(steps.batches(0))
    assert len(batches) == len(steps) == 4
    assert sorted(torch.cat([batch.account for batch in batches]).tolist()) == list(range(accounts))
    assert steps.optimizer.param_groups[0]["lr"] == pytest.approx(0.02)


def test_a_worker_with_a_part_of_the_accounts_takes_the_steps_of_the_whole() -> None:
    config = TrainingConfig(batch_size=4, batch_share=0.25)
    part = part_of_split(SPLIT, 1, 3)
    whole = Steps(fresh(), SPLIT.train, config, "cpu")
    alone = SimpleNamespace(number=1, count=3, sum=lambda counts, purpose: None)  # exchanges nothing
    own = Steps(fresh(), part.train, config, "cpu", PartOfAccounts(alone, part))
    assert (own.rows, len(own)) == (whole.rows, len(whole))
    assert len(list(own.batches(0))) == len(whole)


def test_on_few_accounts_the_share_changes_no_digit() -> None:
    weights = []
    for share in (0.0, TrainingConfig().batch_share):
        torch.manual_seed(0)
        model = fresh()
        train(model, SPLIT, TrainingConfig(epochs=2, batch_size=32, batch_share=share), evaluate=None)
        weights.append(model.state_dict())
    for name, tensor in weights[0].items():
        assert_close(weights[1][name], tensor, rtol=0, atol=0)


def test_the_enlarged_step_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainingConfig(epochs=1, batch_size=1, batch_share=1.0, learning_rate=0.001)
    train(fresh(), SPLIT, config, evaluate=None)
    said = " ".join(capsys.readouterr().err.split())
    size = f"1 steps an epoch with {SPLIT.train.accounts:,} sequences each, learning rate 0.004 (training.batch_share)"
    assert size in said
