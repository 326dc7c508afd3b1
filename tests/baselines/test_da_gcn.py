"""DA-GCN: the spec's numbers, a slow loop over nodes, two domains, and accounts that are folded in."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import leaky_relu
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.da_gcn import DAGCN, DAGCNConfig, DomainHead
from lightgc2n.data.batches import Batch, make_batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import Split, SplitConfig, Training, split_dataset
from lightgc2n.layers.account_graph import AccountGraph
from lightgc2n.layers.domain_views import draw_queries, draw_several
from lightgc2n.metrics.ranks import ranks_in_domains
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_in_memory
from tests.graph.logs import training_of
from tests.worlds import two_domains_world


def parameter_count(config: DAGCNConfig, accounts: int, items: int, domains: int = 1) -> int:
    """(M + N)·Hd + 2L((Hd)² + Hd) + (2K(L + 1)d + 1)·M, with d the width."""
    node = config.latent_users * config.width
    words = 2 * (config.layers + 1) * config.width
    return (items + accounts) * node + 2 * config.layers * (node**2 + node) + (domains * words + 1) * items


DOMAINS = (Domain("A", 0, 2), Domain("B", 2, 3))
LOGS = [[0, 1, 3, 0, 2], [1, 4, 3], [5, 5, 1, 0], [4]]  # items 0 to 2 are of domain A, 3 to 5 of domain B
HALVES = (Domain("A", 0, 3), Domain("B", 3, 6))


def phi(*shape: int, shift: int) -> Tensor:
    """The spec's fixed numbers."""
    return 0.5 * torch.sin(1 + 0.7 * torch.arange(int(np.prod(shape))).view(shape) + shift)


def spec_model(edge_weight: str) -> DAGCN:
    """A0 A1 A0 and B0 of one account: nodes stand as A0, A1, B0, account here, and as A0, A1, account, B0 there."""
    train = replace(
        training_of([[0, 1, 2, 0]], items=3), domains=DOMAINS, domain_targets=np.array([[-1, -1]], dtype=np.int32)
    )
    changes = {"width": 2, "latent_users": 1, "edge_weight": edge_weight, "released_loops": True, "dropout": 0.0}
    model = zoo.build("da-gcn", train, changes)
    assert isinstance(model, DAGCN)
    nodes = phi(4, 2, shift=0)
    with torch.no_grad():
        model.graph.items.copy_(nodes[[0, 1, 3]])
        model.graph.accounts.copy_(nodes[[2]])
        model.graph.convolutions[0].plain.weight.copy_(phi(2, 2, shift=1).T)
        model.graph.convolutions[0].product.weight.copy_(phi(2, 2, shift=2).T)
    model.start_epoch(0)
    return model.eval()


@pytest.mark.parametrize(
    ("edge_weight", "expected"),
    [
        ("binary", [[0.209049, 0.073938], [0.212695, 0.077154], [0.017795, 0.060373], [-0.022116, 0.118980]]),
        ("attention", [[0.112801, -0.023462], [0.123810, -0.001405], [-0.027299, 0.037905], [-0.022116, 0.118980]]),
        (
            "attention-epoch",
            [[0.112801, -0.023462], [0.123810, -0.001405], [-0.027299, 0.037905], [-0.022116, 0.118980]],
        ),
    ],
)
def test_one_convolution_gives_the_numbers_of_the_spec(edge_weight: str, expected: list[list[float]]) -> None:
    actual = spec_model(edge_weight).encode()
    assert_close(actual.raw[1].detach()[[0, 1, 3, 2]], tensor(expected), rtol=0, atol=2e-6)


def test_attention_rows_of_the_spec() -> None:
    graph = spec_model("attention").graph
    weights = graph.weights(torch.cat([graph.items, graph.accounts]), graph.edges)
    dense = torch.zeros(4, 4)
    dense[graph.edges.rows, graph.columns] = weights.detach()
    order = [0, 1, 3, 2]
    expected = [
        [0.534151, 0.392803, 0.073046, 0.0],
        [0.378863, 0.515194, 0.105943, 0.0],
        [0.062822, 0.094468, 0.459391, 0.383319],
        [0.0, 0.0, 1.0, 0.0],
    ]
    assert_close(dense[order][:, order], tensor(expected), rtol=0, atol=2e-6)


def test_maximum_and_account_of_the_spec() -> None:
    model = spec_model("binary")
    batch = Batch(tensor([0]), tensor([[0, 1, 2, 0]]), tensor([4]))
    nodes = model.encode()
    first, second = model.domain_features(nodes, batch, model.graph.accounts_of(nodes, batch))
    account = [-0.305929, -0.488765, 0.282730, 0.959200]
    expected = tensor([[0.420735, 0.495832, 0.942769, 0.341002, *account]])
    assert_close(first.detach(), expected, rtol=0, atol=2e-6)
    assert_close(second.detach(), torch.cat([nodes.table[[2]], tensor([account])], dim=1).detach(), rtol=0, atol=2e-6)


