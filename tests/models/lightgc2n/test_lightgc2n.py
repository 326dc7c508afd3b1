"""The model as a whole: pooling, prediction and losses by slow loops, and what must change nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n.data.batches import Batch, Sizes, make_batch, training_batches
from lightgc2n.data.dataset import Dataset, Domain
from lightgc2n.data.splits import UNSEEN, SplitConfig, split_dataset
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.models.lightgc2n.capsules import DynamicRouting, routing_weights
from lightgc2n.models.lightgc2n.convolution import CapsuleConvolution, Neighbourhood
from lightgc2n.models.lightgc2n.lightgc2n import Encoded, LightGC2N
from lightgc2n.models.lightgc2n.subspaces import SubspaceAlignment, contrast
from tests.graph.logs import training_of
from tests.models.small import SPLIT, asked_batch, model_of, one_batch, scores, total_loss
from tests.worlds import dataset_of


def capsules_of(model: LightGC2N) -> CapsuleConvolution:
    assert isinstance(model.convolution, CapsuleConvolution)
    return model.convolution


def prefixes(rows: Tensor, log: list[int], pooling: str) -> list[Tensor]:
    """One vector for each prefix of a log, by adding again from the start."""
    sums = [sum((rows[item] for item in log[:length]), torch.zeros(rows.shape[1])) for length in range(1, len(log) + 1)]
    return [total / len(log[: place + 1]) if pooling == "mean" else total for place, total in enumerate(sums)]


def account_vectors(model: LightGC2N, encoded: Encoded) -> Tensor:
    near = model.graph(torch.arange(len(model.account_embeddings)), model.account_embeddings)
    return model.convolution.accounts(near, encoded.layers)


# What the equations say


def test_layers_are_added_by_hand() -> None:
    model = model_of(layers=3)
    encoded = model.encode()
    first, second, third, fourth = encoded.layers
    assert_close(encoded.items, first + second + third + fourth)


def test_rows_are_the_aligned_items() -> None:
    model = model_of()
    assert isinstance(model.alignment, SubspaceAlignment)
    encoded = model.encode()
    refined, rows = model.alignment(encoded.items)
    assert_close(encoded.refined, refined)
    assert_close(encoded.rows, rows)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_scores_are_those_of_a_slow_loop(pooling: str) -> None:
    model = model_of(pooling=pooling)
    encoded, batch = model.encode(), asked_batch()
    for row, actual in enumerate(scores(model, batch)):
        log, owner = batch.history[row, : batch.length[row]].tolist(), int(batch.account[row])
        trained = SPLIT.train.events[SPLIT.train.offsets[owner] : SPLIT.train.offsets[owner + 1]].tolist()
        items = tensor([sorted({*log, *trained})])  # all that is known of the account
        near = Neighbourhood(model.account_embeddings[[owner]], items, torch.ones_like(items, dtype=torch.bool))
        account = model.convolution.accounts(near, encoded.layers)[0]
        both = torch.cat([prefixes(encoded.rows, log, pooling)[-1], account])
        assert_close(actual, model.head.weight @ both + model.head.bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("targets", ["all", "last"])
def test_the_loss_of_the_next_item_is_that_of_a_slow_loop(pooling: str, targets: str) -> None:
    train = replace(SPLIT.train, targets=targets)
    model = model_of(train=train, pooling=pooling)
    encoded = model.encode()
    accounts = account_vectors(model, encoded)
    terms = []
    for sequence, account in enumerate(train.sequence_accounts.tolist()):
        log = train.events[train.offsets[sequence] : train.offsets[sequence + 1]].tolist()
        examples = list(zip(prefixes(encoded.rows, log[:-1], pooling), log[1:], strict=True))
        for prefix, target in examples if targets == "all" else examples[-1:]:
            logits = model.head(torch.cat([prefix, accounts[account]]))
            terms.append(-torch.log_softmax(logits, dim=0)[target].item())
    actual = model.losses(encoded, one_batch(train))["next_item"].item()
    assert actual == pytest.approx(sum(terms) / len(terms), rel=1e-5)
    assert len(terms) == train.examples


@pytest.mark.parametrize("negatives", ["batch", "all"])
def test_the_contrast_is_the_mean_over_the_events(negatives: str) -> None:
    """An item's vector carries no position, so an item seen three times is computed once and counts three times."""
    train = training_of([[1, 4, 1, 1, 2], [2, 4]], items=6)  # inputs 1 4 1 1 and 2
    model = model_of(train=train, negatives=negatives, contrast_weight=0.5)
    encoded = model.encode()
    others = [1, 2, 4] if negatives == "batch" else list(range(6))
    refined = encoded.refined[others]
    each = [
        contrast(
            refined, encoded.items[[item]], tensor([others.index(item)]), model.config.temperature, torch.ones(1)
        ).item()
        for item in (1, 4, 1, 1, 2)
    ]
    actual = model.losses(encoded, one_batch(train))["contrast"].item()
    assert actual == pytest.approx(0.5 * sum(each) / 5, rel=1e-5)


