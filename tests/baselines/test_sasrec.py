"""SASRec: equations, order, long logs, and the size of the model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, layer_norm, relu
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.sasrec import SASRec, SASRecConfig
from lightgc2n.data.batches import Batch, make_batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import SettingError
from tests.worlds import WORLDS, dataset_of


def parameter_count(config: SASRecConfig, accounts: int, items: int) -> int:
    """(M + M if untied + max_length)·D + blocks·(5(D² + D) + 4D) + 2D; accounts have none."""
    tables = items * (1 if config.tied else 2) + config.max_length
    block = 5 * (config.width**2 + config.width) + 4 * config.width
    return tables * config.width + config.blocks * block + 2 * config.width


def model(items: int = 12, **settings: object) -> SASRec:
    torch.manual_seed(0)
    made = SASRec(SASRecConfig(**{"width": 8, "max_length": 6, **settings}), items)
    with torch.no_grad():  # far from the tiny first weights, so that every part shows
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
    return made.eval()


def history(*logs: list[int]) -> Batch:
    table = torch.zeros(len(logs), max(1, *map(len, logs)), dtype=torch.long)
    for row, log in enumerate(logs):
        table[row, : len(log)] = torch.tensor(log, dtype=torch.long)
    return Batch(torch.zeros(len(logs), dtype=torch.long), table, torch.tensor([len(log) for log in logs]))


def states_by_loops(made: SASRec, log: list[int]) -> torch.Tensor:
    """The equations for one log and one head, event by event."""
    width = made.config.width
    rows = [width**0.5 * made.items[item] + made.positions[len(log) - 1 - place] for place, item in enumerate(log)]
    for block in made.blocks:
        after = []
        for here in range(len(rows)):
            asking = block.attention_norm(rows[here])
            query = block.attention.query(asking)
            pairs = [block.attention.key_value(row).chunk(2) for row in rows[: here + 1]]
            weights = torch.softmax(torch.stack([query @ key / width**0.5 for key, _ in pairs]), dim=0)
            mixed = asking + sum(weight * value for weight, (_, value) in zip(weights, pairs, strict=True))
            mixed = block.forward_norm(mixed)
            after.append(mixed + block.outer(relu(block.inner(mixed))))
        rows = after
    return torch.stack([layer_norm(row, (width,), made.last_norm.weight, made.last_norm.bias) for row in rows])


def test_states_are_those_of_the_loops() -> None:
    made, logs = model(heads=1), [[3, 1, 4, 1, 5], [9, 2]]
    batch = history(*logs)
    actual = made.states(batch.history, batch.known)
    assert_close(actual[batch.known], torch.cat([states_by_loops(made, log) for log in logs]), rtol=1e-4, atol=1e-5)
    assert not actual[~batch.known].any()


def test_what_comes_later_changes_nothing() -> None:
    made, log = model(), torch.tensor([[3, 1, 4, 1, 5, 9]])
    seen = torch.ones_like(log, dtype=torch.bool)
    before = made.states(log, seen)[0]
    for place in range(1, 6):
        changed = log.clone()
        changed[0, place] = 7
        after = made.states(changed, seen)[0]
        assert_close(after[:place], before[:place], rtol=0, atol=1e-6)
        assert not torch.allclose(after[place:], before[place:], atol=1e-3)


def test_order_matters() -> None:
    made, all_items = model(), Domain("all", 0, 12)
    scores = made.scores(made.encode(), history([1, 2, 3], [2, 1, 3]), all_items)
    assert not torch.allclose(scores[0], scores[1], atol=1e-3)


@pytest.mark.parametrize("tied", [True, False])
def test_the_loss_is_the_mean_over_places_that_count(tied: bool) -> None:
    made = model(items=4, tied=tied, heads=1)
    split = split_dataset(dataset_of([("a", "w x y z x y"), ("b", "z y x w")]), SplitConfig())
    batch = next(training_batches(split.train, 2))  # w x y -> x y z, and z -> y
    table = made.items if tied else made.second_items
    logits = torch.cat([states_by_loops(made, log) for log in ([0, 1, 2], [3])]) @ table.T
    expected = cross_entropy(logits, torch.tensor([1, 2, 3, 2]))
    assert_close(made.losses(made.encode(), batch)["next_item"], expected, rtol=1e-4, atol=1e-5)
    last = next(training_batches(replace(split.train, targets="last"), 2))
    expected = cross_entropy(logits[[2, 3]], torch.tensor([3, 2]))
    assert_close(made.losses(made.encode(), last)["next_item"], expected, rtol=1e-4, atol=1e-5)


def test_long_logs_train_in_windows_and_score_by_their_newest_events() -> None:
    made = model(items=5, max_length=3, heads=1, tied=True)
    log = [0, 1, 2, 3, 4, 3, 2]
    split = split_dataset(dataset_of([("a", " ".join("abcde"[item] for item in log))]), SplitConfig())
    batch = next(training_batches(split.train, 1))  # a b c d -> b c d e, cut into a and b c d
    states = torch.cat([states_by_loops(made, [0]), states_by_loops(made, [1, 2, 3])])
    expected = cross_entropy(states @ made.items.T, torch.tensor([1, 2, 3, 4]))
    assert_close(made.losses(made.encode(), batch)["next_item"], expected, rtol=1e-4, atol=1e-5)
    all_items = Domain("all", 0, 5)
    actual = made.scores(made.encode(), history(log), all_items)
    assert_close(actual[0], states_by_loops(made, [4, 3, 2])[-1] @ made.items.T, rtol=1e-4, atol=1e-5)


def test_a_history_without_events_scores_all_alike() -> None:
    made, all_items = model(), Domain("all", 0, 12)
    assert_close(made.scores(made.encode(), history([], []), all_items), torch.zeros(2, 12))
    mixed = made.scores(made.encode(), history([], [3, 1]), all_items)
    assert_close(mixed[0], torch.zeros(12))
    assert_close(mixed[1:], made.scores(made.encode(), history([3, 1]), all_items))


def test_first_weights() -> None:
    torch.manual_seed(0)
    made = SASRec(SASRecConfig(), 500)
    for name, parameter in made.named_parameters():
        if parameter.dim() > 1:
            assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.1), name
        else:
            assert set(parameter.tolist()) == ({1.0} if name.endswith("norm.weight") else {0.0}), name


@pytest.mark.parametrize("settings", [{"width": 6, "heads": 3}, {"width": 16, "blocks": 3, "tied": True}])
def test_parameter_count(settings: dict[str, object]) -> None:
    config = SASRecConfig(**settings)
    actual = sum(parameter.numel() for parameter in SASRec(config, 17).parameters())
    assert actual == parameter_count(config, accounts=9, items=17)


def test_heads_must_share_the_width() -> None:
    with pytest.raises(SettingError, match="3 heads do not divide width 64"):
        SASRec(SASRecConfig(heads=3), 5)


@pytest.mark.parametrize("loss", ["sampled-softmax", "gbce"])
def test_sampled_losses_learn(loss: str) -> None:
    """A few steps on one batch bring the full softmax loss down too."""
    split = split_dataset(WORLDS["steps"], SplitConfig())
    torch.manual_seed(0)
    made = zoo.build("sasrec", split.train, {"loss": loss, "negatives": 10})
    full = zoo.build("sasrec", split.train).eval()
    batch = next(training_batches(split.train, 60, np.random.default_rng(0)))
    optimizer = torch.optim.Adam(made.parameters(), lr=0.01)

    def full_loss() -> float:
        full.load_state_dict(made.state_dict())
        return float(full.losses(full.encode(), batch)["next_item"].detach())

    before = full_loss()
    for _ in range(30):
        optimizer.zero_grad()
        made.losses(made.encode(), batch)["next_item"].backward()
        optimizer.step()
    assert full_loss() < 0.7 * before


def test_scores_do_not_depend_on_the_account() -> None:
    made, split = model(items=40), split_dataset(WORLDS["tastes"], SplitConfig())
    batch = make_batch(split.test.select(np.arange(3)))
    other = replace(batch, account=torch.full_like(batch.account, -1))
    all_items = Domain("all", 0, 40)
    assert torch.equal(made.scores(made.encode(), batch, all_items), made.scores(made.encode(), other, all_items))