def train_of_halves() -> Training:
    return replace(training_of(LOGS, items=6), domains=HALVES)


def model_of(train: Training | None = None, **changes: Any) -> DAGCN:
    torch.manual_seed(0)
    model = zoo.build("da-gcn", train or train_of_halves(), {"width": 3, "latent_users": 2, **changes})
    assert isinstance(model, DAGCN)
    for parameter in model.parameters():  # biases start at zero, and would hide where they are left out
        torch.nn.init.normal_(parameter)
    model.start_epoch(0)
    return model.eval()


@pytest.mark.parametrize("edge_weight", ["attention", "binary"])
def test_two_layers_are_those_of_a_loop_over_nodes(edge_weight: str) -> None:
    model = model_of(layers=2, edge_weight=edge_weight)
    graph = model.graph
    base = torch.cat([graph.items, graph.accounts])
    nodes, read = base, [base]
    for convolution in graph.convolutions:
        following = []
        for row in range(len(base)):
            near = graph.columns[graph.offsets[row] : graph.offsets[row + 1]]
            cosine = torch.cosine_similarity(base[row][None], base[near], dim=1)
            weight = cosine.softmax(dim=0) if edge_weight == "attention" else torch.ones(len(near))
            heard = (weight[:, None] * nodes[near]).sum(dim=0)
            straight = leaky_relu(convolution.plain(heard), 0.2)
            following.append(straight + leaky_relu(convolution.product(nodes[row] * heard), 0.2))
        nodes = torch.stack(following)
        read.append(nodes / nodes.norm(dim=1, keepdim=True))
    slices = [(layer[:, :3] + layer[:, 3:]) / 2 for layer in read]  # two latent users of width 3
    assert_close(model.encode().table, torch.cat(slices, dim=1), rtol=1e-4, atol=1e-5)


def test_scores_read_the_other_domain_first() -> None:
    model = model_of()
    nodes, batch = model.encode(), Batch(tensor([1]), tensor([[1, 4, 0]]), tensor([3]))
    account = nodes.table[6 + 1]
    first = torch.cat([torch.maximum(nodes.table[1], nodes.table[0]), account])
    second = torch.cat([nodes.table[4], account])
    expected = model.head.weight[:3] @ torch.cat([second, first]) + model.head.bias[:3]
    assert_close(model.scores(nodes, batch, HALVES[0])[0], expected.detach(), rtol=1e-4, atol=1e-5)
    expected = model.head.weight[3:] @ torch.cat([first, second]) + model.head.bias[3:]
    assert_close(model.scores(nodes, batch, HALVES[1])[0], expected.detach(), rtol=1e-4, atol=1e-5)


def test_a_domain_that_is_alone_reads_its_own_words() -> None:
    model = model_of(training_of(LOGS, items=6))
    nodes, batch = model.encode(), Batch(tensor([1]), tensor([[1, 4, 0]]), tensor([3]))
    words = torch.cat([nodes.table[[1, 4, 0]].amax(dim=0), nodes.table[6 + 1]])
    expected = (model.head.weight @ words + model.head.bias).detach()
    assert_close(model.scores(nodes, batch, Domain("all", 0, 6))[0], expected, rtol=1e-4, atol=1e-5)


def test_a_range_across_domains_is_cut_from_all_scores() -> None:
    model, batch = model_of(), Batch(tensor([1, -1]), tensor([[1, 4], [5, 0]]), tensor([2, 1]))
    nodes = model.encode()
    parts = torch.cat([model.scores(nodes, batch, domain) for domain in HALVES], dim=1)
    for start, stop in ((0, 6), (1, 5), (4, 6)):
        assert_close(model.scores(nodes, batch, Domain("part", start, stop)), parts[:, start:stop], rtol=0, atol=0)


def test_the_loss_is_that_of_a_slow_loop() -> None:
    model, batch = model_of(dropout=0.0), next(training_batches(train_of_halves(), 10))
    nodes = model.encode()
    torch.manual_seed(3)
    asked, targets = draw_several(batch, HALVES, 4)
    expected = tensor(0.0)
    for number, domain in enumerate(HALVES):
        terms = []
        for row in (targets[:, number] >= 0).nonzero()[:, 0].tolist():
            one = Batch(asked.account[[row]], asked.history[[row]], asked.length[[row]])
            chances = model.scores(nodes, one, domain)[0].log_softmax(dim=0)
            terms.append(-chances[targets[row, number] - domain.start])
        expected = expected + torch.stack(terms).mean()
    torch.manual_seed(3)
    assert_close(model.losses(nodes, batch)["next_item"], expected)


