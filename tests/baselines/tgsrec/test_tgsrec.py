"""TGSRec: nodes at a moment in slow recursion, what may be heard and what not, and the size of the model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.tgsrec.tgsrec import TGSRec, TGSRecConfig
from lightgc2n.baselines.tgsrec.timed_edges import FARTHEST
from lightgc2n.data.batches import Batch, draw_places, make_batch, training_batches
from lightgc2n.data.dataset import Dataset, Domain
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.errors import SettingError
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_in_memory
from tests.baselines.tgsrec.test_temporal_attention import by_loops
from tests.restoring import saved_and_restored
from tests.worlds import dataset_of, two_domains_world


def parameter_count(config: TGSRecConfig, accounts: int, items: int) -> int:
    """(N + M + 1)·D + 2T + L·(4W² + 3W + (W + D)·D + D² + 2D) with W = D + T, and 2D² + 2D to score by layers."""
    width, both = config.width, config.width + config.time_width
    layer = 4 * both**2 + 3 * both + (both + width) * width + width**2 + 2 * width
    times = 2 * config.time_width if config.layers else 0
    score = 2 * width**2 + 2 * width if config.score == "mlp" else 0
    return (accounts + items + 1) * width + times + config.layers * layer + score


DAY = 86_400
LOGS = [("p", "a b c a d e b"), ("q", "b c a e c a"), ("r", "d a c b e c d"), ("s", "e b a a c b")]
TIMES = [[0, 3, 9, 20, 31, 40, 55], [2, 5, 17, 18, 44, 61], [1, 8, 15, 16, 33, 34, 70], [4, 6, 28, 35, 36, 50]]
SMALL = {"width": 4, "time_width": 2, "heads": 2, "neighbours": 2}
Event = tuple[int, int, float]  # account, item, day or place


def world(days: bool = True, later: int = 0, logs: list[tuple[str, str]] = LOGS) -> Dataset:
    times = [[(time + later) * DAY for time in row] for row in TIMES]
    return dataset_of(logs, items="a b c d e", times=times if days else None)


def model(data: Dataset, **settings: object) -> tuple[TGSRec, Split]:
    split = split_dataset(data, SplitConfig())
    torch.manual_seed(0)
    made = zoo.build("tgsrec", split.train, {**SMALL, **settings})
    assert isinstance(made, TGSRec)
    with torch.no_grad():
        for parameter in made.layers.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.eval(), split


def events_of(split: Split, days: bool) -> list[list[Event]]:
    """The training events of each account; without days they count by their places."""
    train, logs = split.train, []
    for account, (start, stop) in enumerate(zip(train.offsets[:-1], train.offsets[1:], strict=True)):
        row = []
        for place in range(start, stop):
            when = float(train.times[place] - train.times.min()) / DAY / 1e6 if days else float(place - start)
            row.append((account, int(train.events[place]), when))
        logs.append(row)
    return logs


class Slow:
    """The recursion, one node at a time."""

    def __init__(self, made: TGSRec, split: Split, hidden: tuple[int, ...] = ()) -> None:
        self.made, self.hidden, self.days = made, hidden, split.train.times is not None and made.config.time != "rank"
        self.logs = events_of(split, self.days)
        self.flat = [event for log in self.logs for event in log]

    def neighbours(self, item: int, now: float) -> list[tuple[Event, float]]:
        if not self.days:
            drawn = [self.flat[edge] for edge in self.made.edges.drawn[item].tolist() if edge >= 0]
            actual = [(event, FARTHEST) for event in drawn]
        else:
            before = sorted((event for event in self.flat if event[1] == item and event[2] < now), key=lambda e: -e[2])
            actual = [(event, now - event[2]) for event in before[: self.made.config.neighbours]]
        return [(event, span) for event, span in actual if event[0] not in self.hidden]

    def attend(self, layer: int, node: Tensor, near: list[tuple[Tensor, float]]) -> Tensor:
        encode = self.made.time
        times = [encode(tensor(span)) for _, span in near]
        return by_loops(self.made.layers[layer - 1], node, encode(tensor(0.0)), [vector for vector, _ in near], times)

    def item(self, layer: int, item: int, now: float) -> Tensor:
        if layer == 0:
            return self.made.items[item]
        near = [(self.met(layer - 1, event), span) for event, span in self.neighbours(item, now)]
        return self.attend(layer, self.item(layer - 1, item, now), near)

    def met(self, layer: int, event: Event) -> Tensor:
        """The account of an event, as it was then."""
        if layer == 0:
            return self.made.accounts[event[0]]
        log = self.logs[event[0]]
        before = log[: log.index(event)][::-1][: self.made.config.neighbours]
        near = [(self.item(layer - 1, one[1], one[2]), event[2] - one[2]) for one in before]
        return self.attend(layer, self.met(layer - 1, event), near)

    def account(self, layer: int, account: int, history: list[tuple[int, float]], now: float) -> Tensor:
        if layer == 0:
            return self.made.accounts[account] if account >= 0 else self.made.stranger
        near = [
            (self.item(layer - 1, item, then), now - then)
            for item, then in history[::-1][: self.made.config.neighbours]
        ]
        return self.attend(layer, self.account(layer - 1, account, history, now), near)


def catalogue(split: Split) -> Domain:
    return Domain("all", 0, split.train.items)


def scores(made: TGSRec, batch: Batch, split: Split) -> Tensor:
    return made.scores(made.encode(), batch, catalogue(split))


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
@pytest.mark.parametrize("days", [True, False])
@pytest.mark.parametrize("score", ["dot", "mlp"])
def test_scores_are_those_of_the_slow_recursion(layers: int, days: bool, score: str) -> None:
    made, split = model(world(days), layers=layers, score=score, period=7.0)
    slow, queries = Slow(made, split), split.test
    actual = scores(made, make_batch(queries), split)
    for row in range(len(queries)):
        shown = range(queries.start[row], queries.stop[row])
        items = [int(queries.events[place]) for place in shown]
        whens = (
            [float(queries.times[place]) / DAY / 1e6 for place in shown]
            if days
            else [float(n) for n in range(len(items))]
        )
        now = float(queries.times[queries.target_event[row]]) / DAY / 1e6 if days else float(len(items))
        account = slow.account(layers, int(queries.account[row]), list(zip(items, whens, strict=True)), now)
        vectors = [slow.item(layers, item, now // 7 * 7) for item in range(split.train.items)]
        if score == "dot":
            expected = torch.stack([account @ vector for vector in vectors])
        else:
            part = made.score
            hidden = [part.account.weight @ account + part.item.weight @ one + part.item.bias for one in vectors]
            expected = torch.stack([one.clamp(min=0) @ part.out[0] for one in hidden])
        assert_close(actual[row], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("days", [True, False])
@pytest.mark.parametrize("loss", ["softmax", "bpr"])
def test_the_loss_is_that_of_the_slow_recursion(days: bool, loss: str) -> None:
    """Without days the accounts of the batch are heard by no item; with days all are that stand before."""
    made, split = model(world(days), cuts=2, loss=loss, negatives=3, period=1.0)
    batch = next(training_batches(split.train, 2))
    slow = Slow(made, split, hidden=() if days else tuple(batch.account.tolist()))
    torch.manual_seed(5)
    actual = made.losses(made.encode(), batch)
    torch.manual_seed(5)
    rows, places = draw_places(batch.counts, 2)
    torch.rand(len(rows))  # whom to hide, in training
    targets = batch.next_item[rows, places]
    wrong, _ = made.draw(targets)
    terms = []
    for row, place, drawn in zip(rows.tolist(), places.tolist(), wrong.expand(len(rows), -1).tolist(), strict=True):
        account, log = int(batch.account[row]), slow.logs[int(batch.account[row])]
        history = [(item, when) for _, item, when in log[: place + 1]]
        _, target, now = log[place + 1]
        asking = slow.account(2, account, history, now)
        right, *others = [asking @ slow.item(2, item, now // 1) for item in [target, *drawn]]
        if loss == "softmax":  # what is drawn stands for as many items as it is too seldom drawn
            share = np.bincount(split.train.events, minlength=5) / len(split.train.events)
            others = [one - np.log(3 * (0.2 + share[item]) / 2) for one, item in zip(others, drawn, strict=True)]
        kept = [right] + [one for one, item in zip(others, drawn, strict=True) if item != target]
        terms.append(cross_entropy(torch.stack(kept), tensor(0)))
    assert_close(actual["next_item"], torch.stack(terms).mean(), rtol=1e-3, atol=1e-4)
    sizes = [made.accounts[batch.account[rows]], made.items[targets], made.items[wrong.flatten()]]
    assert_close(actual["penalty"], 1e-4 * torch.cat(sizes).square().sum(dim=1).mean())


def test_each_question_of_bpr_has_a_wrong_item_of_its_own() -> None:
    made, _ = model(world(), loss="bpr")
    targets = torch.arange(5).repeat(200)
    wrong, _ = made.draw(targets)
    assert wrong.shape == (1000, 1)
    pairs = torch.bincount(5 * targets + wrong[:, 0], minlength=25).view(5, 5)
    assert (pairs.diagonal() == 0).all()
    assert ((pairs > 20) | torch.eye(5, dtype=torch.bool)).all()  # evenly: 50 of each


def test_shared_negatives_estimate_the_loss_over_the_catalogue() -> None:
    """The mean over draws of the sum of exp(score) / expected is that of all items."""
    made, _ = model(world(), negatives=50_000)
    values = torch.arange(1.0, 6.0)
    wrong, expected = made.draw(tensor([0]))
    assert_close((values[wrong] / expected.exp()).sum(), tensor(15.0), rtol=0.03, atol=0)
    assert set(wrong.flatten().tolist()) == set(range(5))


def test_the_authors_penalty_is_the_length_of_the_table() -> None:
    made, split = model(world(), table_penalty=True, penalty=0.1)
    table = torch.cat([made.accounts, made.stranger[None], made.items])
    actual = made.losses(made.encode(), next(training_batches(split.train, 2)))["penalty"]
    assert_close(actual, 0.1 * table.square().sum().sqrt())


def test_another_beginning_of_time_changes_nothing() -> None:
    (made, split), (shifted, later) = model(world()), model(world(later=1000))
    actual = scores(shifted, make_batch(later.test), later)
    assert_close(actual, scores(made, make_batch(split.test), split), rtol=1e-4, atol=1e-5)


def test_what_comes_after_a_question_is_not_heard() -> None:
    """On day 33 account r takes d in place of e: queries on the days 26 and 28 cannot know, one on day 36 can."""
    other = [(name, text if name != "r" else "d a c b d c d") for name, text in LOGS]
    made, split = model(world(), period=1.0)
    changed, _ = model(world(logs=other), period=1.0)
    first = make_batch(split.validation)  # asked on the days 40, 44, 34 and 36
    early = replace(first, ages=first.ages - 8)  # and eight days before
    actual, again = (scores(one, early, split) for one in (made, changed))
    assert_close(actual[[2, 3]], again[[2, 3]], rtol=0, atol=0)
    assert not torch.allclose(actual[1], again[1])


def test_the_newest_event_counts() -> None:
    made, split = model(world())
    batch = make_batch(split.test)
    history = batch.history.clone()
    history[torch.arange(4), batch.length - 1] = (batch.last + 1) % 5
    actual = scores(made, replace(batch, history=history), split)
    assert not torch.isclose(actual, scores(made, batch, split)).all(dim=1).any()


def test_without_layers_it_is_matrix_factorisation() -> None:
    made, split = model(world(), layers=0)
    actual = scores(made, make_batch(split.test), split)
    assert_close(actual, made.accounts[torch.from_numpy(split.test.account).long()] @ made.items.T)


@pytest.mark.parametrize("days", [True, False])
def test_padding_strangers_and_the_batch(days: bool, tmp_path: Path) -> None:
    made, split = model(world(days))
    batch = make_batch(split.test)
    actual = scores(made, batch, split)
    wide = replace(
        batch,
        history=torch.cat([batch.history, torch.full((4, 3), 2)], dim=1),
        ages=None if batch.ages is None else torch.cat([batch.ages, torch.full((4, 3), 9.0)], dim=1),
    )
    assert_close(scores(made, wide, split), actual, rtol=1e-4, atol=1e-5)
    for row in range(4):
        alone = scores(made, make_batch(split.test.select(np.array([row]))), split)
        assert_close(alone, actual[row : row + 1], rtol=1e-4, atol=1e-5)
    again = saved_and_restored("tgsrec", made, tmp_path)
    assert_close(scores(again, batch, split), actual, rtol=0, atol=0)
    nameless = replace(batch, account=torch.full_like(batch.account, -1))
    assert_close(made.fold_in_scores(made.encode(), batch, catalogue(split)), scores(made, nameless, split))
    empty = Batch(tensor([0, -1]), torch.zeros(2, 0, dtype=torch.long), tensor([0, 0]))
    for timeless in (replace(batch, ages=None), empty):
        assert torch.isfinite(scores(made, timeless, split)).all()


def test_a_query_without_times_is_at_the_end_of_training() -> None:
    made, split = model(world())
    timeless = replace(make_batch(split.test), ages=None)
    actual = scores(made, timeless, split)
    made.edges.begin.fill_(torch.nan)  # nobody knows when any account began
    assert_close(actual, scores(made, timeless, split), rtol=0, atol=0)


def test_rounded_ages_let_no_event_hear_itself() -> None:
    """Ages are rounded to seconds, and a history is read by them: an event's own edge does not stand before it."""
    odd = [[day * DAY + 7919 * (day + 1) % DAY for day in row] for row in TIMES]
    made, split = model(dataset_of(LOGS, items="a b c d e", times=odd), neighbours=5)
    batch = make_batch(split.test)
    rows, last = torch.arange(4), batch.length - 1
    queries = made.queries(batch.account, batch.history, rows, last, *_ages(made, batch))
    near = queries.near
    heard = made.edges.edges_of(near.which, near.day)
    for row in range(4):
        for place in range(int(near.known[row].sum())):
            event = split.test.stop[row] - 1 - place
            then = float(split.test.times[event] - split.train.times.min()) / DAY / 1e6
            assert (heard.day[row, place][heard.known[row, place]] < then - 1e-4).all()