@pytest.mark.parametrize("negatives", ["batch", "all"])
def test_the_contrast_as_the_printed_sum_is_the_mean_times_the_events(negatives: str) -> None:
    train = training_of([[1, 4, 1, 1, 2], [2, 4]], items=6)  # inputs 1 4 1 1 and 2: five events
    mean, summed = (model_of(train=train, negatives=negatives, contrast_scale=scale) for scale in ("mean", "sum"))
    first, second = (model.losses(model.encode(), one_batch(train)) for model in (mean, summed))
    assert_close(second["contrast"], 5 * first["contrast"])
    assert_close(second["next_item"], first["next_item"])


def test_an_account_does_not_hold_its_last_training_target_in_a_graph_of_inputs() -> None:
    train = training_of([[1, 4, 2], [2, 4]], items=6)
    held = model_of(train=train, graph_events="inputs").graph(torch.arange(2), torch.zeros(2, 16))
    assert [sorted(row[known].tolist()) for row, known in zip(held.items, held.known, strict=True)] == [[1, 4], [2]]


def test_the_losses_are_two_means_that_the_loop_adds() -> None:
    model, double = model_of(contrast_weight=0.4), model_of(contrast_weight=0.8)
    first, second = (m.losses(m.encode(), one_batch()) for m in (model, double))
    assert list(first) == ["next_item", "contrast"]
    assert_close(second["contrast"], 2 * first["contrast"])
    assert_close(second["next_item"], first["next_item"])
    assert abs(first["next_item"].item() - math.log(SPLIT.train.items)) < 1  # an untrained model guesses


def test_bases_start_after_the_first_epoch_from_items_without_dropout() -> None:
    model = model_of(dropout=0.5).train()
    assert isinstance(model.alignment, SubspaceAlignment)
    before = model.alignment.bases.detach().clone()
    model.start_epoch(0)
    assert_close(model.alignment.bases.detach(), before, rtol=0, atol=0)
    model.start_epoch(1)
    started = model.alignment.bases.detach().clone()
    assert_close(started.norm(dim=1), torch.ones(3))
    model.start_epoch(1)
    assert_close(model.alignment.bases.detach(), started)  # drawn alike every time: nothing was dropped
    model.start_epoch(2)
    assert_close(model.alignment.bases.detach(), started, rtol=0, atol=0)


# What must change nothing


@pytest.mark.parametrize("name", VARIANTS)
def test_padding_changes_nothing(name: str) -> None:
    model, batch = model_of(name), asked_batch()
    wider = torch.cat([batch.history, torch.full((len(batch.length), 6), 3)], dim=1)
    assert_close(scores(model, replace(batch, history=wider)), scores(model, batch), rtol=0, atol=0)


@pytest.mark.parametrize("name", VARIANTS)
def test_padding_changes_no_loss(name: str) -> None:
    """The items behind the end of a short log are neither pooled nor contrasted."""
    train = training_of([[0, 1, 2, 3, 4, 5], [2, 3], [5, 4, 4]], items=8)
    model = model_of(name, train)
    batch = one_batch(train)
    other = replace(batch, log=torch.where(batch.seen, batch.log, 7), next_item=batch.next_item.clone())
    first, second = (model.losses(model.encode(), some) for some in (batch, other))
    for term in first:
        assert_close(first[term], second[term], rtol=0, atol=0)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_batch_gives_what_single_queries_give(name: str) -> None:
    model = model_of(name)
    together = scores(model, asked_batch())
    order = np.random.default_rng(0).permutation(len(SPLIT.test))
    assert_close(scores(model, make_batch(SPLIT.test.select(order))), together[order], rtol=1e-5, atol=1e-5)
    for row in (0, 7):
        alone = scores(model, make_batch(SPLIT.test.select(np.array([row]))))
        assert_close(alone[0], together[row], rtol=1e-5, atol=1e-5)


