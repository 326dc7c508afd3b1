"""GRU4Rec: scores by a slow loop, its pipelines and losses, bounded logs, and how many parameters it has."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn, tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.gru4rec import GRU4Rec, GRU4RecConfig, _widths
from lightgc2n.data.batches import Batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, SplitConfig, Training, split_dataset
from lightgc2n.errors import SettingError
from lightgc2n.metrics.ranks import target_ranks
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_in_memory
from tests.graph.logs import training_of
from tests.worlds import steps_world


def parameter_count(config: GRU4RecConfig, accounts: int, items: int) -> int:
    """M(D + 1), M·H more if separate, 3H(in + H + 2) a layer; with accounts N·D + (D + 1)H."""
    width, state_width = _widths(config)
    tables = items * (width + 1) + (items * state_width if config.embeddings == "separate" else 0)
    inputs = width + (config.layers - 1) * state_width
    recurrence = 3 * state_width * (inputs + config.layers * (state_width + 2))
    return tables + recurrence + (accounts * width + (width + 1) * state_width if config.account else 0)


LOGS = training_of([[0, 3, 1, 4, 1], [5, 2], [2, 0, 5]], items=6)
CATALOGUE = Domain("all", 0, 6)


def model_of(train: Training = LOGS, **settings: Any) -> GRU4Rec:
    torch.manual_seed(0)
    model = zoo.build("gru4rec", train, {"width": 4, "input_dropout": 0.0, "state_dropout": 0.0, **settings})
    assert isinstance(model, GRU4Rec)
    return model


def asked(*histories: list[int], account: int = 0) -> Batch:
    longest = max(len(history) for history in histories)
    table = tensor([history + [0] * (longest - len(history)) for history in histories])
    length = tensor([len(history) for history in histories])
    return Batch(account=torch.full_like(length, account), history=table.long(), length=length)


def scores(model: GRU4Rec, batch: Batch) -> Tensor:
    return model.eval().scores(model.encode(), batch, CATALOGUE)


def loss(model: GRU4Rec, train: Training = LOGS) -> Tensor:
    return model.losses(model.encode(), next(training_batches(train, 100)))["next_item"]


@torch.no_grad()
def slow_logits(model: GRU4Rec, history: list[int]) -> Tensor:
    """Event by event, with the weights of a model of one layer."""
    layer = model.recurrence.layers[0]
    assert isinstance(layer, nn.GRU)
    cell = nn.GRUCell(layer.input_size, layer.hidden_size)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    items = model.items()
    state = model.start(tensor([0]))
    for item in history:
        state = cell(items.inputs[item][None], state)
    return (items.outputs @ state[0]) + items.bias


PARTS = [{}, {"embeddings": "separate", "state_width": 3}, {"account": True}, {"pipeline": "parallel"}]


@pytest.mark.parametrize("settings", PARTS)
def test_scores_are_those_of_a_slow_loop(settings: dict[str, Any]) -> None:
    model = model_of(**settings)
    histories = [[0, 3, 1], [4], [2, 2, 5, 1, 0]]
    expected = torch.stack([slow_logits(model, history) for history in histories])
    assert_close(scores(model, asked(*histories)), expected)


def test_the_loss_is_that_of_a_slow_loop() -> None:
    model = model_of()
    examples = [(log[:end], log[end]) for log in ([0, 3, 1, 4, 1], [5, 2], [2, 0, 5]) for end in range(1, len(log))]
    expected = [cross_entropy(slow_logits(model, history), tensor(target)) for history, target in examples]
    assert_close(loss(model), torch.stack(expected).mean())


def test_without_a_history_the_bias_decides() -> None:
    model = model_of()
    nn.init.normal_(model.items.bias)
    assert_close(scores(model, asked([], [1]))[0], model.items.bias.detach())


@pytest.mark.parametrize("kind", ["ce-full", "ce-sampled", "bpr-max"])
def test_both_pipelines_agree_on_sequences_of_two(kind: str) -> None:
    """With one event there is no state to carry; seeds give both the same candidates."""
    pairs = training_of([[0, 3], [5, 2], [2, 0], [1, 1]], items=6)
    actual = {}
    for pipeline in ("padded", "parallel"):
        model = model_of(pairs, pipeline=pipeline, loss=kind, samples=3)
        torch.manual_seed(7)
        term = loss(model, pairs)
        term.backward()
        actual[pipeline] = term.detach(), {name: part.grad for name, part in model.named_parameters()}
    assert_close(actual["padded"], actual["parallel"])


@pytest.mark.parametrize("pipeline", ["padded", "parallel"])
@pytest.mark.parametrize("kind", ["ce-full", "ce-sampled", "bpr-max"])
def test_every_loss_learns_the_planted_steps(kind: str, pipeline: str) -> None:
    split = split_dataset(steps_world(accounts=20, ring=4), SplitConfig())
    settings = {"width": 16, "loss": kind, "pipeline": pipeline, "samples": 10}
    training = TrainingConfig(epochs=25, batch_size=10, learning_rate=0.02, patience=25)
    model, _ = train_in_memory("gru4rec", split, settings, training)
    catalogue = Domain("all", 0, split.train.items)
    ranks = target_ranks("gru4rec", model, split.test, catalogue, learned=split.train.popularity > 0)
    assert (ranks <= 1).mean() >= 0.9


def test_only_the_newest_events_of_a_long_log_are_read() -> None:
    model = model_of(max_length=3)
    assert_close(scores(model, asked([5, 4, 0, 3, 1], [2])), scores(model, asked([0, 3, 1], [2])))


def test_a_long_log_is_trained_on_in_parts() -> None:
    """The log 0 3 1 4 1 in parts of three events: 0, then 3 1 4; all four steps stay targets."""
    model = model_of(max_length=3)
    examples = [([0], 3), ([3], 1), ([3, 1], 4), ([3, 1, 4], 1), ([5], 2), ([2], 0), ([2, 0], 5)]
    expected = [cross_entropy(slow_logits(model, history), tensor(target)) for history, target in examples]
    assert_close(loss(model), torch.stack(expected).mean())


def test_an_account_start_by_hand() -> None:
    model = model_of(account=True, width=2)
    start: Any = model.start
    with torch.no_grad():
        start.accounts[1] = tensor([1.0, -2.0])
        start.to_state.weight.copy_(tensor([[0.5, 0.0], [0.1, 0.2]]))
        start.to_state.bias.copy_(tensor([0.0, 0.4]))
    assert_close(start(tensor([1, UNSEEN])), tensor([[0.5, 0.1 - 0.4 + 0.4], [0.0, 0.4]]).tanh())


def test_folding_in_forgets_the_account() -> None:
    model = model_of(account=True).eval()
    nn.init.normal_(model.start.accounts)  # type: ignore[arg-type]
    nn.init.normal_(model.start.to_state.weight)  # type: ignore[union-attr, arg-type]
    known, nameless = asked([0, 3], account=1), asked([0, 3], account=UNSEEN)
    folded = model.fold_in_scores(model.encode(), known, CATALOGUE)
    assert_close(folded, scores(model, nameless))
    assert not torch.allclose(folded, scores(model, known))


def test_counts_of_a_sampled_loss_are_saved() -> None:
    model = model_of(loss="bpr-max", account=True)
    again = GRU4Rec.restore(model.config, model.state_dict())
    torch.manual_seed(3)
    first = loss(model)
    torch.manual_seed(3)
    assert_close(loss(again), first, rtol=0, atol=0)


def test_shared_embeddings_have_one_width() -> None:
    with pytest.raises(SettingError, match="state_width is 5"):
        model_of(state_width=5)


@pytest.mark.parametrize(
    "config",
    [
        GRU4RecConfig(),
        GRU4RecConfig(width=16, layers=2),
        GRU4RecConfig(width=7, embeddings="separate", state_width=5, layers=3, account=True, loss="bpr-max"),
    ],
)
def test_parameters_are_as_many_as_the_formula_says(config: GRU4RecConfig) -> None:
    model = GRU4Rec.build(config, LOGS)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(config, 3, 6)


def test_the_formula_by_hand() -> None:
    """8,367 items, D = H = 16: 8,367 · 17 + 3 · (2 · 16² + 2 · 16)."""
    assert parameter_count(GRU4RecConfig(width=16), accounts=13_714, items=8_367) == 143_871