@torch.no_grad()
def test_what_dropout_leaves_is_scaled() -> None:
    """Half of what a layer gives is dropped once, half of what a domain says twice; the rest is two and four times."""
    torch.manual_seed(0)
    model = model_of(dropout=0.5, width=400)
    nodes, batch = model.encode(), Batch(tensor([1]), tensor([[1, 4, 0]]), tensor([3]))
    account = model.graph.accounts_of(nodes, batch)
    words = torch.stack(model.domain_features(nodes, batch, account))
    model.train()
    pairs = (
        (model.encode().raw[1], nodes.raw[1], 0.5),
        (torch.stack(model.domain_features(nodes, batch, account)), words, 0.25),
    )
    for actual, whole, share in pairs:
        kept = actual != 0
        assert float(kept.float().mean()) == pytest.approx(share, abs=0.05)
        assert_close(actual[kept], whole[kept] / share)


def test_separate_targets_follow_the_whole_log() -> None:
    train = replace(training_of([[0, 4, 1], [3, 5]], items=6), domains=HALVES)
    train = replace(train, domain_targets=np.array([[2, 5], [-1, 4]], dtype=np.int32))
    model = model_of(train, dropout=0.0)
    nodes = model.encode()
    whole = Batch(tensor([0, 1]), tensor([[0, 4, 1], [3, 5, 0]]), tensor([3, 2]))
    first, second = (model.scores(nodes, whole, domain).log_softmax(dim=1) for domain in HALVES)
    batch = next(training_batches(train, 10))
    assert_close(model.losses(nodes, batch)["next_item"], -first[0, 2] - (second[0, 2] + second[1, 1]) / 2)


@pytest.mark.parametrize("edge_weight", ["attention", "attention-epoch", "binary"])
@pytest.mark.parametrize("layers", [1, 3])
def test_an_account_folded_in_with_its_neighbours_is_its_node(edge_weight: str, layers: int) -> None:
    model = model_of(edge_weight=edge_weight, layers=layers)
    shown = [log[:-1] for log in LOGS]
    history = tensor([log + [0] * (4 - len(log)) for log in shown])
    batch = Batch(torch.arange(4), history, tensor([len(log) for log in shown]))
    nodes = model.encode()
    assert_close(model.graph.folded_in(nodes, batch), nodes.table[6:].detach(), rtol=1e-4, atol=1e-5)


def test_a_stranger_starts_from_the_mean_of_the_accounts_that_hold_anything() -> None:
    model = model_of()
    nodes, batch = model.encode(), Batch(tensor([-1]), tensor([[4, 1]]), tensor([2]))
    with torch.no_grad():
        model.graph.accounts[0] = model.graph.accounts[:3].mean(dim=0)  # the fourth holds nothing that is shown
    known = model.fold_in_scores(nodes, replace(batch, account=tensor([0])), HALVES[0])
    with torch.no_grad():
        model.graph.accounts[1:3] = model.graph.accounts[0]
    assert_close(model.scores(nodes, batch, HALVES[0]), known, rtol=1e-4, atol=1e-5)


