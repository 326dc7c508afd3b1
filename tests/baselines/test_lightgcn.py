"""LightGCN by hand, by dense matrices, and beside another library."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.lightgcn import LightGCN, LightGCNConfig, folded_history, folded_prefixes
from lightgc2n.data.batches import Batch, TrainingBatch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.errors import SettingError
from lightgc2n.layers.sampled_losses import candidates_of
from tests.graph.logs import ITEMS, LOGS, training_of


def parameter_count(config: LightGCNConfig, accounts: int, items: int) -> int:
    """(N + M)·D, and one for ρ where both node and history speak."""
    return (accounts + items) * config.width + (config.feed == "account+sequence")


LOGS_OF_FOUR = [[0, 1, 0, 3], [1, 2, 4], [3, 3, 1], [4]]  # item 5 is nobody's


def model_of(logs: list[list[int]], items: int = ITEMS, **changes: Any) -> LightGCN:
    torch.manual_seed(0)
    model = zoo.build("lightgcn", training_of(logs, items), {"width": 5, **changes})
    assert isinstance(model, LightGCN)
    return model


def dense(logs: list[list[int]], items: int) -> Tensor:
    """Ã with the accounts in front, as the paper writes it."""
    count = len(logs)
    matrix = torch.zeros(count + items, count + items)
    for account, log in enumerate(logs):
        for item in set(log):
            matrix[account, count + item] = matrix[count + item, account] = 1
    root = matrix.sum(dim=1).clamp(min=1).rsqrt()
    return root[:, None] * matrix * root


def all_items(model: LightGCN) -> Domain:
    return Domain("all", 0, len(model.item_embeddings))


def batch_of(*rows: tuple[int, list[int]]) -> Batch:
    widest = max(1, max(len(log) for _, log in rows))
    history = tensor([log + [0] * (widest - len(log)) for _, log in rows])
    return Batch(tensor([account for account, _ in rows]), history, tensor([len(log) for _, log in rows]))


def one_batch(logs: list[list[int]], items: int = ITEMS) -> TrainingBatch:
    return next(training_batches(training_of(logs, items), 100))


def test_propagation_by_hand() -> None:
    """Account 0 holds items 0 and 1, account 1 holds item 1: the edges weigh 1/√2, 1/2 and 1/√2."""
    model = model_of([[0, 1, 1], [1]], items=2, width=1, layers=1)
    item, account = tensor([[1.0], [10.0]]), tensor([[100.0], [1000.0]])
    actual = model.propagation(item, account)
    root = math.sqrt(2)
    next_items = tensor([[100 / root], [100 / 2 + 1000 / root]])
    next_accounts = tensor([[1 / root + 10 / 2], [10 / root]])
    assert_close(actual.items, (item + next_items) / 2)
    assert_close(actual.accounts, (account + next_accounts) / 2)
    assert_close(actual.contributions, tensor([[1.0], [10 / root]]) / 2)


@settings(max_examples=30)
@given(LOGS, st.integers(0, 4))
def test_layers_are_powers_of_the_dense_matrix(logs: list[list[int]], layers: int) -> None:
    model = model_of(logs, layers=layers)
    matrix, node = dense(logs, ITEMS), torch.cat([model.account_embeddings, model.item_embeddings])
    mean = sum(torch.linalg.matrix_power(matrix, power) @ node for power in range(layers + 1)) / (layers + 1)
    actual = model.encode()
    assert_close(torch.cat([actual.accounts[:-1], actual.items]), mean, rtol=1e-5, atol=1e-6)


def test_the_matrix_is_symmetric_and_never_lengthens() -> None:
    model = model_of(LOGS_OF_FOUR, items=6, layers=1)
    count, identity = len(LOGS_OF_FOUR), torch.eye(len(LOGS_OF_FOUR) + 6)
    rows = [model.propagation.to_accounts(identity[count:]), model.propagation.to_items(identity[:count])]
    matrix = torch.cat(rows)
    assert_close(matrix, matrix.T)
    vector = torch.ones(len(matrix))
    for _ in range(200):  # power iteration on Ã², whose largest value is not two-sided
        following = matrix @ (matrix @ vector)
        radius, vector = following.norm() / vector.norm(), following / following.norm()
    assert radius <= 1 + 1e-5
    assert radius > 0.99  # a bipartite graph reaches it, so a wrong normalisation would show


def test_no_layer_is_matrix_factorisation() -> None:
    model = model_of(LOGS_OF_FOUR, items=6, layers=0)
    batch = batch_of((2, [3, 1]), (0, []))
    expected = model.account_embeddings[[2, 0]] @ model.item_embeddings.T
    assert_close(model.scores(model.encode(), batch, all_items(model)), expected.detach())


def test_a_history_alone_needs_a_layer() -> None:
    with pytest.raises(SettingError, match="layers=1 or more"):
        model_of(LOGS_OF_FOUR, items=6, layers=0, feed="sequence")


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_folding_in_the_neighbours_gives_the_node(layers: int) -> None:
    model = model_of(LOGS_OF_FOUR, items=6, layers=layers)
    encoded = model.encode()
    batch = batch_of(*enumerate(LOGS_OF_FOUR))
    folded = folded_history(encoded.contributions, batch) + model.account_embeddings / (layers + 1)
    assert_close(folded, encoded.accounts[:-1], rtol=1e-6, atol=1e-6)


def test_a_prefix_is_folded_in_like_a_history() -> None:
    model = model_of(LOGS_OF_FOUR, items=6)
    contributions, batch = model.encode().contributions, one_batch(LOGS_OF_FOUR, 6)
    actual = folded_prefixes(contributions, batch)
    for row, log in enumerate(LOGS_OF_FOUR[:3]):  # the fourth has nothing to ask
        for place in range(len(log) - 1):
            alone = folded_history(contributions, batch_of((row, log[: place + 1])))[0]
            assert_close(actual[row, place], alone)


@pytest.mark.parametrize("negatives", [1, 4])
def test_the_loss_is_that_of_a_slow_loop(negatives: int) -> None:
    model, batch = model_of(LOGS_OF_FOUR, 6, negatives=negatives, penalty=0.3), one_batch(LOGS_OF_FOUR, 6)
    encoded = model.encode()
    torch.manual_seed(7)
    candidates = candidates_of(batch.next_item[batch.counts], 6, negatives)
    expected, squares, query = tensor(0.0), tensor(0.0), 0
    for account, log in enumerate(LOGS_OF_FOUR[:3]):
        for place in range(1, len(log)):
            right, *wrong = candidates[query]
            assert right == log[place]
            asking = encoded.accounts[account] + model.rho * folded_history(
                encoded.contributions, batch_of((0, log[:place]))
            )
            score = asking[0] @ encoded.items.T
            expected -= torch.log(score[right].exp() / (score[right].exp() + sum(score[j].exp() for j in wrong)))
            rows = [model.account_embeddings[account], *(model.item_embeddings[j] for j in candidates[query])]
            squares += sum(row.square().sum() for row in rows)
            query += 1
    torch.manual_seed(7)
    actual = model.losses(encoded, batch)
    assert_close(actual["next_item"], expected / query)
    assert_close(actual["penalty"], 0.3 / 2 * squares / query)


def test_equal_scores_cost_the_logarithm_of_two() -> None:
    model = model_of(LOGS_OF_FOUR, 6)
    torch.nn.init.zeros_(model.item_embeddings)
    torch.nn.init.zeros_(model.account_embeddings)
    assert_close(model.losses(model.encode(), one_batch(LOGS_OF_FOUR, 6))["next_item"], tensor(math.log(2)))


def test_what_each_feed_shows() -> None:
    batch = batch_of((0, [4]), (1, [4]), (-1, [4]))
    model = model_of(LOGS_OF_FOUR, 6, feed="account")
    encoded = model.encode()
    accounts = torch.cat([encoded.accounts[:2], encoded.accounts[:4].mean(dim=0, keepdim=True)])  # a stranger: average
    assert_close(model.scores(encoded, batch, all_items(model)), (accounts @ encoded.items.T).detach())
    model = model_of(LOGS_OF_FOUR, 6, feed="sequence")
    actual = model.scores(model.encode(), batch, all_items(model))
    assert_close(actual, actual[:1].expand(3, -1))
    model = model_of(LOGS_OF_FOUR, 6)
    encoded, stranger = model.encode(), model.scores(model.encode(), batch, all_items(model))[2]
    assert_close(stranger, (folded_history(encoded.contributions, batch)[2] @ encoded.items.T).detach())


def test_an_account_folded_in_with_its_own_items_is_itself() -> None:
    model = model_of(LOGS_OF_FOUR, 6)
    encoded, batch = model.encode(), batch_of(*enumerate(LOGS_OF_FOUR))
    known = model.scores(encoded, batch, all_items(model))
    assert_close(model.fold_in_scores(encoded, batch, all_items(model)), known, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("feed", ["account", "sequence", "account+sequence"])
@pytest.mark.parametrize("width", [3, 16])
def test_the_parameters_are_those_of_the_formula(feed: str, width: int) -> None:
    model = model_of(LOGS_OF_FOUR, 6, feed=feed, width=width)
    assert sum(value.numel() for value in model.parameters()) == parameter_count(model.config, 4, 6)


def test_the_formula_on_the_paper_s_data() -> None:
    """HVIDEO's E domain: 13,714 accounts and 8,367 items at width 16, as tables of the paper count; and ρ."""
    assert parameter_count(LightGCNConfig(width=16), 13_714, 8_367) == 353_296 + 1


@pytest.mark.parametrize("layers", [1, 3])
def test_torch_geometric_propagates_the_same(layers: int) -> None:
    library: Any = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
    random = np.random.default_rng(0)
    logs = [random.integers(40, size=random.integers(1, 30)).tolist() for _ in range(25)]
    model = model_of(logs, items=50, layers=layers, width=8)
    pairs = tensor([(account, 25 + item) for account, log in enumerate(logs) for item in sorted(set(log))]).T
    other = library.LightGCN(75, 8, layers)
    with torch.no_grad():
        other.embedding.weight.copy_(torch.cat([model.account_embeddings, model.item_embeddings]))
    theirs = other.get_embedding(torch.cat([pairs, pairs.flip(0)], dim=1))
    ours = model.encode()
    assert_close(torch.cat([ours.accounts[:-1], ours.items]), theirs, rtol=1e-5, atol=1e-5)
