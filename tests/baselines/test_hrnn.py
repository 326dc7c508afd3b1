"""HRNN: its feeds by slow loops, how far gradients reach, kept states, and how many parameters it has."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn, tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.baselines.hrnn import HRNN, HRNNConfig, RowsAsSessions, widths_of
from lightgc2n.data.batches import Batch, TrainingBatch, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, SplitConfig, Training, split_dataset
from lightgc2n.errors import SettingError
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_in_memory
from tests.baselines.test_gru4rec import asked
from tests.graph.logs import training_batch, training_of
from tests.worlds import steps_world


def parameter_count(config: HRNNConfig, accounts: int, items: int) -> int:
    """M(D + 1), M·H if separate, 3H(D + H + 2), of the user 3U(H + U + 2) + (U + 1)H; in all 3UH, or 2UH as the code.

    Reset has H parameters in place of the user's. Kept states are none.
    """
    width, session, user = widths_of(config)
    tables = items * (width + 1) + (items * session if config.embeddings == "separate" else 0)
    gates = {"init": 0, "all": 3 if config.all_gates else 2}[config.variant]
    level = 3 * user * (session + user + 2) + (user + 1) * session
    return (
        tables
        + 3 * session * (width + session + 2)
        + gates * user * session
        + (session if config.feed == "reset" else level)
    )


ITEMS = 9
CATALOGUE = Domain("all", 0, ITEMS)
LOGS = training_of([[0, 3, 1, 4, 1, 8, 6], [5, 2], [2, 0, 5]], items=ITEMS)
STILL = {"user_dropout": 0.0, "session_dropout": 0.0, "start_dropout": 0.0}


def model_of(train: Training = LOGS, **settings: Any) -> HRNN:
    torch.manual_seed(0)
    model = zoo.build("hrnn", train, {"width": 4, **STILL, **settings})
    assert isinstance(model, HRNN)
    return model


def scores(model: HRNN, batch: Batch) -> Tensor:
    return model.eval().scores(model.encode(), batch, CATALOGUE)


def loss(model: HRNN, batch: TrainingBatch) -> Tensor:
    return model.losses(model.encode(), batch)["next_item"]


@torch.no_grad()
def slow_logits(model: HRNN, history: list[int], length: int) -> Tensor:
    """Event by event; the user's state moves where a session of `length` events has ended and another event comes."""
    items, level = model.items(), model.feed.level
    user, state = model.feed.begin(tensor([0]))
    for place, item in enumerate(history):
        if place > 0 and place % length == 0:
            user, state = level(state, user)  # type: ignore[operator]
        state = model.session(items.inputs[item][None, None], user, state)[:, 0]
    return items.outputs @ state[0] + items.bias


PARTS = [{}, {"variant": "init"}, {"all_gates": False}, {"session_width": 3, "user_width": 2}, {"embeddings": "shared"}]


@pytest.mark.parametrize("settings", PARTS)
def test_scores_are_those_of_a_slow_loop(settings: dict[str, Any]) -> None:
    model = model_of(session_length=2, **settings)
    histories = [[0, 3, 1, 7, 2], [4], [2, 2, 5, 1], []]
    expected = torch.stack([slow_logits(model, history, length=2) for history in histories])
    assert_close(scores(model, asked(*histories)), expected)


def test_the_loss_is_that_of_a_slow_loop() -> None:
    model = model_of(session_length=2)
    logs = [[0, 3, 1, 4, 1, 8, 6], [5, 2], [2, 0, 5]]
    examples = [(log[:end], log[end]) for log in logs for end in range(1, len(log))]
    expected = [cross_entropy(slow_logits(model, history, 2), tensor(target)) for history, target in examples]
    assert_close(loss(model, next(training_batches(LOGS, 100))), torch.stack(expected).mean())


def test_the_first_session_starts_at_exactly_zero() -> None:
    model = model_of(variant="init")
    nn.init.normal_(model.feed.level.to_start.bias)  # type: ignore[union-attr, arg-type]
    user, start = model.feed.begin(tensor([0, UNSEEN]))
    assert not user.any()
    assert not start.any()


def test_reset_is_gru4rec_with_a_learned_start() -> None:
    torch.manual_seed(0)
    plain = zoo.build("gru4rec", LOGS, {"width": 4, "embeddings": "separate"}).eval()
    model = model_of(feed="reset", variant="init")
    batch = asked([0, 3, 1, 7, 2], [4])
    expected = plain.scores(plain.encode(), batch, CATALOGUE)
    assert_close(scores(model, batch), expected, rtol=0, atol=0)
    nn.init.constant_(model.feed.start, 0.5)  # type: ignore[arg-type]
    assert not torch.allclose(scores(model, batch), expected)


