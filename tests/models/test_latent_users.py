"""Latent users of a history: whose each event is and how much of the account each user is."""

import math
from dataclasses import replace

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.data.batches import Batch
from lightgc2n.data.splits import UNSEEN
from lightgc2n.errors import SettingError
from lightgc2n.models.contract import LatentUsers
from lightgc2n.models.lightgc2n.capsules import DynamicRouting, routing_weights
from lightgc2n.models.lightgc2n.convolution import SHARPEST, CapsuleConvolution
from lightgc2n.models.lightgc2n.lightgc2n import Encoded, LightGC2N
from tests.graph.logs import training_of
from tests.models.small import SPLIT, asked_batch, model_of

WITH_LATENT_USERS = (
    *("lightgc2n", "lightgc2n-wo-la", "lightgc2n-wo-dr", "lightgc2n-wo-cl", "lightgc2n-wo-s"),
    *("lightgc2n-plus", "lightgc2n-plus-wo-state", "lightgc2n-plus-wo-steps", "lightgc2n-plus-wo-memory"),
    "lightgc2n-plus-wo-trends",
    "lightgc2n-plus-wo-blend",
)


def users_of(model: LightGC2N, batch: Batch) -> LatentUsers:
    with torch.no_grad():
        return model.latent_users(model.encode(), batch)


def by_hand() -> tuple[LightGC2N, Encoded]:
    """One account with two latent users, (0.5, 0) and (0, 0.8), and three items: (0.8, 0), (0, 0.5) and (0, 0)."""
    size = {"latent_users": 2, "embedding_width": 1, "capsule_width": 2, "layers": 1, "routing_steps": 1}
    model = model_of(train=training_of([[0, 1, 2]], items=3), **size)
    assert isinstance(model.convolution, CapsuleConvolution)
    assert isinstance(model.convolution.routing, DynamicRouting)
    with torch.no_grad():
        model.account_embeddings.fill_(1.0)
        to_users = model.convolution.to_users.project
        to_users.weight.copy_(tensor([[1.0], [0.0], [0.0], [2.0]]))  # type: ignore[union-attr, operator]
        to_users.bias.zero_()  # type: ignore[union-attr, operator]
        for linear in model.convolution.layers[0].children():
            linear.weight.zero_()  # type: ignore[union-attr, operator]
        model.convolution.routing.start.fill_(1.0)
    items = tensor([[0.8, 0.0], [0.0, 0.5], [0.0, 0.0]])
    return model, Encoded([items, items], items, items, items)


def test_shares_and_weights_by_hand() -> None:
    model, encoded = by_hand()
    actual = model.latent_users(
        encoded, Batch(tensor([0]), tensor([[1, 0, 1, 0]]), tensor([3]))
    )  # 1, 0, 1, then padding
    scale = SHARPEST / 2
    # Eq. 5 over the distinct items 0 and 1: e^x / (√e^x + √e^y). The first user's matches are 0.5 · 0.8 and 0.
    x, y = math.exp(scale * 0.5 * 0.8), math.exp(scale * 0.8 * 0.5)
    first = {0: x / (math.sqrt(x) + 1), 1: 1 / (math.sqrt(x) + 1)}
    second = {0: 1 / (1 + math.sqrt(y)), 1: y / (1 + math.sqrt(y))}
    share = {item: first[item] / (first[item] + second[item]) for item in (0, 1)}
    expected = [[share[1], share[0], share[1], 0.0], [1 - share[1], 1 - share[0], 1 - share[1], 0.0]]
    assert_close(actual.ownership, tensor([expected]))
    # With every weight of the layer 0 the users stay those of layer 0; one pass of routing squashes 0.5 and 0.8.
    lengths = [0.5**2 / (1 + 0.5**2), 0.8**2 / (1 + 0.8**2)]
    assert_close(actual.weight, tensor([[length / sum(lengths) for length in lengths]]))


def test_the_order_of_a_history_only_permutes_columns() -> None:
    model, batch = model_of(), asked_batch()
    length = int(batch.length.min())
    batch = replace(batch, history=batch.history[:, :length], length=torch.full_like(batch.length, length))
    order = torch.randperm(length)
    first, second = users_of(model, batch), users_of(model, replace(batch, history=batch.history[:, order]))
    assert_close(second.ownership, first.ownership[:, :, order], rtol=0, atol=0)
    assert_close(second.weight, first.weight, rtol=0, atol=0)


