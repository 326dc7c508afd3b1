"""GMF, MLP and NeuMF by hand."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import cross_entropy
from torch.optim import Adam
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.ncf import BRANCHES, NCF, NCFConfig, Product, Tower, tower_widths
from lightgc2n.data.batches import Batch, TrainingBatch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, Training, split_dataset
from lightgc2n.devices import CPU, DEVICES
from lightgc2n.errors import SettingError
from lightgc2n.layers.sampled_losses import candidates_of
from tests.graph.logs import training_of
from tests.worlds import WORLDS


def parameter_count(name: str, config: NCFConfig, accounts: int, items: int) -> int:
    """GMF (N + M)·D + D + 1, MLP (N + M)·D + Σ (in·out + out) + F + 1; NeuMF both, with one bias at the end.

    `lastk` has k·D² + D in place of N·D, a separate input table M·D more, and a softmax no last bias.
    """
    width, tower = config.width, tower_widths(config)
    asking = config.newest * width**2 + width if config.feed == "lastk" else accounts * width
    tables = asking + items * width * (1 + config.separate_input_table)
    hidden = sum(before * after + after for before, after in pairwise(tower))
    size = {Product: tables + width, Tower: tables + hidden + tower[-1]}
    return sum(size[branch] for branch in BRANCHES[name]) + (config.loss == "pointwise")


LOGS = [[2, 1, 2, 0], [3, 3, 1], [4, 5, 6, 6]]
TRAIN = training_of(LOGS, items=7)
BATCH = Batch(tensor([1, 0, -1]), tensor([[4, 4, 2], [6, 0, 0], [1, 3, 0]]), tensor([3, 1, 2]))


def model_of(name: str, train: Training = TRAIN, **changes: Any) -> NCF:
    torch.manual_seed(0)
    model = zoo.build(name, train, {"width": 4, **changes})
    assert isinstance(model, NCF)
    for parameter in model.parameters():  # away from the tiny first values, so that a mistake would show
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def one_batch(train: Training = TRAIN) -> TrainingBatch:
    return next(training_batches(train, 1000))


def scores(model: NCF, batch: Batch = BATCH) -> Tensor:
    return model.scores(model.encode(), batch, Domain("all", 0, model.holdings.catalogue))


def asking(model: NCF, branch: int, batch: Batch = BATCH) -> Tensor:
    part: Any = model.branches[branch]
    rows = part.items[batch.history] * batch.known[..., None]
    history = rows.sum(dim=1) / batch.length[:, None]
    account = part.feed.accounts[batch.account.clamp(min=0)] * (batch.account >= 0)[:, None]
    return (account + history).detach()


def through_the_tower(model: NCF, branch: int, asks: Tensor, item: Tensor) -> Tensor:
    """z_X of one pair, layer by layer, as it is printed."""
    part: Any = model.branches[branch]
    vector = torch.cat([asks, item])
    for layer in (part.first, *part.rest):
        vector = torch.clamp(layer.weight @ vector + layer.bias, min=0)
    return vector.detach()


def test_gmf_with_even_weights_is_matrix_factorisation() -> None:
    model = model_of("gmf", feed="account")
    torch.nn.init.ones_(model.output.weight)
    torch.nn.init.zeros_(model.output.bias)
    part: Any = model.branches[0]
    known = Batch(tensor([1, 0, 2]), BATCH.history, BATCH.length)
    expected = part.feed.accounts[[1, 0, 2]] @ part.items.T
    assert_close(scores(model, known), expected.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gmf", "mlp", "neumf"])
def test_scores_are_those_of_a_slow_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On drawn pairs, with blocks of few items: GMF's features stand before those of the MLP."""
    monkeypatch.setitem(
        DEVICES, "cpu", replace(CPU, logit_bytes=4 * 100 * 8 * 3)
    )  # three items of 100 rows and 8 hidden
    random = np.random.default_rng(0)
    train = training_of([random.integers(40, size=6).tolist() for _ in range(100)], items=40)
    model = model_of(name, train, width=8, layers=3)
    batch = Batch(torch.arange(100), tensor(random.integers(40, size=(100, 5))), tensor(random.integers(1, 6, 100)))
    actual = scores(model, batch)
    kinds = {"gmf": ["product"], "mlp": ["tower"], "neumf": ["product", "tower"]}[name]
    for row, item in enumerate(random.integers(40, size=100)):
        features = []
        for branch, kind in enumerate(kinds):
            asks, vector = asking(model, branch, batch)[row], model.branches[branch].items[item].detach()
            features.append(asks * vector if kind == "product" else through_the_tower(model, branch, asks, vector))
        expected = model.output.weight[0] @ torch.cat(features) + model.output.bias[0]
        assert_close(actual[row, item], expected.detach(), rtol=1e-5, atol=1e-5)