LOGS = [("a", "p q r p q"), ("b", "q r p q r s p"), ("c", "r r q p p"), ("d", "p r p r q s")]


def scores_by_name(model: LightGC2N, data: Dataset) -> dict[tuple[str, str], float]:
    """(account, item) -> score."""
    split = split_dataset(data, SplitConfig())
    actual = scores(model, make_batch(split.test)).tolist()
    owners = [data.accounts[owner] for owner in split.test.owner]
    return {(a, i): x for a, row in zip(owners, actual, strict=True) for i, x in zip(data.items, row, strict=True)}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    ("logs", "items"), [(LOGS[::-1], "p q r s"), (LOGS, "s p r q")], ids=["accounts renamed", "items renamed"]
)
def test_renaming_only_permutes_scores(name: str, logs: list[tuple[str, str]], items: str) -> None:
    plain, renamed = dataset_of(LOGS, items="p q r s"), dataset_of(logs, items=items)
    first, second = (model_of(name, split_dataset(data, SplitConfig()).train) for data in (plain, renamed))
    item_order = [plain.items.index(item) for item in renamed.items]
    account_order = [plain.accounts.index(account) for account in renamed.accounts]
    moved = {"item_embeddings": item_order, "head.weight": item_order, "head.bias": item_order}
    moved |= {"account_embeddings": account_order}
    state = {key: value for key, value in first.state_dict().items() if not key.startswith("graph.")}
    state = {key: value[moved[key]] if key in moved else value for key, value in state.items()}
    second.load_state_dict({**second.state_dict(), **state})
    before, after = scores_by_name(first, plain), scores_by_name(second, renamed)
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert after[key] == pytest.approx(value, abs=1e-5)


def test_no_dropout_in_inference() -> None:
    with_dropout, without = model_of(dropout=0.5), model_of(dropout=0.0)
    assert_close(scores(with_dropout, asked_batch()), scores(without, asked_batch()), rtol=0, atol=0)
    with_dropout.train()
    assert not torch.equal(with_dropout.encode().items, with_dropout.encode().items)
    encoded = without.encode()
    first, second = (with_dropout.losses(encoded, one_batch())["next_item"] for _ in range(2))
    assert first != second


def test_a_domain_gets_its_own_columns() -> None:
    model = model_of()
    part = model.scores(model.encode(), asked_batch(), Domain("part", 2, 5))
    assert_close(part, scores(model, asked_batch())[:, 2:5])


# Accounts that training does not have, or has otherwise


@pytest.mark.parametrize("negatives", ["all", "batch"])
def test_padding_of_a_training_batch_changes_no_loss(negatives: str) -> None:
    model = model_of(negatives=negatives)
    sizes = Sizes(rows=20, places=11, targets=100, items=30)
    (wide,) = training_batches(SPLIT.train, 10_000, sizes=sizes)
    encoded = model.encode()
    for name, term in model.losses(encoded, one_batch()).items():
        assert_close(model.losses(encoded, wide)[name], term)


def history_of(account: int, named: int) -> Batch:
    """The training events of an account as a history, asked under another name."""
    log = SPLIT.train.events[SPLIT.train.offsets[account] : SPLIT.train.offsets[account + 1]].tolist()
    return Batch(tensor([named]), tensor([[*log[::-1], 0]]), tensor([len(log)]))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_history_equal_to_the_training_items_gives_the_accounts_own_vector(name: str) -> None:
    model = model_of(name)
    encoded = model.encode()
    accounts = account_vectors(model, encoded)
    for account in range(SPLIT.train.accounts):
        folded = model.convolution.accounts(model.from_history(history_of(account, account)), encoded.layers)
        assert_close(folded[0], accounts[account], rtol=1e-5, atol=1e-5)


def test_folding_in_an_unchanged_history_changes_no_score() -> None:
    model, domain = model_of(), Domain("all", 0, SPLIT.train.items)
    for account in range(SPLIT.train.accounts):
        batch = history_of(account, account)
        folded = model.fold_in_scores(model.encode(), batch, domain)
        assert_close(folded, scores(model, batch), rtol=1e-5, atol=1e-5)


