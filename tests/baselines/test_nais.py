"""NAIS by hand and by double loops."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines import nais
from lightgc2n.baselines.nais import NAIS, ConcatAttention, NAISConfig, ProductAttention
from lightgc2n.data.batches import Batch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.devices import CPU, DEVICES
from lightgc2n.errors import SettingError
from tests.graph.logs import training_of
from tests.restoring import saved_and_restored
from tests.worlds import WORLDS


def parameter_count(config: NAISConfig, accounts: int, items: int) -> int:
    """2·M·D + M, and for the attention A·D + 2·A (prod), 2·A·D + 2·A (concat) or nothing; accounts have none."""
    inputs = {"prod": config.width, "concat": 2 * config.width, "none": 0}[config.attention]
    return 2 * items * config.width + items + (inputs + 2) * config.attention_width * (inputs > 0)


LOGS = [[2, 1, 2, 0, 2], [3, 3, 1], [4, 5, 6, 6]]
TRAIN = training_of(LOGS, items=7)
HISTORIES = [[4, 4, 2], [6], [1, 3, 5, 0], []]
ATTENTIONS = ["prod", "concat", "none"]


def model_of(train: Any = TRAIN, **changes: Any) -> NAIS:
    torch.manual_seed(0)
    model = zoo.build("nais", train, {"width": 4, "attention_width": 3, **changes})
    assert isinstance(model, NAIS)
    for parameter in model.parameters():  # away from the tiny first values, so that a mistake would show
        torch.nn.init.normal_(parameter, std=0.7)
    return model.double().eval()


def batch_of(histories: list[list[int]], accounts: list[int] | None = None) -> Batch:
    widest = max(1, max(len(log) for log in histories))
    padded = tensor([log + [0] * (widest - len(log)) for log in histories])
    return Batch(tensor(accounts or [0] * len(histories)), padded, tensor([len(log) for log in histories]))


def scores(model: NAIS, histories: list[list[int]], accounts: list[int] | None = None) -> Tensor:
    return model.scores(None, batch_of(histories, accounts), Domain("all", 0, len(model.item_bias)))


def double_loop(model: NAIS, history: list[int], item: int) -> Tensor:
    """s(S, i), vote by vote."""
    config, attention = model.config, model.attention
    heard = [other for other in history if not (config.exclude_self and other == item)]
    candidate, total, votes = model.candidates[item], tensor(0.0).double(), tensor(0.0).double()
    for other in heard:
        voter, f = model.voters[other], tensor(0.0).double()
        if config.attention == "prod":
            f = attention.out @ torch.relu(attention.weight @ (candidate * voter) + attention.bias)
        if config.attention == "concat":
            f = attention.out @ torch.relu(attention.weight @ torch.cat([candidate, voter]) + attention.bias)
        total, votes = total + f.exp(), votes + f.exp() * (candidate @ voter)
    if not heard:
        return model.item_bias[item].detach()
    exponent = 0 if config.attention == "none" else config.smoothing
    return (len(heard) ** -config.length_exponent * votes / total**exponent + model.item_bias[item]).detach()


def test_attention_by_hand() -> None:
    candidate, voter = tensor([1.0, 2.0]), tensor([3.0, -1.0])  # their product: 3, -2
    product, concat = ProductAttention(2, 2), ConcatAttention(4, 1)
    with torch.no_grad():
        product.weight.copy_(tensor([[1.0, 1.0], [1.0, 2.0]]))
        product.bias.copy_(tensor([0.5, 0.5]))
        product.out.copy_(tensor([2.0, 9.0]))
        concat.weight.copy_(tensor([[1.0, 10.0, 100.0, 1000.0]]))
        concat.bias.copy_(tensor([800.0]))
    assert_close(product(candidate, voter), tensor(2.0 * 1.5))  # the second unit is -0.5, and silent
    assert_close(concat(candidate, voter), tensor(1.0 + 20.0 + 300.0 - 1000.0 + 800.0))


def test_a_score_by_hand() -> None:
    """Votes q·p of 2 and 6 with f = 0 and ln 3: (1·2 + 3·6) / sqrt(1 + 3) + bias."""
    model = model_of(training_of([[0, 1, 2]], items=3), width=1, attention_width=1)
    with torch.no_grad():
        model.candidates.copy_(tensor([[0.0], [0.0], [2.0]]))
        model.voters.copy_(tensor([[1.0], [3.0], [0.0]]))
        model.item_bias.copy_(tensor([0.0, 0.0, 0.25]))
        model.attention.weight.fill_(1.0)
        model.attention.bias.fill_(-2.0)  # ReLU(2 - 2) and ReLU(6 - 2)
        model.attention.out.fill_(math.log(3) / 4)
    assert_close(scores(model, [[0, 1]])[0, 2], tensor((2 + 3 * 6) / 2 + 0.25).double())


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("exclude_self", [False, True])
def test_factored_scores_are_those_of_a_double_loop(attention: str, exclude_self: bool, monkeypatch: Any) -> None:
    monkeypatch.setitem(DEVICES, "cpu", replace(CPU, pairs_at_once=100))  # several blocks of candidates
    random = np.random.default_rng(0)
    histories = [random.integers(50, size=size).tolist() for size in (1, 4, 9, 30)] + [[], [7, 7, 7]]
    train = training_of(histories, items=50)
    model = model_of(train, attention=attention, exclude_self=exclude_self, length_exponent=0.3)
    expected = torch.stack(
        [torch.stack([double_loop(model, history, item) for item in range(50)]) for history in histories]
    )
    assert_close(scores(model, histories), expected, rtol=1e-10, atol=1e-10)
    candidates = torch.arange(50).expand(6, -1)
    batch = batch_of(histories)
    assert_close(model.of_pairs(candidates, batch.history, batch.known).detach(), expected, rtol=1e-10, atol=1e-10)


def test_without_attention_s_voice_it_is_fism_times_a_power_of_the_length() -> None:
    model, fism = model_of(), model_of(attention="none")
    torch.nn.init.zeros_(model.attention.out)
    for name in ("candidates", "voters", "item_bias"):
        getattr(fism, name).data.copy_(getattr(model, name))
    length = tensor([[3.0], [1.0], [4.0], [1.0]])  # of an empty history nothing is heard anyway
    expected = (scores(fism, HISTORIES) - fism.item_bias) * length.pow(-0.5) + fism.item_bias
    assert_close(scores(model, HISTORIES), expected.detach())


def test_order_does_not_matter() -> None:
    assert_close(scores(model_of(), [[1, 3, 5, 0]]), scores(model_of(), [[5, 0, 3, 1]]))


def test_an_empty_history_leaves_the_item_bias() -> None:
    model = model_of()
    assert_close(scores(model, [[], []]), model.item_bias.detach().expand(2, -1))
    only_itself = model_of(exclude_self=True)
    assert_close(scores(only_itself, [[3, 3]])[0, 3], only_itself.item_bias[3].detach())


def test_a_loud_vote_that_is_not_heard_leaves_no_trace() -> None:
    """In float32, e^10 taken away from e^10 + 1 would leave a tenth of a per cent, and from itself no zero."""
    model = model_of(exclude_self=True).float()
    with torch.no_grad():
        model.voters.copy_(model.candidates)
        model.attention.weight.fill_(1.0)
        model.attention.bias.fill_(3.0)  # f(i, i) = Σ_a ReLU(|p_i|² + 3)
        model.attention.out.fill_(1.0)
    histories = [[3, 3, 3], [3, 3, 3, 1], [0, 1, 2, 3, 3, 3, 3]]
    exact = model_of(exclude_self=True)
    exact.load_state_dict(model.state_dict())
    expected = [[double_loop(exact, history, item) for item in range(7)] for history in histories]
    assert_close(scores(model, histories).double(), tensor(expected).double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("feed", ["sequence", "set"])
def test_each_event_or_each_item_votes_once(feed: str) -> None:
    model = model_of(feed=feed)
    same = torch.allclose(scores(model, [[4, 4, 2]]), scores(model, [[4, 2]]))
    assert same == (feed == "set")


def test_only_the_newest_events_vote() -> None:
    model = model_of(max_length=2)
    assert_close(scores(model, [[6, 6, 1, 3]]), scores(model, [[1, 3]]))


def test_all_that_an_account_holds_can_vote(tmp_path: Path) -> None:
    model, plain = model_of(feed="account", exclude_self=True), model_of(feed="set", exclude_self=True)
    with_history = scores(model, [[6], [6], []], [1, -1, 0])
    assert_close(with_history, scores(plain, [[1, 3, 6], [6], [0, 1, 2]]))
    domain = Domain("all", 0, 7)
    assert_close(model.fold_in_scores(None, batch_of([[6]], [1]), domain), scores(plain, [[6]]))
    again: Any = saved_and_restored("nais", model.float(), tmp_path)
    assert_close(scores(again, [[6]], [1]), scores(model, [[6]], [1]), rtol=0, atol=0)


def test_the_target_must_not_vote_for_itself() -> None:
    with pytest.raises(SettingError, match="exclude_self=true"):
        zoo.build("nais", TRAIN, {"feed": "account"})


def fixed_candidates(target: Tensor, items: int, wrong: int) -> Tensor:
    return (target[:, None] + 2 * torch.arange(1 + wrong)) % items


@pytest.mark.parametrize("loss", ["pointwise", "softmax"])
@pytest.mark.parametrize("pairs", [1, 40, 10_000])
def test_the_loss_is_that_of_a_slow_loop(loss: str, pairs: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(nais, "candidates_of", fixed_candidates)
    monkeypatch.setitem(DEVICES, "cpu", replace(CPU, pairs_at_once=pairs))
    model = model_of(negatives=2, loss=loss, max_length=3, item_penalty=0.1, attention_penalty=0.2)
    terms = []
    for log in LOGS:
        for place in range(1, len(log)):
            candidates = fixed_candidates(tensor([log[place]]), 7, 2)[0].tolist()
            actual = torch.stack([double_loop(model, log[max(0, place - 3) : place], item) for item in candidates])
            share = torch.sigmoid(actual)
            alone = -torch.stack([share[0], 1 - share[1], 1 - share[2]]).log()
            terms.append(alone.mean() if loss == "pointwise" else -actual.log_softmax(dim=0)[0])
    losses = model.losses(None, next(training_batches(TRAIN, 5)))
    assert_close(losses["next_item"].detach(), torch.stack(terms).mean())
    tables = model.candidates.square().sum() + model.voters.square().sum()
    expected = 0.1 * tables + 0.2 * model.attention.weight.square().sum()
    assert_close(losses["penalty"].detach(), expected.detach())


def test_gradients_do_not_depend_on_the_blocks(monkeypatch: Any) -> None:
    monkeypatch.setattr(nais, "candidates_of", fixed_candidates)
    actual = []
    for pairs in (1, 10_000):
        monkeypatch.setitem(DEVICES, "cpu", replace(CPU, pairs_at_once=pairs))
        model = model_of()
        model.losses(None, next(training_batches(TRAIN, 5)))["next_item"].backward()
        actual.append([parameter.grad for parameter in model.parameters()])
    assert_close(actual[0], actual[1])


@pytest.mark.parametrize(("attention", "width"), [("prod", 5), ("prod", 16), ("concat", 5), ("none", 6)])
def test_the_parameters_are_those_of_the_formula(attention: str, width: int) -> None:
    model = model_of(attention=attention, width=width, attention_width=3)
    assert sum(value.numel() for value in model.parameters()) == parameter_count(model.config, accounts=3, items=7)


@pytest.mark.parametrize(("attention", "expected"), [("prod", 276_399), ("concat", 276_655)])
def test_the_formula_on_the_paper_s_data(attention: str, expected: int) -> None:
    """HVIDEO's E domain: 8,367 items at width 16."""
    assert parameter_count(NAISConfig(attention=attention), 13_714, 8_367) == expected


def test_pretraining_is_training_with_equal_votes() -> None:
    split = split_dataset(WORLDS["tastes"], SplitConfig())
    batch = next(training_batches(split.train, 16))

    def loss(epoch: int, **settings: Any) -> tuple[float, bool]:
        torch.manual_seed(0)
        model = zoo.build("nais", split.train, {"attention_penalty": 0.0, **settings}).train()
        model.start_epoch(epoch)
        if settings.get("attention") == "none":
            model.smoothing = model.config.smoothing  # FISM, its votes divided as those of NAIS
        torch.manual_seed(1)
        terms = model.losses(model.encode(), batch)
        terms["next_item"].backward()
        return float(terms["next_item"].detach()), any(p.grad is not None for p in model.attention.parameters())

    assert loss(0, pretraining=2) == (pytest.approx(loss(0, attention="none")[0], rel=1e-6), False)
    assert loss(2, pretraining=2) == loss(0)
    assert loss(0)[1]