def test_the_catalogue_is_scored_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many accounts ask, no block of hidden layers is larger than it may be, unless for a single item."""
    model, seen = model_of("mlp", training_of(LOGS, items=500), width=16), []
    hidden = Tower._hidden

    def spy(tower: Tower, first: Tensor) -> Tensor:
        seen.append(4 * first.numel())
        return hidden(tower, first)

    monkeypatch.setattr(Tower, "_hidden", spy)
    limit = CPU.logit_bytes
    accounts = Batch(
        torch.zeros(3000, dtype=torch.long), torch.ones(3000, 1, dtype=torch.long), torch.ones(3000).long()
    )
    assert scores(model, accounts).shape == (3000, 500)
    assert max(seen) <= limit
    assert sum(seen) == 4 * 3000 * 500 * 16


@pytest.mark.parametrize("name", ["gmf", "mlp", "neumf"])
def test_the_loss_is_that_of_a_slow_loop(name: str) -> None:
    model, batch = model_of(name, negatives=2), one_batch()
    torch.manual_seed(3)
    candidates = candidates_of(batch.next_item[batch.counts], 7, 2)
    terms, query = [], 0
    for account, log in enumerate(LOGS):
        for place in range(1, len(log)):
            history = Batch(tensor([account]), tensor([log[:place]]), tensor([place]))
            row = scores(model, history)[0]
            for number, item in enumerate(candidates[query]):
                share = torch.sigmoid(row[item])
                terms.append(-torch.log(share if number == 0 else 1 - share))
            query += 1
    torch.manual_seed(3)
    actual = model.losses(model.encode(), batch)["next_item"]
    assert_close(actual.detach(), torch.stack(terms).mean(), rtol=1e-4, atol=1e-5)


def test_gmf_ce_is_the_loss_of_choosing_among_all_items() -> None:
    model, batch = model_of("gmf-ce"), one_batch()
    histories = [(account, log[:place]) for account, log in enumerate(LOGS) for place in range(1, len(log))]
    rows = [scores(model, Batch(tensor([a]), tensor([log]), tensor([len(log)])))[0] for a, log in histories]
    expected = cross_entropy(torch.stack(rows), batch.next_item[batch.counts])
    assert_close(model.losses(model.encode(), batch)["next_item"].detach(), expected)


def test_a_softmax_is_refused_where_there_is_no_matrix_product() -> None:
    with pytest.raises(SettingError, match="neumf: loss=softmax"):
        zoo.build("neumf", TRAIN, {"loss": "softmax"})


def test_the_target_never_enters_the_question() -> None:
    """Sequences that differ in nothing but their last event ask with the same vectors."""
    first, second = (training_of([[*log[:-1], last] for log in LOGS], items=7) for last in (0, 6))
    model = model_of("neumf")
    for part in model.branches:
        asked: Any = []
        for train in (first, second):
            batch = one_batch(train)
            asked.append(part.feed.for_queries(part.items, batch, model.training_queries(batch, model.holdings, 1)))  # type: ignore[union-attr, operator]
        assert_close(asked[0], asked[1], rtol=0, atol=0)


def test_a_hidden_account_is_hidden_from_both_branches() -> None:
    """A stranger has no vector in either branch, so that is what training must show."""
    model, batch = model_of("neumf", account_dropout=0.5).train(), one_batch()
    asked = model.training_queries(batch, model.holdings, 1)
    known = []
    for part in model._parts():
        history = part.feed.for_queries(part.items, batch, replace(asked, luck=torch.zeros(len(asked.row))))
        known.append((part.feed.for_queries(part.items, batch, asked) - history).abs().amax(dim=1) > 1e-6)
    assert_close(known[0], known[1])
    assert_close(known[0], asked.luck >= 0.5)


def test_first_weights() -> None:
    torch.manual_seed(0)
    train = training_of([[0, 1]] * 400, items=500)
    model = zoo.build("neumf", train, {"width": 16}).requires_grad_(False)
    product, tower = model.branches
    for table in (product.items, product.feed.accounts, tower.items, tower.feed.accounts):
        assert float(table.std()) == pytest.approx(0.01, rel=0.05)
    assert float(tower.first.weight.abs().max()) <= (6 / (32 + 16)) ** 0.5  # Glorot
    assert float(model.output.weight.abs().max()) <= (3 / 24) ** 0.5  # LeCun, of 16 + 8 features
    assert float(model.output.weight.abs().max()) > 0.8 * (3 / 24) ** 0.5
    assert not tower.first.bias.any()
    assert not model.output.bias.any()


@pytest.mark.parametrize("name", ["gmf", "mlp", "neumf"])
def test_it_learns_two_hundred_rows_by_heart(name: str) -> None:
    random = np.random.default_rng(0)
    logs = random.integers(50, size=(200, 5))
    train = replace(training_of(logs.tolist(), items=50), targets="last")
    torch.manual_seed(0)
    model = zoo.build(name, train, {"width": 16, "dropout": 0.0, "account_dropout": 0.0})
    optimizer = Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        model.losses(model.encode(), one_batch(train))["next_item"].backward()
        optimizer.step()
    batch = Batch(torch.arange(200), tensor(logs[:, :-1]), torch.full((200,), 4))
    best = scores(model.eval(), batch).argmax(dim=1)
    assert (best == tensor(logs[:, -1])).float().mean() > 0.95


def test_tower_widths() -> None:
    assert tower_widths(NCFConfig(width=16)) == [32, 16, 8]
    assert tower_widths(NCFConfig(width=64, layers=3)) == [128, 64, 32, 16]


@pytest.mark.parametrize("name", ["gmf", "mlp", "neumf", "gmf-ce"])
@pytest.mark.parametrize(
    "changes",
    [
        {"width": 16},
        {"width": 6, "layers": 3, "feed": "lastk", "newest": 2},
        {"width": 5, "feed": "account", "separate_input_table": True},
    ],
)
def test_the_parameters_are_those_of_the_formula(name: str, changes: dict[str, Any]) -> None:
    model = model_of(name, **changes)
    count = parameter_count(name.removesuffix("-ce"), model.config, accounts=3, items=7)
    assert sum(value.numel() for value in model.parameters()) == count


@pytest.mark.parametrize(("name", "expected"), [("gmf", 353_313), ("mlp", 353_969), ("neumf", 707_281)])
def test_the_formula_on_the_paper_s_data(name: str, expected: int) -> None:
    """HVIDEO's E domain: 13,714 accounts and 8,367 items at width 16."""
    assert parameter_count(name, NCFConfig(width=16), 13_714, 8_367) == expected