def check_padding_and_singles(model: zoo.Model) -> None:
    """Histories of both domains, of one, of none, and of a stranger."""
    logs = [[1, 4, 0], [4, 5], [2], [], [3, 1]]
    account = tensor([0, 1, 2, 1, -1])
    history = tensor([log + [3] * (5 - len(log)) for log in logs])  # padding that would be an item
    batch = Batch(account, history, tensor([len(log) for log in logs]))
    nodes, everything = model.encode(), Domain("all", 0, 6)
    together = model.scores(nodes, batch, everything)
    assert torch.isfinite(together).all()
    for row, log in enumerate(logs):
        one = Batch(account[[row]], tensor([log or [0]]), tensor([len(log)]))
        assert_close(model.scores(nodes, one, everything)[0], together[row], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("edge_weight", ["attention", "binary"])
def test_padding_and_company_change_nothing(edge_weight: str) -> None:
    check_padding_and_singles(model_of(edge_weight=edge_weight))


def check_drawn_evenly(table: Tensor) -> None:
    """Xavier's even draw: within √(6 / (rows + columns)), and up to there."""
    limit = (6 / sum(table.shape)) ** 0.5
    assert 0.95 * limit < table.abs().max() <= limit


def check_first_weights(graph: AccountGraph, head: DomainHead, domains: Sequence[Domain]) -> None:
    """Every domain's items are a table of their own, however many items others have."""
    for domain in domains:
        own = slice(domain.start, domain.stop)
        check_drawn_evenly(graph.items[own])
        wide = head.weight[own].detach()
        assert float(wide.std()) == pytest.approx((2 / sum(wide.shape)) ** 0.5, rel=0.1)
    check_drawn_evenly(graph.accounts)
    assert not head.bias.any()
    for part in graph.modules():
        if isinstance(part, torch.nn.Linear):
            check_drawn_evenly(part.weight)
            assert not part.bias.any()


UNEVEN = (Domain("A", 0, 20), Domain("B", 20, 300))


def test_the_first_weights() -> None:
    torch.manual_seed(0)
    train = replace(training_of([[0, 1, 30, 2]] * 50, items=300), domains=UNEVEN)
    model = DAGCN.build(DAGCNConfig(), train)
    check_first_weights(model.graph, model.head, UNEVEN)


def test_refreshed_weights_are_saved() -> None:
    model = model_of(edge_weight="attention-epoch")
    with torch.no_grad():
        model.graph.items += 1  # as steps within the epoch do
    again = DAGCN.restore(model.config, model.state_dict()).eval()
    assert_close(again.encode().table, model.encode().table, rtol=0, atol=0)
    assert again.domains == (Domain("0", 0, 3), Domain("1", 3, 6))


@pytest.mark.parametrize(
    "changes", [{"width": 3, "latent_users": 2}, {"width": 5, "latent_users": 1, "layers": 3}, {"width": 1}]
)
def test_the_parameters_are_those_of_the_formula(changes: dict[str, Any]) -> None:
    for train, domains in ((train_of_halves(), 2), (training_of(LOGS, items=6), 1)):
        model = model_of(train, **changes)
        assert sum(value.numel() for value in model.parameters()) == parameter_count(model.config, 4, 6, domains)


def test_the_formula_on_the_paper_s_data() -> None:
    hvideo, hamazon = (13_714, 8_367 + 11_404), (13_724, 67_161 + 126_547)
    for width, users, first, second in (
        (16, 1, 3_086_763, 28_307_788),
        (16, 2, 3_624_091, 31_628_268),
        (16, 4, 4_701_819, 38_272_300),
        (100, 2, 22_613_971, 196_726_908),
    ):
        config = DAGCNConfig(width=width, latent_users=users)
        assert parameter_count(config, *hvideo, domains=2) == first
        assert parameter_count(config, *hamazon, domains=2) == second


@cache
def two_domains() -> Split:
    return split_dataset(two_domains_world(), SplitConfig(ask="each-domain", validation=False))


def check_learns_two_domains(name: str, training: TrainingConfig) -> None:
    split = two_domains()
    assert split.by_domain
    model = train_in_memory(name, split, {}, training)[0]
    ranks = ranks_in_domains(name, model, split.test, split.catalogues, learned=split.train.popularity > 0)
    number = np.searchsorted([domain.stop for domain in split.catalogues], split.test.target, side="right")
    for which in (0, 1):
        assert (ranks[number == which] <= 5).mean() >= 0.9
    # A domain that the history has nothing of is answered by the other one: the taste is shared.
    silent = split.test.select(np.flatnonzero(number == 1))
    batch = make_batch(silent)
    kept = batch.known & (batch.history < split.catalogues[0].stop)
    order = (~kept).long().argsort(dim=1, stable=True)
    half = replace(batch, account=torch.full_like(batch.account, -1), history=batch.history.gather(1, order))
    half = replace(half, length=kept.sum(dim=1), ages=None)
    scores = model.scores(model.encode(), half, split.catalogues[1])
    best = scores.topk(5, dim=1).indices + split.catalogues[1].start
    assert (best == torch.as_tensor(silent.target.astype(np.int64))[:, None]).any(dim=1).float().mean() >= 0.9


def check_learns_by_heart(name: str) -> None:
    """32 histories with answers that follow from nothing: whoever is asked, the first place is right."""
    torch.manual_seed(0)
    train = split_dataset(two_domains_world(accounts=32), SplitConfig(ask="each-domain")).train
    given = np.random.default_rng(0).integers([0, 20], [20, 40], size=(32, 2)).astype(np.int32)
    train = replace(train, domain_targets=given)
    model = zoo.build(name, train, {"dropout": 0.0})
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    (batch,) = training_batches(train, 32)
    for _ in range(60):
        optimiser.zero_grad()
        model.losses(model.encode(), batch)["next_item"].backward()
        optimiser.step()
    asked, targets = draw_queries(batch, train.domains)
    for number, domain in enumerate(train.domains):
        best = model.scores(model.encode(), asked, domain).argmax(dim=1) + domain.start
        assert (best == targets[:, number]).float().mean() > 0.95


def test_learns_by_heart() -> None:
    check_learns_by_heart("da-gcn")


def test_learns_two_domains() -> None:
    check_learns_two_domains("da-gcn", TrainingConfig(epochs=15, batch_size=8, learning_rate=0.02, patience=15))