def gradient_at_first_items(model: HRNN, batches: list[TrainingBatch]) -> Tensor:
    """The last batch's gradient at the inputs of items 0, 1, 2, which only the first session has."""
    for batch in batches[:-1]:
        loss(model, batch)
    loss(model, batches[-1]).backward()
    gradient = model.items.inputs.grad
    assert gradient is not None
    return gradient[:3]


def test_kept_states_are_values_and_states_within_a_row_are_not() -> None:
    first, second = training_batch([[0, 1, 2, 3]], "last"), training_batch([[4, 5, 6, 7]], "last")
    together = training_batch([[0, 1, 2, 4, 5, 6, 7]], "last")
    assert not gradient_at_first_items(model_of(feed="state"), [first, second]).any()
    in_one_row = gradient_at_first_items(model_of(feed="split", session_length=3), [together])
    assert (in_one_row.abs().sum(dim=1) > 0).all()


def test_a_second_row_continues_from_the_state_of_the_first() -> None:
    """Kept states give what the same events give in one row, and train the user's unit on the way."""
    kept, split = model_of(feed="state"), model_of(feed="split", session_length=3)
    loss(kept, training_batch([[0, 1, 2, 3]]))
    assert_close(scores(kept, asked([4, 5])), scores(split, asked([0, 1, 2, 4, 5])))
    loss(kept.train(), training_batch([[4, 5, 6]])).backward()
    gradient = kept.feed.level.cell.weight_ih.grad  # type: ignore[union-attr]
    assert gradient is not None
    assert gradient.abs().max() > 0  # type: ignore[operator]


def test_states_are_read_in_scoring_and_never_written() -> None:
    model = model_of(feed="state")
    loss(model, next(training_batches(LOGS, 100)))
    batch = asked([0, 3], [8], account=1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = scores(model, batch)
    assert_close(scores(model, batch), first, rtol=0, atol=0)
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    stranger = scores(model, asked([0, 3], [8], account=UNSEEN))
    assert not torch.allclose(first, stranger)
    assert_close(model.fold_in_scores(model.encode(), batch, CATALOGUE), stranger)


def test_an_epoch_starts_without_memory() -> None:
    model = model_of(feed="state")
    fresh = scores(model, asked([0, 3]))
    loss(model.train(), next(training_batches(LOGS, 100)))
    assert not torch.allclose(scores(model, asked([0, 3])), fresh)
    model.start_epoch(1)
    assert_close(scores(model, asked([0, 3])), fresh)


def test_of_several_rows_of_an_account_the_last_is_kept() -> None:
    feed = RowsAsSessions(HRNNConfig(width=1), accounts=3)
    feed.store(tensor([2, 0, 2]), tensor([[1.0], [2.0], [3.0]]), tensor([[4.0], [5.0], [6.0]]))
    assert feed.users.tolist() == [[2.0], [0.0], [3.0]]
    assert feed.sessions.tolist() == [[5.0], [0.0], [6.0]]
    assert feed.met.tolist() == [True, False, True]


def test_kept_states_are_saved() -> None:
    model = model_of(feed="state", loss="top1")
    loss(model, next(training_batches(LOGS, 100)))
    again = HRNN.restore(model.config, model.state_dict())
    assert_close(scores(again, asked([0, 3])), scores(model, asked([0, 3])), rtol=0, atol=0)


@pytest.mark.parametrize("settings", [{"loss": "top1"}, {"loss": "top1", "samples": 5}, {"all_gates": False}])
def test_other_settings_learn_the_planted_steps(settings: dict[str, Any]) -> None:
    split = split_dataset(steps_world(accounts=20, ring=4), SplitConfig())
    training = TrainingConfig(epochs=25, batch_size=10, learning_rate=0.02, patience=25)
    _, progress = train_in_memory("hrnn", split, {"width": 16, **settings}, training)
    assert progress.best_value >= 0.95  # MRR of the validation events, whose steps are as certain as the others


@pytest.mark.parametrize(
    "config",
    [
        HRNNConfig(),
        HRNNConfig(width=7, session_width=5, user_width=3, variant="init"),
        HRNNConfig(width=7, session_width=5, user_width=3, all_gates=False, feed="state", loss="top1"),
        HRNNConfig(width=6, user_width=3, embeddings="shared", feed="reset"),
    ],
)
def test_parameters_are_as_many_as_the_formula_says(config: HRNNConfig) -> None:
    model = HRNN.build(config, LOGS)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(config, 3, ITEMS)


def test_the_formula_by_hand() -> None:
    """8,367 items, all widths 16; the papers' units have one bias a gate, PyTorch's six gates have two."""
    for variant, number in {"init": 279_551, "all": 280_319}.items():
        config = HRNNConfig(width=16, variant=variant)
        assert parameter_count(config, accounts=13_714, items=8_367) == number + 6 * 16


def test_shared_embeddings_have_one_width() -> None:
    with pytest.raises(SettingError, match="session_width is 5"):
        model_of(embeddings="shared", session_width=5)