def test_pretraining_trains_each_branch_by_itself_and_joins_them_with_equal_weight() -> None:
    split = split_dataset(WORLDS["tastes"], SplitConfig())
    torch.manual_seed(0)
    model = zoo.build("neumf", split.train, {"pretraining": 2, "dropout": 0.0, "account_dropout": 0.0}).train()
    batch = next(training_batches(split.train, 32))

    def loss(epoch: int) -> float:
        model.start_epoch(epoch)
        torch.manual_seed(1)
        return float(model.losses(model.encode(), batch)["next_item"].detach())

    alone = []
    for branch in (0, 1):  # a branch whose weights are zero adds nothing to the joint score
        saved = model.output.weight.detach().clone()
        features = [part.features for part in model.branches]
        with torch.no_grad():
            (model.output.weight[:, features[0] :] if branch == 0 else model.output.weight[:, : features[0]]).zero_()
        alone.append(loss(3))
        with torch.no_grad():
            model.output.weight.copy_(saved)
    assert loss(0) == pytest.approx(sum(alone), rel=1e-5)
    before = model.output.weight.detach().clone()
    model.start_epoch(2)
    assert_close(model.output.weight.detach(), before / 2)
    model.start_epoch(3)
    assert_close(model.output.weight.detach(), before / 2)