def _ages(made: TGSRec, batch: Batch) -> tuple[Tensor, Tensor]:
    ages = batch.ages.double()
    return made._newest(ages, torch.arange(len(ages)), batch.length - 1), ages[:, 0]


def test_days_only_where_there_are_times() -> None:
    made, split = model(world(), time="rank")
    batch = make_batch(split.test)
    assert_close(scores(made, batch, split), scores(made, replace(batch, ages=None), split))
    with pytest.raises(SettingError, match="needs event times"):
        model(world(days=False), time="real")
    with pytest.raises(SettingError, match="heads"):
        model(world(), heads=4)


@pytest.mark.parametrize(
    "settings",
    [{"width": 6, "time_width": 4}, {"width": 5, "time_width": 3, "layers": 1, "score": "mlp"}, {"layers": 0}],
)
def test_parameter_count(settings: dict[str, object]) -> None:
    made, split = model(world(), **settings)
    actual = sum(parameter.numel() for parameter in made.parameters())
    assert actual == parameter_count(made.config, split.train.accounts, split.train.items)


def test_the_published_size() -> None:
    """Nodes of 16 (accounts, items and one for strangers), two layers over 32, and the score without its last bias."""
    config = TGSRecConfig(width=16, time_width=16, layers=2, score="mlp")
    layer = 4 * 1024 + 3 * 32 + (48 * 16 + 16) + (16 * 16 + 16)
    assert parameter_count(config, accounts=100, items=50) == 151 * 16 + 2 * 16 + 2 * layer + (2 * 256 + 16) + 16
    assert parameter_count(config, accounts=13_714, items=8_367) == 364_385 - 1  # HVIDEO, domain E


def test_it_learns_both_domains_of_a_mixed_log() -> None:
    split = split_dataset(two_domains_world(), SplitConfig(ask="each-domain"))
    quick = TrainingConfig(epochs=25, batch_size=8, learning_rate=0.002, patience=25)
    made = train_in_memory("tgsrec", split, {}, quick)[0]
    learned = np.ones(split.train.items, dtype=bool)
    ranks = ranks_in_domains("tgsrec", made, split.test, split.catalogues, learned=learned)
    for domain in split.train.domains:
        inside = (split.test.target >= domain.start) & (split.test.target < domain.stop)
        assert (ranks[inside] <= 5).mean() >= 0.9