@pytest.mark.parametrize("name", WITH_LATENT_USERS)
def test_shares_sum_to_one_over_the_users(name: str) -> None:
    torch.manual_seed(0)
    model, batch = zoo.build(name, SPLIT.train, {"latent_users": 4}).eval(), asked_batch()
    actual = model.latent_users(model.encode(), batch)
    assert actual.ownership.shape == (len(batch.length), 4, batch.history.shape[1])
    assert actual.ownership.min() >= 0
    assert_close(actual.ownership.sum(dim=1), batch.known.float())
    assert_close(actual.weight.sum(dim=1), torch.ones(len(batch.length)))


def test_padding_changes_no_share() -> None:
    model, batch = model_of(), asked_batch()
    actual = users_of(model, batch)
    padding = torch.full((len(batch.length), 4), 3)
    wider = users_of(model, replace(batch, history=torch.cat([batch.history, padding], dim=1)))
    assert_close(wider.ownership[:, :, :-4], actual.ownership)
    assert not wider.ownership[:, :, -4:].any()
    assert_close(wider.weight, actual.weight)


def test_an_item_has_the_same_shares_each_time() -> None:
    model = model_of()
    once = users_of(model, Batch(tensor([2]), tensor([[4, 1, 9]]), tensor([3])))
    again = users_of(model, Batch(tensor([2]), tensor([[9, 4, 4, 1, 9]]), tensor([5])))
    assert_close(again.ownership, once.ownership[:, :, [2, 0, 0, 1, 2]])
    assert_close(again.weight, once.weight)


def test_a_batch_gives_what_single_histories_give() -> None:
    model, batch = model_of(), asked_batch()
    together = users_of(model, batch)
    for row in (0, 5):
        length = int(batch.length[row])
        alone = users_of(model, Batch(batch.account[[row]], batch.history[[row], :length], batch.length[[row]]))
        assert_close(alone.ownership[0], together.ownership[row, :, :length], rtol=1e-5, atol=1e-6)
        assert_close(alone.weight[0], together.weight[row], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 3])
def test_training_events_as_history_give_what_the_graph_gives(layers: int) -> None:
    model, train = model_of(layers=layers), SPLIT.train
    assert isinstance(model.convolution, CapsuleConvolution)
    encoded = model.encode()
    for account in range(train.accounts):
        log = train.events[train.offsets[account] : train.offsets[account + 1]].tolist()
        actual = users_of(model, Batch(tensor([account]), tensor([log]), tensor([len(log)])))
        near = model.graph(tensor([account]), model.account_embeddings)
        shares = model.convolution.ownership(near, encoded.layers)[0]
        held = near.items[0].tolist()
        assert_close(actual.ownership[0], shares[:, [held.index(item) for item in log]], rtol=1e-5, atol=1e-6)
        terms = model.convolution.routing.terms(model.convolution.users(near, encoded.layers))
        assert_close(actual.weight, routing_weights(terms), rtol=1e-5, atol=1e-6)


def test_an_unseen_account_starts_from_the_mean() -> None:
    model, batch = model_of(), asked_batch()
    unseen = users_of(model, replace(batch, account=torch.full_like(batch.account, UNSEEN)))
    with torch.no_grad():
        model.account_embeddings.copy_(model.account_embeddings.mean(dim=0, keepdim=True))
        encoded = replace(model.encode(), layers=model_of().encode().layers)  # the items as they were
    assert_close(model.latent_users(encoded, batch).ownership, unseen.ownership, rtol=1e-5, atol=1e-6)


def test_without_a_history_nothing_is_owned() -> None:
    actual = users_of(model_of(), Batch(tensor([0, UNSEEN]), tensor([[0, 0], [0, 0]]), tensor([0, 0])))
    assert not actual.ownership.any()
    assert_close(actual.weight.sum(dim=1), torch.ones(2))


@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_model_has_latent_users_or_names_one_that_has(name: str) -> None:
    torch.manual_seed(0)
    model = zoo.build(name, SPLIT.train).eval()
    with torch.no_grad():
        encoded = model.encode()
    assert model.has_latent_users == (name in WITH_LATENT_USERS)
    if name in WITH_LATENT_USERS:
        assert model.latent_users(encoded, asked_batch()).weight.shape == (
            len(asked_batch().length),
            model.config.latent_users,
        )
    else:
        with pytest.raises(SettingError, match=r"no latent users.*such as lightgc2n-plus"):
            model.latent_users(encoded, asked_batch())
