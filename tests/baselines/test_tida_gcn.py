"""TiDA-GCN: waits inside the messages, time that may be missing, two domains, and the parameter formula."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import layer_norm, leaky_relu, relu
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.tida_gcn import AccountBlock, AccountReader, LatentUserPooling, TiDAGCN, TiDAGCNConfig
from lightgc2n.data.batches import Batch, training_batches
from lightgc2n.data.dataset import Domain, load_dataset
from lightgc2n.data.splits import SplitConfig, Training, split_dataset
from lightgc2n.errors import SettingError
from lightgc2n.graph.domain_graph import build_intervals
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.load_run import run_recommender
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import evaluate_run, train_run
from lightgc2n.training.runs import RunPlan, load_run
from tests.baselines.test_da_gcn import (
    HALVES,
    LOGS,
    UNEVEN,
    check_drawn_evenly,
    check_first_weights,
    check_learns_by_heart,
    check_learns_two_domains,
    check_padding_and_singles,
    phi,
    train_of_halves,
)
from tests.graph.logs import training_of


def parameter_count(config: TiDAGCNConfig, accounts: int, items: int, domains: int = 1, timed: bool = False) -> int:
    """(M + N + [I])·D + 2L(D² + D) + (2Kd + 1)·M and K readers, where d is the width and D = Hd.

    A reader has max_length·D + d² + 6d + 6D, and 3(D² + D) + 4dD + 2d + 5D a block. [I]: where times are known.
    """
    width, whole = config.width, config.latent_users * config.width
    nodes = (items + accounts + timed * config.waits) * whole + 2 * config.layers * (whole**2 + whole)
    block = 3 * (whole**2 + whole) + 4 * width * whole + 2 * width + 5 * whole
    reader = config.max_length * whole + width**2 + 6 * width + 6 * whole + config.blocks * block
    return nodes + domains * reader + (2 * domains * width + 1) * items


DAY = 86_400 * 1_000_000
EVERYTHING = Domain("all", 0, 6)


def timed(shift: int = 0) -> Training:
    """The n-th event of all logs together happens on day n²."""
    train = train_of_halves()
    return replace(train, times=(np.arange(len(train.events), dtype=np.int64) ** 2 + shift) * DAY)


def model_of(train: Training | None = None, **changes: Any) -> TiDAGCN:
    torch.manual_seed(0)
    model = zoo.build("tida-gcn", train or timed(), {"width": 3, "latent_users": 2, **changes})
    assert isinstance(model, TiDAGCN)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.start_epoch(0)
    return model.eval()


@pytest.mark.parametrize("layers", [1, 2])
def test_messages_hold_waits_as_a_loop_says(layers: int) -> None:
    model = model_of(layers=layers, edge_weight="binary", graph_share=0.7)
    graph, waits = model.graph, model.waits
    assert waits is not None
    base = torch.cat([graph.items, graph.accounts])
    nodes, total = base, base
    for convolution in graph.convolutions:
        following = []
        for row in range(len(base)):
            heard = 0.7 * nodes[graph.columns[graph.offsets[row] : graph.offsets[row + 1]]].sum(dim=0)
            if row < 6:  # accounts wait for nothing
                for place in range(int(waits.offsets[row]), int(waits.offsets[row + 1])):
                    heard = heard + 0.3 * waits.shares[place] * waits.table[waits.columns[place]]
            straight = leaky_relu(convolution.plain(heard), 0.2)
            following.append(straight + leaky_relu(convolution.product(nodes[row] * heard), 0.2))
        nodes = torch.stack(following)
        total = total + nodes / nodes.norm(dim=1, keepdim=True)
    assert_close(model.encode().table, total / (layers + 1), rtol=1e-4, atol=1e-5)


def scores(model: TiDAGCN) -> torch.Tensor:
    return model.scores(model.encode(), Batch(tensor([0, -1]), tensor([[1, 4], [5, 0]]), tensor([2, 1])), EVERYTHING)


def test_a_shift_of_all_times_changes_nothing() -> None:
    assert_close(scores(model_of(timed())), scores(model_of(timed(shift=1000))), rtol=0, atol=0)


def test_waits_count_unless_neighbours_are_all() -> None:
    for share, matters in ((0.8, True), (1.0, False)):
        model = model_of(graph_share=share)
        before = scores(model)
        assert model.waits is not None
        with torch.no_grad():
            model.waits.table.neg_()
        assert bool((scores(model) != before).any()) == matters


def test_without_times_neighbours_are_all() -> None:
    model = model_of(train_of_halves(), graph_share=0.3)
    assert model.waits is None
    assert model.graph.share == 1.0
    told = model_of(timed(), time="none")
    assert told.waits is None
    assert told.graph.share == 1.0


def test_waits_learn() -> None:
    model = model_of().train()
    terms = model.losses(model.encode(), next(training_batches(timed(), 10)))
    terms["next_item"].backward()
    assert model.waits is not None
    assert model.waits.table.grad is not None
    used = set(model.waits.columns.tolist())
    assert used
    assert set(model.waits.table.grad.abs().sum(dim=1).nonzero()[:, 0].tolist()) == used


@pytest.mark.parametrize("train", [timed(), train_of_halves(), training_of(LOGS, items=6)])
def test_saved_tensors_are_enough(train: Training) -> None:
    model = model_of(train)
    again = TiDAGCN.restore(model.config, model.state_dict()).eval()
    assert_close(scores(again), scores(model), rtol=0, atol=0)


@pytest.mark.parametrize("train", [timed(), train_of_halves()])
def test_padding_and_company_change_nothing(train: Training) -> None:
    check_padding_and_singles(model_of(train))


def test_only_the_newest_events_of_each_domain_are_read() -> None:
    model = model_of(max_length=2)
    long = Batch(tensor([1]), tensor([[0, 3, 4, 1, 5, 2]]), tensor([6]))
    short = Batch(tensor([1]), tensor([[4, 1, 5, 2]]), tensor([4]))
    nodes = model.encode()
    assert_close(model.scores(nodes, long, EVERYTHING), model.scores(nodes, short, EVERYTHING))


def test_an_account_folded_in_with_its_neighbours_is_its_node() -> None:
    model = model_of(layers=2)
    shown = [log[:-1] for log in LOGS]
    history = tensor([log + [0] * (4 - len(log)) for log in shown])
    batch = Batch(torch.arange(4), history, tensor([len(log) for log in shown]))
    nodes = model.encode()
    assert_close(model.graph.folded_in(nodes, batch), nodes.table[6:].detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"width": 5, "latent_users": 1, "layers": 3, "blocks": 2}, {"waits": 9, "max_length": 7}]
)
def test_the_parameters_are_those_of_the_formula(changes: dict[str, Any]) -> None:
    for train in (timed(), train_of_halves(), training_of(LOGS, items=6)):
        model = model_of(train, **changes)
        expected = parameter_count(model.config, 4, 6, len(train.domains), timed=train.times is not None)
        assert sum(value.numel() for value in model.parameters()) == expected


def test_the_formula_on_the_paper_s_data() -> None:
    """The release counts a pad vector, matrices that nothing uses, and one more block for its second domain."""
    hvideo, hamazon = (
        parameter_count(TiDAGCNConfig(max_length=28), *sizes, domains=2, timed=True)
        for sizes in ((13_714, 8_367 + 11_404), (13_724, 67_161 + 126_547))
    )
    whole, width = 64, 16
    unused = whole + (whole**2 + whole) + whole**2
    block = 3 * (whole**2 + whole) + 2 * whole * 2 * width + 2 * width + whole + 4 * whole
    assert hvideo + unused + block == 3_524_059
    assert hamazon + unused + block == 25_962_572


def test_the_first_weights() -> None:
    torch.manual_seed(0)
    train = replace(training_of([[0, 1, 30, 2]] * 50, items=300), domains=UNEVEN)
    model = TiDAGCN.build(TiDAGCNConfig(), replace(train, times=np.arange(200, dtype=np.int64) * DAY))
    check_first_weights(model.graph, model.head, UNEVEN)
    assert model.waits is not None
    check_drawn_evenly(model.waits.table)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(SettingError, match="4 heads do not divide width 6"):
        model_of(heads=4)


def test_scores_read_the_other_domain_first() -> None:
    model = model_of()
    nodes, batch = model.encode(), Batch(tensor([1]), tensor([[1, 4, 0]]), tensor([3]))
    account, rows = nodes.table[[6 + 1]], nodes.table[:6]
    first = model.readers[0](rows[[1, 0]][None], account, tensor([[True, True]]))[0]
    second = model.readers[1](rows[[4]][None], account, tensor([[True]]))[0]
    expected = model.head.weight[:3] @ torch.cat([second, first]) + model.head.bias[:3]
    assert_close(model.scores(nodes, batch, HALVES[0])[0], expected.detach(), rtol=1e-4, atol=1e-5)
    expected = model.head.weight[3:] @ torch.cat([first, second]) + model.head.bias[3:]
    assert_close(model.scores(nodes, batch, HALVES[1])[0], expected.detach(), rtol=1e-4, atol=1e-5)


def test_a_domain_that_is_alone_reads_its_own_words() -> None:
    train = training_of(LOGS, items=6)
    model = model_of(replace(train, times=np.arange(len(train.events), dtype=np.int64) * DAY))
    nodes, batch = model.encode(), Batch(tensor([1]), tensor([[1, 4, 0]]), tensor([3]))
    words = model.readers[0](nodes.table[[1, 4, 0]][None], nodes.table[[6 + 1]], torch.ones(1, 3, dtype=torch.bool))[0]
    expected = (model.head.weight @ words + model.head.bias).detach()
    assert_close(model.scores(nodes, batch, EVERYTHING)[0], expected, rtol=1e-4, atol=1e-5)


def test_domains_are_scored_apart() -> None:
    model = model_of()
    nodes, batch = model.encode(), Batch(tensor([2]), tensor([[5, 1]]), tensor([2]))
    parts = torch.cat([model.scores(nodes, batch, domain) for domain in HALVES], dim=1)
    assert_close(model.scores(nodes, batch, Domain("part", 2, 5)), parts[:, 2:5], rtol=0, atol=0)


def test_a_run_on_data_with_times_answers(tmp_path: Path) -> None:
    """From files to lists: waits are counted before the cut in time alone, saved, and count in what is listed."""
    generate(HouseholdConfig(accounts=30), seed=3, out=tmp_path / "data")
    split = SplitConfig(protocol="time", ask="each-domain")
    training = TrainingConfig(epochs=1, batch_size=32)
    train_run(
        RunPlan(tmp_path / "data", "tida-gcn", settings={"width": 4}, split=split, training=training), tmp_path / "run"
    )
    model = load_run(tmp_path / "run")[1]
    assert isinstance(model, TiDAGCN)
    assert model.waits is not None
    divided = split_dataset(load_dataset(tmp_path / "data"), split)
    expected = build_intervals(divided.train, model.config.waits)
    assert expected is not None
    assert model.waits.columns.tolist() == expected.columns.tolist()
    assert model.waits.shares.tolist() == expected.weights.tolist()
    assert len(evaluate_run(tmp_path / "run").ranks["tida-gcn"]) == len(divided.test)
    answering = load(tmp_path / "run")
    account = answering.dataset.accounts[0]
    listed = answering.recommend(account, k=5)
    with torch.no_grad():
        model.waits.table.neg_()
    again = run_recommender("tida-gcn", model, answering.dataset, divided.train).recommend(account, k=5)
    assert [place.score for place in listed] != [place.score for place in again]


def test_learns_by_heart() -> None:
    check_learns_by_heart("tida-gcn")


def test_learns_two_domains() -> None:
    check_learns_two_domains("tida-gcn", TrainingConfig(epochs=15, batch_size=8, learning_rate=0.02, patience=15))


WIDTH, USERS, LONGEST = 3, 2, 6
WHOLE = WIDTH * USERS


def reader_of(blocks: int = 2, heads: int = 2) -> AccountReader:
    torch.manual_seed(0)
    reader = AccountReader(WIDTH, USERS, LONGEST, blocks, heads, smoothing=0.5, drop=0.0)
    for parameter in reader.parameters():  # gains and offsets too, which start at one and zero
        torch.nn.init.normal_(parameter, std=0.5)
    return reader.eval()


def test_the_first_weights_of_the_attention() -> None:
    torch.manual_seed(0)
    reader = AccountReader(16, 4, 50, 1, 1, smoothing=0.5, drop=0.0)
    check_drawn_evenly(reader.positions)
    check_drawn_evenly(reader.pooling.weight)
    assert reader.pooling.bias.all()  # drawn as a table of one row
    assert (reader.pooling.direction == 1).all()
    for part in reader.modules():
        if isinstance(part, torch.nn.Linear):
            check_drawn_evenly(part.weight)
        if isinstance(part, torch.nn.Linear | torch.nn.LayerNorm):
            assert not part.bias.any()
        if isinstance(part, torch.nn.LayerNorm):
            assert (part.weight == 1).all()


def normed(vector: Tensor, part: torch.nn.LayerNorm) -> Tensor:
    return layer_norm(vector, vector.shape[-1:], part.weight, part.bias, 1e-8)


def test_the_pooling_gives_the_numbers_of_the_spec() -> None:
    pooling = LatentUserPooling(3, smoothing=0.5)
    with torch.no_grad():
        pooling.weight.copy_(phi(3, 3, shift=2))
        pooling.bias.copy_(phi(1, 3, shift=3))
    users, last = phi(1, 2, 3, shift=0), phi(1, 3, shift=1)
    shares = pooling.log_shares(users, last).exp().detach()
    assert_close(shares[0, :, 0], tensor([0.054618, 1.428813]), rtol=0, atol=2e-6)
    pooled = tensor([0.052685, -0.410034, -0.679907])
    assert_close((shares * users).sum(dim=1)[0], pooled, rtol=0, atol=2e-6)
    assert_close(pooling(users, last).detach()[0], layer_norm(pooled, (3,), eps=1e-8), rtol=0, atol=1e-5)


def slow_block(block: AccountBlock, account: Tensor, events: Tensor) -> Tensor:
    """Event by event, head by head."""
    asking = normed(account, block.asking_norm)
    query, key, value = relu(block.query(asking)), relu(block.key(events)), relu(block.value(events))
    size, actual = len(query) // block.heads, []
    for step in range(len(events)):
        heard = torch.zeros_like(account)
        for head in range(block.heads):
            part = slice(head * size, (head + 1) * size)
            match = tensor([float(query[part] @ key[s, part]) / size**0.5 for s in range(step + 1)])
            heard[part] = match.softmax(dim=0) @ value[: step + 1, part]
        mixed = normed(asking + heard, block.mixed_norm)
        actual.append(mixed + block.outer(relu(block.inner(mixed))))
    return torch.stack(actual)


def slow_reader(reader: AccountReader, items: Tensor, account: Tensor) -> Tensor:
    """One history without any padding."""
    events = items + reader.positions[: len(items)]
    for block in reader.blocks:
        events = slow_block(block, account, events)  # type: ignore[arg-type]
    read = normed(events, reader.read_norm).view(-1, USERS, WIDTH)
    newest = read[-1].mean(dim=0)
    pooling, fits, sums = reader.pooling, [], []
    for user in range(USERS):
        sums.append(read[:, user].sum(dim=0))
        fit = torch.tanh(normed(sums[-1] * newest, pooling.fit_norm) @ pooling.weight + pooling.bias[0])
        fits.append((fit @ pooling.direction)[0].exp())
    total = sum(fits) ** 0.5
    pooled = normed(sum(fit / total * vector for fit, vector in zip(fits, sums, strict=True)), pooling.pooled_norm)
    listed = sum(normed(item, reader.item_norm).view(USERS, WIDTH).mean(dim=0) for item in items)
    asking = normed(account, reader.account_norm).view(USERS, WIDTH).mean(dim=0)
    return torch.cat([0.9 * listed + 0.1 * pooled, len(items) * asking])


@torch.no_grad()
def test_the_reader_is_that_of_a_slow_loop_whatever_the_padding() -> None:
    reader = reader_of()
    items, account = torch.randn(3, 5, WHOLE), torch.randn(3, WHOLE)
    lengths = tensor([5, 1, 3])
    actual = reader(items, account, torch.arange(5) < lengths[:, None])
    for row, length in enumerate(lengths.tolist()):
        assert_close(actual[row], slow_reader(reader, items[row, :length], account[row]), rtol=1e-4, atol=1e-4)


def test_a_share_beyond_all_numbers_leaves_the_pooling_as_it_is() -> None:
    """All latent users fit alike, by e^200."""
    pooling = LatentUserPooling(4, 0.5)
    with torch.no_grad():
        pooling.weight.copy_(10 * torch.eye(4))
        pooling.bias.zero_()
        pooling.direction.fill_(100.0)
        pooling.fit_norm.weight.zero_()
        pooling.fit_norm.bias.fill_(1.0)  # tanh(10) for everyone
    users = torch.randn(2, 3, 4, requires_grad=True)
    actual = pooling(users, torch.randn(2, 4))
    assert pooling.log_shares(users, torch.randn(2, 4)).detach().max() > 150  # its square has no place among floats
    assert_close(actual, pooling.pooled_norm(users.mean(dim=1)))
    actual.sum().backward()
    assert users.grad is not None
    assert users.grad.isfinite().all()


@torch.no_grad()
def test_a_domain_without_events_says_nothing() -> None:
    actual = reader_of()(torch.randn(1, 4, WHOLE), torch.randn(1, WHOLE), torch.zeros(1, 4, dtype=torch.bool))
    assert not actual.any()


@torch.no_grad()
def test_dropout_hides_whole_events_and_words() -> None:
    """Of a single event either nothing is heard or twice as much; of the words about half are left."""
    torch.manual_seed(0)
    block, account, event = AccountBlock(4, 8, 1, drop=0.5), torch.randn(1, 4), torch.randn(1, 1, 4)
    asking, value = block.asking_norm(account)[:, None], relu(block.value(event))
    ways = [
        mixed + block.outer(relu(block.inner(mixed))) for mixed in map(block.mixed_norm, (asking, asking + 2 * value))
    ]
    actual = [block(account, event) for _ in range(20)]
    for way in ways:
        assert any(torch.allclose(one, way, atol=1e-6) for one in actual)
    assert all(any(torch.allclose(one, way, atol=1e-6) for way in ways) for one in actual)
    reader = AccountReader(200, 2, 3, 1, 1, smoothing=0.5, drop=0.5)
    words = reader(torch.randn(1, 3, 400), torch.randn(1, 400), torch.ones(1, 3, dtype=torch.bool))
    assert 0.4 < float((words == 0).float().mean()) < 0.6


def test_an_empty_history_beside_others_leaves_gradients_finite() -> None:
    reader = reader_of()
    items = torch.zeros(2, 3, WHOLE, requires_grad=True)
    known = tensor([[False] * 3, [True, True, False]])
    reader(items, torch.randn(2, WHOLE), known).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in reader.parameters() if p.grad is not None)