def test_folding_in_hears_what_the_graph_does_not_have() -> None:
    model, batch, domain = model_of(), history_of(0, 0), Domain("all", 0, SPLIT.train.items)
    other = next(item for item in range(SPLIT.train.items) if item not in batch.history[0, :-1])
    longer = Batch(batch.account, torch.cat([batch.history[:, :-1], tensor([[other]])], dim=1), batch.length + 1)
    encoded = model.encode()
    assert_close(model.fold_in_scores(encoded, longer, domain), scores(model, longer))  # the graph has nothing to add
    near = model.graph(batch.account, model.account_embeddings)
    heard = [model.convolution.accounts(these, encoded.layers) for these in (near, model.from_history(longer))]
    assert (heard[0] - heard[1]).abs().max() > 1e-6


def test_a_known_account_keeps_what_a_short_history_leaves_out() -> None:
    model, whole = model_of(), history_of(0, 0)
    short = Batch(whole.account, whole.history[:, :1], tensor([1]))
    held = set(SPLIT.train.events[: SPLIT.train.offsets[1]].tolist())
    near = model.from_graph_and_history(short)
    assert set(near.items[near.known].tolist()) == held
    assert model.from_history(short).known.sum() == 1


def test_an_unseen_account_starts_from_the_mean_of_those_in_training() -> None:
    train = training_of([[0, 1], [], [2, 3, 1]], items=4)  # the second account has no event: its embedding is noise
    model = model_of(train=train)
    batch = Batch(tensor([UNSEEN, 2]), tensor([[0, 1], [3, 3]]), tensor([2, 2]))
    near = model.from_history(batch)
    mean = (model.account_embeddings[0] + model.account_embeddings[2]) / 2
    assert_close(near.start, torch.stack([mean, model.account_embeddings[2]]))
    assert near.items[near.known].tolist() == [0, 1, 3]


def test_an_unseen_account_is_scored_by_its_history() -> None:
    model = model_of()
    encoded, batch = model.encode(), history_of(0, named=UNSEEN)
    account = model.convolution.accounts(model.from_history(batch), encoded.layers)[0]
    sequence = encoded.rows[batch.history[0, : batch.length[0]]].mean(dim=0)
    assert_close(scores(model, batch)[0], model.head(torch.cat([sequence, account])).detach(), rtol=1e-5, atol=1e-5)


def test_known_and_unseen_accounts_share_a_batch() -> None:
    model, known = model_of(), asked_batch()
    mixed = replace(known, account=torch.where(torch.arange(len(known.account)) % 2 == 0, UNSEEN, known.account))
    unseen = replace(known, account=torch.full_like(known.account, UNSEEN))
    actual = scores(model, mixed)
    assert_close(actual[1::2], scores(model, known)[1::2])
    assert_close(actual[::2], scores(model, unseen)[::2])


@pytest.mark.parametrize("account", [0, UNSEEN])
def test_without_a_history_padding_is_no_item(account: int) -> None:
    model = model_of()
    first, second = (Batch(tensor([account]), tensor([[item, item]]), tensor([0])) for item in (0, 5))
    assert_close(scores(model, first), scores(model, second), rtol=0, atol=0)


# Latent users


@pytest.mark.parametrize("users", [1, 2, 3, 4, 5])
def test_ownership_and_routing_weights_sum_to_one(users: int) -> None:
    model = model_of(latent_users=users, embedding_width=6, capsule_width=10)
    encoded, convolution = model.encode(), capsules_of(model)
    assert isinstance(convolution.routing, DynamicRouting)
    near: Neighbourhood = model.from_history(asked_batch())
    owned = convolution.ownership(near, encoded.layers)
    assert owned.shape[1] == users
    assert_close(owned.sum(dim=1), near.known.float())
    weights = routing_weights(convolution.routing.terms(convolution.users(near, encoded.layers)))
    assert weights.shape == (len(near.start), users)
    assert_close(weights.sum(dim=1), torch.ones(len(near.start)))
    assert torch.isfinite(scores(model, asked_batch())).all()


@pytest.mark.parametrize(("width", "capsule"), [(3, 7), (7, 3), (1, 1)])
@pytest.mark.parametrize("name", VARIANTS)
def test_embeddings_and_capsules_may_differ_in_width(name: str, width: int, capsule: int) -> None:
    model = model_of(name, embedding_width=width, capsule_width=capsule)
    assert torch.isfinite(total_loss(model, one_batch()))
    assert scores(model, asked_batch()).shape == (len(SPLIT.test), SPLIT.train.items)


def test_small_batches_together_see_every_sequence() -> None:
    accounts = [batch.account for batch in training_batches(SPLIT.train, 5)]
    assert torch.cat(accounts).tolist() == SPLIT.train.sequence_accounts.tolist()
