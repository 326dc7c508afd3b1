"""LightGC²N-plus as a whole: what reaches a score, what must not, and what validation decides."""

import ast
import inspect
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.data.batches import MICROSECONDS_A_DAY, Batch, query_batches, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, Split, SplitConfig, split_dataset
from lightgc2n.errors import SettingError
from lightgc2n.models.plus import plus as module
from lightgc2n.models.plus.ablations import PLUS_VARIANTS
from lightgc2n.models.plus.blend import NoBlend
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.repeats import NEUTRAL, RepeatMemory
from lightgc2n.models.plus.transitions import count_transitions
from tests.models.small import SPLIT, asked_batch, one_batch
from tests.worlds import dataset_of

ALL = Domain("all", 0, SPLIT.train.items)


def plus(name: str = "lightgc2n-plus", split: Split = SPLIT, **settings: Any) -> LightGC2NPlus:
    torch.manual_seed(0)
    model = zoo.build(name, split.train, settings)
    assert isinstance(model, LightGC2NPlus)
    return model.eval()


def scores(model: LightGC2NPlus, batch: Batch) -> Tensor:
    return model.scores(model.encode(), batch, Domain("all", 0, len(model.bias)))


@pytest.mark.parametrize("name", PLUS_VARIANTS)
def test_the_loss_equals_that_of_single_queries(name: str) -> None:
    model = plus(name)
    model.followers = zoo.build(
        "lightgc2n-plus-wo-steps", SPLIT.train, {}
    ).followers  # they leave out the step asked for
    batch = one_batch()
    actual = model.losses(model.encode(), batch)["next_item"]
    logits = []
    for row, place in zip(
        (batch.at // batch.log.shape[1]).tolist(), (batch.at % batch.log.shape[1]).tolist(), strict=True
    ):
        history = batch.log[row, : place + 1][None]
        logits.append(scores(model, Batch(torch.tensor([0]), history, torch.tensor([place + 1]))))
    assert_close(actual, cross_entropy(torch.cat(logits), batch.target), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("reach", "longest"), [(1, 100), (3, 100), (3, 4)])
def test_a_query_does_not_depend_on_later_events(reach: int, longest: int) -> None:
    model, train = plus(reach=reach, max_length=longest, followers=SPLIT.train.items), SPLIT.train
    batch = next(training_batches(train, len(train.offsets)))
    losses = []
    for row, length in enumerate(batch.seen.sum(dim=1).tolist()):
        start = int(train.offsets[row])
        for place in range(length):
            cut = replace(
                train,
                offsets=np.insert(train.offsets, row + 1, start + place + 1),
                sequence_accounts=np.insert(train.sequence_accounts, row, train.sequence_accounts[row]),
            )
            blind = count_transitions(cut, train.items, reach)
            for name, table in blind.items():
                setattr(model.followers, name, table)
            oldest = max(0, length - longest * -(-(length - place) // longest))  # windows are cut from the newest event
            history = batch.log[row, oldest : place + 1][None]
            logits = scores(model, Batch(torch.tensor([0]), history, torch.tensor([history.shape[1]])))
            losses.append(cross_entropy(logits, batch.next_item[row, place][None]))
    model = plus(reach=reach, max_length=longest, followers=SPLIT.train.items)
    assert_close(model.losses(model.encode(), batch)["next_item"], torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


def test_an_account_is_its_log() -> None:
    model, batch = plus(), asked_batch()
    nameless = replace(batch, account=torch.full_like(batch.account, UNSEEN))
    assert_close(scores(model, nameless), scores(model, batch), rtol=0, atol=0)


def test_without_history_the_favourites_of_all_come_first() -> None:
    model = plus()
    empty = Batch(torch.tensor([0, 1]), torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 0]))
    assert_close(scores(model, empty), model.bias.detach().expand(2, -1))


def test_parameters_by_formula() -> None:
    model = plus(width=8, latent_users=3, views=2, newest=4, hidden=6, max_length=20)
    items, width = SPLIT.train.items, 8
    person = 2 * 3 * width + 2
    state = 2 * 20 + (width + 1) * width + 2 * width**2 + (2 * width + 1) * width
    state += (width + 1) * 2 * width + (2 * width + 1) * width + 2 * width
    steps, memory = 3 * 4 + 1, (11 + 1) * 6 + 6 + 1
    assert sum(parameter.numel() for parameter in model.parameters()) == (
        items * (width + 2) + person + state + steps + memory
    )


def test_stored_numbers_are_pairs_totals_and_weights() -> None:
    model, train = plus(), SPLIT.train
    pairs: set[tuple[int, int]] = set()
    near: dict[int, set[int]] = {}
    for start, stop in zip(train.offsets[:-1], train.offsets[1:], strict=True):
        log = train.events[start:stop].tolist()
        pairs |= set(itertools.pairwise(log))
        for place, item in enumerate(log):
            near.setdefault(item, set()).update(log[max(0, place - 10) : place], log[place + 1 : place + 11])
    neighbours = sum(min(12, len(others)) for others in near.values())
    followers = 2 * len(pairs) + len({before for before, _ in pairs})
    weights, mixture, balance = 2 + 2 * 6, 1 + 6, 3
    flags = train.items  # whether an item was learned
    assert model.stored_numbers == followers + 2 * neighbours + len(near) + weights + mixture + balance + flags


def test_validation_decides_how_readily_old_items_come_again() -> None:
    # Nothing repeats on the way; the last two events do.
    logs = [
        (f"a{n}", " ".join([*(f"i{(7 * n + k) % 40}" for k in range(8)), f"i{7 * n % 40}", f"i{(7 * n + 1) % 40}"]))
        for n in range(40)
    ]
    split = split_dataset(dataset_of(logs), SplitConfig())
    model = plus(split=split)
    assert isinstance(model.memory, RepeatMemory)
    model.calibrate(lambda: query_batches(split.validation, 16))
    assert model.fitted()["added"] > 0.5
    before = scores(model, next(query_batches(split.test, 50)).batch)
    model.memory.balance.copy_(torch.tensor([0.0, 1.0, 0.0]))
    asked = next(query_batches(split.test, 50))
    lifted = before - scores(model, asked.batch)
    assert (lifted.gather(1, asked.target[:, None]) > 0.5).all()
    model.calibrate(lambda: iter(()))  # nothing to decide by
    assert list(model.fitted().values()) == [0.0, 1.0, 0.0]


def test_the_balance_is_judged_among_the_items_of_a_domain() -> None:
    # Only what was had first comes again: among all items a bonus brings it forward, alone it is first anyway.
    logs = [(f"a{n}", " ".join(f"i{(7 * n + k) % 40}" for k in (*range(8), 0, 1))) for n in range(40)]
    split = split_dataset(dataset_of(logs), SplitConfig())
    model, asked = plus(split=split), next(query_batches(split.validation, 1))
    model.calibrate(lambda: iter([asked]))
    assert list(model.fitted().values()) != [0.0, 1.0, 0.0]
    alone = Domain("alone", int(asked.target), int(asked.target) + 1)
    model.calibrate(lambda: iter([replace(asked, among=alone)]))
    assert list(model.fitted().values()) == [0.0, 1.0, 0.0]


def test_where_no_balance_is_better_there_is_none() -> None:
    # One item is all there is: it comes first with any bonus.
    split = split_dataset(dataset_of([(f"a{n}", "i0 i0 i0 i0 i0") for n in range(4)]), SplitConfig())
    model = plus(split=split)
    model.calibrate(lambda: query_batches(split.validation, 16))
    assert list(model.fitted().values()) == [0.0, 1.0, 0.0]


def test_ownership_sums_to_one_over_the_latent_users() -> None:
    model, batch = plus(), asked_batch()
    actual = model.latent_users(model.encode(), batch)
    assert_close(actual.ownership.sum(dim=1), batch.known.float())
    assert_close(actual.weight.sum(dim=1), torch.ones(len(batch.length)))
    alone = plus("lightgc2n-plus-wo-people")
    with pytest.raises(SettingError, match="no latent users"):
        alone.latent_users(alone.encode(), batch)


NEW = 6  # items are numbered as they come


def timed_split() -> Split:
    """A new item is the talk of the last days, and training has none of it."""
    logs = [(f"a{n}", " ".join([*(f"i{(n + k) % 12}" for k in range(6)), "new", "new"])) for n in range(30)]
    data = dataset_of(logs)
    day = np.concatenate([[*range(6), 6, 7 + n % 2] for n in range(30)])
    data = replace(data, times=(day * MICROSECONDS_A_DAY).astype(np.int64))
    return split_dataset(data, SplitConfig(protocol="time"))


def test_events_known_at_query_time_are_counted_without_learning() -> None:
    split = timed_split()
    model = plus(split=split).eval()
    new, batch = NEW, next(query_batches(split.test, 100)).batch
    assert split.known is not None
    assert split.train.popularity[new] == 0 < split.known.popularity[new]
    before, weights = scores(model, batch), model.bias.clone()
    assert model.refresh(split.known)
    lifted = scores(model, batch) - before
    assert (lifted[:, new] > 1.0).all()
    assert_close(model.bias, weights)
    others = [item for item in range(split.train.items) if item != new]
    assert_close(model.items[new], model.items[others].mean(dim=0))


def test_validation_decides_which_trends_speak() -> None:
    split = timed_split()
    model = plus(split=split).eval()
    model.calibrate(lambda: query_batches(split.validation, 16))
    assert sum(name.startswith("trends of") for name in model.fitted()) == 4
    chosen = model.fitted()
    model.calibrate(lambda: query_batches(split.validation, 16))
    assert model.fitted() == chosen  # what was chosen before has no say


def test_the_trends_with_the_best_ranks_are_chosen() -> None:
    split = timed_split()
    model = plus(split=split).eval()
    assert split.known is not None
    assert model.refresh(split.known)  # so that what is asked for came lately
    model.calibrate(lambda: query_batches(split.test, 16))
    trends, chosen = model.trends, model.trends.chosen.clone()
    model.memory.balance.copy_(torch.tensor(NEUTRAL))
    gains = []
    for choice in trends.choices:
        trends.chosen.copy_(choice)
        gain = 0.0
        for asked in query_batches(split.test, 16):
            for row, target in zip(scores(model, asked.batch), asked.target.tolist(), strict=True):
                rank = 1 + int((row > row[target]).sum())
                gain += 1 / rank if rank <= 20 else 0.0
        gains.append(gain)
    assert min(gains) < max(gains)
    assert gains[trends.choices.tolist().index(chosen.tolist())] == pytest.approx(max(gains))


def test_without_trends_there_is_nothing_to_choose() -> None:
    split = timed_split()
    without = plus("lightgc2n-plus-wo-trends", split=split)
    without.calibrate(lambda: query_batches(split.validation, 16))
    assert set(without.fitted()) == {"added", "times", "place"}
    assert split.known is not None
    assert without.refresh(split.known), "the blend counts followers and neighbours of newer events"
    without.blend = NoBlend()
    assert not without.refresh(split.known)


def test_the_reach_is_at_most_newest() -> None:
    with pytest.raises(SettingError, match=r"reach 6: at most newest \(5\)"):
        plus(reach=6)


def test_the_model_never_asks_which_part_it_has() -> None:
    source = ast.parse(inspect.getsource(module))
    assert not {node.id for node in ast.walk(source) if isinstance(node, ast.Name)} & {"isinstance", "type", "hasattr"}
    assert LightGC2NPlus.__subclasses__() == []
