"""π-Net and PSJNet: scores and losses by slow loops, a planted world of two domains, and how many parameters."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.pi_net.pi_net import ParallelConfig, ParallelNet
from lightgc2n.data.batches import Batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Split, SplitConfig, Training, split_dataset
from lightgc2n.errors import SettingError
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_in_memory
from tests.baselines.pi_net.test_gated_unit import slow_step
from tests.baselines.pi_net.test_shared_filter import slow_filter
from tests.baselines.pi_net.test_split_and_join import slow_attention, slow_split
from tests.graph.logs import training_of
from tests.layers.test_domain_views import batch_of
from tests.worlds import two_domains_world


def parameter_count(config: ParallelConfig, accounts: int, items: int, domains: int = 1) -> int:
    """M(E + W + 1), and for each domain 3H(E + H + 1) and its transfer; W is 2H, and H without a transfer.

    The filter's transfer has K·E + 5H² + 2EH + 2H and 3H(2H + 1), that by split and join 3H² + K·H + 7H more; both have
    EH less with the released slip.
    """
    embedded, width = config.width, config.state_width or config.width
    maps = 1 if config.candidate_uses_gate_member else 2
    of_members = config.members * embedded + maps * embedded * width
    filtering = of_members + 5 * width**2 + 2 * width + 3 * width * (2 * width + 1)
    splitting = filtering + 3 * width**2 + config.members * width + 7 * width
    transfer = {"filter": filtering, "split-and-join": splitting, "none": 0}[config.transfer]
    answering = width if config.transfer == "none" else 2 * width
    unit = 3 * width * (embedded + width + 1)
    return items * (embedded + answering + 1) + domains * (unit + transfer)


PAIR = (Domain("A", 0, 4), Domain("B", 4, 9))
LOGS = [[0, 5, 1, 4, 8], [5, 2], [2, 0, 7]]
MIXED = replace(training_of(LOGS, items=9), domains=PAIR)
ALONE = training_of(LOGS, items=9)
EVERYTHING = Domain("all", 0, 9)


def model_of(name: str, train: Training, **settings: Any) -> ParallelNet:
    torch.manual_seed(0)
    model = zoo.build(name, train, {"width": 3, "state_width": 2, "dropout": 0.0, **settings})
    assert isinstance(model, ParallelNet)
    torch.nn.init.normal_(model.bias)
    torch.nn.init.normal_(model.items)  # drawn values are small; larger ones show mistakes
    return model


def scores(model: ParallelNet, batch: Batch, domain: Domain = EVERYTHING) -> Tensor:
    return model.eval().scores(model.encode(), batch, domain)


@torch.no_grad()
def slow_states(unit: Any, events: Tensor) -> Tensor:
    state, states = torch.zeros(unit.width), []
    for event in events:
        state = slow_step(unit, event, state)
        states.append(state)
    return torch.stack([torch.zeros(unit.width), *states])  # before the first event, then after each


@torch.no_grad()
def slow_filtered(unit: Any, source: Tensor, beside: Tensor, target: Tensor) -> Tensor:
    """What π-Net tells the target of one log."""
    return slow_states(unit.transfer, slow_filter(unit.filter, source, beside))[-1]


@torch.no_grad()
def slow_joined(unit: Any, source: Tensor, beside: Tensor, target: Tensor) -> Tensor:
    """What PSJNet-II tells the target of one log."""
    roles = slow_split(unit.split, source, beside).unbind(dim=1)
    told = [slow_attention(unit.over_time, target, slow_states(unit.join, states)[1:]) for states in roles]
    return slow_attention(unit.over_roles, target, torch.stack(told))


SLOW = {"pi-net": slow_filtered, "psjnet-2": slow_joined}
MODELS = list(SLOW)


@torch.no_grad()
def slow_logits(name: str, model: ParallelNet, history: list[int], number: int) -> Tensor:
    """The logits of one domain for one mixed history, event by event."""
    domains = model.domains
    mine = [[(place, item) for place, item in enumerate(history) if d.start <= item < d.stop] for d in domains]
    states = [
        slow_states(encoder, model.items[[item for _, item in events]])
        for encoder, events in zip(model.encoders, mine, strict=True)
    ]
    source = len(domains) - 1 - number
    # How many of the target's events stand before each of the source's; for one domain, its own.
    crossed = [sum(other < place for other, _ in mine[number]) for place, _ in mine[source]]
    told = torch.zeros_like(states[0][0])
    if mine[source]:
        told = SLOW[name](model.transfers[number], states[source][1:], states[number][crossed], states[number][1:])
    own = slice(domains[number].start, domains[number].stop)
    return model.outputs[own] @ torch.cat([told, states[number][-1]]) + model.bias[own]


HISTORIES = [[0, 5, 6, 1, 7], [4, 8], [3], [], [6, 2, 2, 1, 4, 4, 0]]


@pytest.mark.parametrize("train", [MIXED, ALONE], ids=["two domains", "one domain"])
@pytest.mark.parametrize("slip", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_a_slow_loop(name: str, train: Training, slip: bool) -> None:
    model = model_of(name, train, candidate_uses_gate_member=slip)
    expected = [
        torch.cat([slow_logits(name, model, history, number) for number in range(len(train.domains))])
        for history in HISTORIES
    ]
    assert_close(scores(model, batch_of(*HISTORIES)), torch.stack(expected))


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_that_of_a_slow_loop(name: str) -> None:
    """Every place asks each domain for its next item; the mean in each domain, and their sum."""
    model = model_of(name, MIXED)
    expected = torch.tensor(0.0)
    for number, domain in enumerate(PAIR):
        actual = []
        for log in LOGS:
            for cut in range(1, len(log)):
                later = [item for item in log[cut:] if domain.start <= item < domain.stop]
                if later:
                    logits = slow_logits(name, model, log[:cut], number)
                    actual.append(cross_entropy(logits, tensor(later[0] - domain.start)))
        expected += torch.stack(actual).mean()
    batch = next(training_batches(MIXED, 100))
    assert_close(model.losses(model.encode(), batch)["next_item"].detach(), expected)


@pytest.mark.parametrize("name", MODELS)
def test_32_drawn_logs_are_learned_by_heart(name: str) -> None:
    torch.manual_seed(0)
    logs = torch.randint(30, (32, 8)).tolist()
    train = replace(training_of(logs, items=30), domains=(Domain("A", 0, 12), Domain("B", 12, 30)))
    model = zoo.build(name, train, {"width": 32, "dropout": 0.0})
    assert isinstance(model, ParallelNet)
    batch = next(training_batches(train, 32))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        optimizer.zero_grad()
        model.losses(model.encode(), batch)["next_item"].backward()
        optimizer.step()
    histories = batch_of(*(log[:-1] for log in logs))
    for domain in train.domains:
        asked = [row for row, log in enumerate(logs) if domain.start <= log[-1] < domain.stop]
        best = scores(model, histories, domain).argmax(dim=1)
        assert sum(int(best[row]) == logs[row][-1] - domain.start for row in asked) > 0.95 * len(asked)


@cache
def trained(name: str) -> tuple[ParallelNet, Split]:
    split = split_dataset(two_domains_world(), SplitConfig(ask="each-domain"))
    training = TrainingConfig(epochs=12, batch_size=10, learning_rate=0.02, patience=12)
    model, _ = train_in_memory(name, split, {"width": 16}, training)
    assert isinstance(model, ParallelNet)
    return model, split


@pytest.mark.parametrize("name", MODELS)
def test_learns_a_planted_world_of_two_domains(name: str) -> None:
    model, split = trained(name)
    learned = split.train.popularity > 0
    ranks = ranks_in_domains(name, model, split.test, split.catalogues, learned=learned)
    for domain in split.catalogues:
        asked = (split.test.target >= domain.start) & (split.test.target < domain.stop)
        assert asked.sum() >= 40
        assert (ranks[asked] <= 5).mean() >= 0.9
        assert (ranks[asked] <= 1).mean() >= 0.75  # within the cluster the step is certain


@pytest.mark.parametrize("name", MODELS)
def test_a_domain_without_events_uses_the_transfer_of_the_other(name: str) -> None:
    """Four events of a cluster of E: an item of the same cluster of V leads, for three of four clusters at least.

    Untold, all clusters would give one list, and one of four would be right.
    """
    model, split = trained(name)
    firsts = [5 * cluster for cluster in range(4)]
    actual = scores(model, batch_of(*([first + step for step in range(4)] for first in firsts)), split.catalogues[1])
    assert sum(int(best) // 5 == cluster for cluster, best in enumerate(actual.argmax(dim=1))) >= 3


def test_without_a_transfer_domains_are_independent() -> None:
    model = model_of("pi-net", MIXED, transfer="none")
    actual = scores(model, batch_of([5, 6], [7]), PAIR[0])
    assert_close(actual[0], actual[1])
    assert_close(actual[0], model.bias.detach()[:4])


def test_one_domain_without_a_transfer_is_one_of_two() -> None:
    pair = model_of("pi-net", MIXED, transfer="none")
    alone = model_of("pi-net", training_of([[0, 1]], items=4), transfer="none")
    shared = {name: value for name, value in pair.state_dict().items() if name.startswith("encoders.0")}
    rows = {name: pair.state_dict()[name][:4] for name in ("items", "outputs", "bias")}
    alone.load_state_dict({**shared, **rows, "domain_stops": tensor([4])})
    batch = batch_of([0, 3, 1], [2])
    assert_close(scores(alone, batch, PAIR[0]), scores(pair, batch, PAIR[0]))


@pytest.mark.parametrize("train", [MIXED, ALONE], ids=["two domains", "one domain"])
@pytest.mark.parametrize("name", MODELS)
def test_padding_and_company_change_nothing(name: str, train: Training) -> None:
    model = model_of(name, train)
    together = batch_of(*HISTORIES)
    wider = torch.cat([together.history, torch.full((len(HISTORIES), 4), 6)], dim=1)
    actual = scores(model, together)
    assert_close(scores(model, replace(together, history=wider)), actual)
    for row, history in enumerate(HISTORIES):
        assert_close(scores(model, batch_of(history))[0], actual[row])


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_any_range_are_columns_of_all(name: str) -> None:
    model = model_of(name, MIXED)
    batch = batch_of(*HISTORIES)
    whole = scores(model, batch)
    for start, stop in ((0, 4), (4, 9), (1, 3), (5, 8), (2, 7), (3, 9)):
        assert_close(scores(model, batch, Domain("part", start, stop)), whole[:, start:stop])


@pytest.mark.parametrize("name", MODELS)
def test_only_the_newest_events_of_each_domain_are_read(name: str) -> None:
    model = model_of(name, MIXED, max_length=2)
    assert_close(scores(model, batch_of([3, 0, 8, 5, 6, 1])), scores(model, batch_of([0, 5, 6, 1])))


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns_from_two_domains(name: str) -> None:
    train = split_dataset(two_domains_world(), SplitConfig(ask="each-domain")).train
    model = model_of(name, train, dropout=0.2)
    model.losses(model.encode(), next(training_batches(train, 100)))["next_item"].backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("name", MODELS)
def test_drawn_places_give_a_loss(name: str) -> None:
    model = model_of(name, MIXED, cuts=1)
    actual = model.losses(model.encode(), next(training_batches(MIXED, 100)))["next_item"]
    assert torch.isfinite(actual)


@pytest.mark.parametrize("name", MODELS)
def test_saved_tensors_are_enough(name: str) -> None:
    model = model_of(name, MIXED)
    again = ParallelNet.restore(model.config, model.state_dict())
    assert again.domains[1] == Domain("1", 4, 9)
    batch = batch_of(*HISTORIES)
    assert_close(scores(again, batch), scores(model, batch), rtol=0, atol=0)


def test_three_domains_are_refused() -> None:
    three = replace(ALONE, domains=(Domain("A", 0, 2), Domain("B", 2, 5), Domain("C", 5, 9)))
    with pytest.raises(SettingError, match=r"this data has 3 \(A, B, C\)"):
        model_of("pi-net", three)


def test_a_batch_where_a_domain_has_no_target_trains_the_other() -> None:
    train = replace(training_of([[0, 1, 2], [3, 1]], items=9), domains=PAIR)
    model = model_of("pi-net", train)
    actual = model.losses(model.encode(), next(training_batches(train, 100)))["next_item"]
    actual.backward()
    assert torch.isfinite(actual)
    assert model.outputs.grad is not None
    assert model.outputs.grad[:4].abs().max() > 0
    assert not model.outputs.grad[4:].any()


@pytest.mark.parametrize(
    "config",
    [
        ParallelConfig(),
        ParallelConfig(width=7, state_width=5, members=3),
        ParallelConfig(width=7, state_width=5, candidate_uses_gate_member=True),
        ParallelConfig(width=7, state_width=5, transfer="none"),
        ParallelConfig(width=7, state_width=5, transfer="split-and-join", members=3),
    ],
)
@pytest.mark.parametrize("train", [MIXED, ALONE], ids=["two domains", "one domain"])
def test_parameters_are_as_many_as_the_formula_says(config: ParallelConfig, train: Training) -> None:
    model = ParallelNet.build(config, train)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert counted == parameter_count(config, 3, 9, domains=len(train.domains))


HVIDEO, HAMAZON = 8_367 + 11_404, 67_161 + 126_547
SIZES = {
    ("filter", HVIDEO): {16: 978_891, 90: 5_667_901, 100: 6_333_471},
    ("filter", HAMAZON): {16: 9_501_804, 90: 52_804_828, 100: 58_688_508},
    ("split-and-join", HVIDEO): {16: 980_779, 90: 5_718_481, 100: 6_395_671},
    ("split-and-join", HAMAZON): {16: 9_503_692, 90: 52_855_408, 100: 58_750_708},
}


@pytest.mark.parametrize(("transfer", "items"), SIZES)
def test_the_formula_with_published_sizes(transfer: str, items: int) -> None:
    for width, expected in SIZES[transfer, items].items():
        config = ParallelConfig(width=width, transfer=transfer)
        assert parameter_count(config, 0, items, domains=2) == expected
