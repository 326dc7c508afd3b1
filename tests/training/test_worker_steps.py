"""Several workers compute what one process computes, with few exchanges, and a lost worker costs one epoch."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.data.account_parts import part_of_split
from lightgc2n.data.batches import TrainingBatch, training_batches
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.layers.workers import Workers
from lightgc2n.models.contract import Model
from lightgc2n.models.lightgc2n.ablations import VARIANTS
from lightgc2n.models.lightgc2n.account_parts import build_part, gather_checkpoint
from lightgc2n.training.checkpoints import checkpoint_tensors
from lightgc2n.training.loop import ALONE, OneProcess, Steps, TrainingConfig
from lightgc2n.training.run import new_model
from lightgc2n.training.worker_steps import ManyProcesses, PartOfAccounts, PartOfRows
from tests.training.together import Together
from tests.worlds import tastes_world

SPLIT = split_dataset(tastes_world(accounts=41, clusters=3, size=5, length=9), SplitConfig())
TRAINING = TrainingConfig(batch_size=7, learning_rate=0.01, weight_decay=0.01, clip=0.5)


@pytest.fixture(scope="module")
def two() -> Iterator[Together]:
    together = Together(2)
    yield together
    together.close()


@pytest.fixture(scope="module")
def three() -> Iterator[Together]:
    together = Together(3)
    yield together
    together.close()


def in_double(batch: TrainingBatch) -> TrainingBatch:
    """The batch with its shares rounded to float64 instead of float32."""
    share = (1 / (1 / batch.share.double()).round()) if len(batch.share) else batch.share.double()
    item_share = (batch.item_share.double() * batch.events).round() / batch.events
    return replace(batch, share=share, item_share=item_share)


def steps_of(
    model: Model, process: OneProcess, count: int, double: bool, training: TrainingConfig = TRAINING
) -> tuple[Steps, list[dict[str, float]]]:
    """The steps of a model after the first `count` batches, and the losses of each."""
    model.train()
    steps = Steps(model.double() if double else model, SPLIT.train, training, "cpu", process)
    torch.manual_seed(11)
    process.start_epoch(model, steps.optimizer, 0)
    losses = []
    for _, batch in zip(range(count), steps.batches(0), strict=False):
        terms = steps(in_double(batch) if double else batch)
        losses.append({name: float(term) for name, term in terms.items()})
    return steps, losses


def one_process(
    name: str, settings: dict[str, Any], count: int, double: bool, training: TrainingConfig = TRAINING
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    model = new_model(name, SPLIT, settings, seed=3)
    steps, losses = steps_of(model, ALONE, count, double, training)
    return checkpoint_tensors(model, steps.optimizer), losses


def by_accounts(
    workers: Workers, name: str, settings: dict[str, Any], count: int, double: bool
) -> tuple[dict[str, Tensor], list[dict[str, float]], dict[str, int]]:
    """The gathered checkpoint after some steps of one worker, the losses, and the bytes it exchanged."""
    part = part_of_split(SPLIT, workers.number, workers.count)
    torch.manual_seed(3)
    model = build_part(name, zoo.model_config(name, settings), part, workers)
    steps, losses = steps_of(model, PartOfAccounts(workers, part), count, double)
    exchanged = dict(workers.bytes)
    return gather_checkpoint(checkpoint_tensors(model, steps.optimizer), part.accounts, workers), losses, exchanged


def by_rows(
    workers: Workers, name: str, settings: dict[str, Any], count: int, training: TrainingConfig
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    model = new_model(name, SPLIT, settings, seed=3)
    steps, losses = steps_of(model, PartOfRows(workers), count, True, training)
    return checkpoint_tensors(model, steps.optimizer), losses


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        if name.endswith("key_value.bias"):  # the softmax of attention does not depend on it: Adam follows rounding
            continue
        assert_close(actual[name], tensor, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", VARIANTS)
def test_six_steps_of_two_workers_are_those_of_one_process(two: Together, name: str) -> None:
    """With dropout, clipping, weight decay and Adam; some parts of a batch have no row."""
    expected, losses = one_process(name, {}, 6, double=True)
    (actual, first, _), (nothing, second, _) = two.run(by_accounts, name, {}, 6, True)
    assert_same(actual, expected, 1e-12)
    assert nothing == {}
    assert first == second
    assert [[pytest.approx(value, abs=1e-12) for value in step.values()] for step in losses] == [
        list(step.values()) for step in first
    ]


def test_three_workers_do_too(three: Together) -> None:
    expected, _ = one_process("lightgc2n", {"contrast_scale": "sum", "graph_events": "inputs"}, 6, double=True)
    actual, _, _ = three.run(by_accounts, "lightgc2n", {"contrast_scale": "sum", "graph_events": "inputs"}, 6, True)[0]
    assert_same(actual, expected, 1e-12)


def test_float32_layers_agree_to_a_millionth(two: Together) -> None:
    expected, losses = one_process("lightgc2n", {}, 6, double=False)
    actual, found, _ = two.run(by_accounts, "lightgc2n", {}, 6, False)[0]
    assert_same(layers_of(actual), layers_of(expected), 1e-6)
    for step, other in zip(losses, found, strict=True):
        assert step == pytest.approx(other, abs=1e-6)


def layers_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The item capsules of every layer, by the weights of a checkpoint."""
    weights = {name: tensor for name, tensor in tensors.items() if not name.startswith("optimizer.")}
    model = zoo.entry_of("lightgc2n").restore(zoo.model_config("lightgc2n"), weights).eval()
    with torch.no_grad():
        return {str(number): layer for number, layer in enumerate(model.encode().layers)}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("lightgc2n", {}),
        ("lightgc2n", {"layers": 3, "capsule_width": 8}),
        ("lightgc2n-wo-c", {}),
        ("lightgc2n-wo-a", {}),
    ],
)
def test_the_bytes_of_a_step_are_those_of_the_formula(two: Together, name: str, settings: dict[str, Any]) -> None:
    """4 · (M + 2 · L · M · d2 + the shared weights + 1 + the terms of the loss), as docs/cluster.md gives it."""
    steps = 3
    config, items = zoo.model_config(name, settings), SPLIT.train.items
    model = new_model(name, SPLIT, settings, seed=3)
    shared = sum(weight.numel() for weight in model.parameters()) - SPLIT.train.accounts * config.embedding_width
    layers = 0 if name == "lightgc2n-wo-a" else config.layers
    terms = 1 if name == "lightgc2n-wo-a" else 2
    for _, _, exchanged in two.run(by_accounts, name, settings, steps, False):
        assert exchanged.pop("graph") == 8 * items  # once
        assert exchanged.pop("items") == steps * 4 * items
        assert exchanged.pop("layers", 0) == steps * 4 * 2 * layers * items * config.capsule_width
        assert exchanged.pop("gradients") == steps * 4 * (shared + 1 + terms)
        assert exchanged == {}


WITHOUT_CHANCE = {"lightgc2n-plus": {"dropout": 0.0}, "sasrec": {"dropout": 0.0}}


@pytest.mark.parametrize("name", WITHOUT_CHANCE)
def test_rows_of_a_batch_on_two_workers_add_up(two: Together, name: str) -> None:
    """Without dropout, which every worker draws for its own rows, the result is that of one process."""
    expected, losses = one_process(name, WITHOUT_CHANCE[name], 4, double=True)
    (actual, first), (other, second) = two.run(by_rows, name, WITHOUT_CHANCE[name], 4, TRAINING)
    assert_same(actual, expected, 1e-12)
    assert_same(other, actual, 0)
    assert first == second
    assert first[-1]["next_item"] == pytest.approx(losses[-1]["next_item"], abs=1e-12)


def test_a_worker_without_a_row_adds_nothing(three: Together) -> None:
    """82 batches of one row: two of three workers have none."""
    one_row = replace(TRAINING, batch_size=1)
    expected, _ = one_process("sasrec", WITHOUT_CHANCE["sasrec"], 5, True, one_row)
    actual, _ = three.run(by_rows, "sasrec", WITHOUT_CHANCE["sasrec"], 5, one_row)[0]
    assert_same(actual, expected, 1e-12)


def test_no_two_workers_draw_the_same_dropout(two: Together) -> None:
    first, second = two.run(numbers_after_the_start)
    assert first != second


def numbers_after_the_start(workers: Workers) -> list[float]:
    model = new_model("sasrec", SPLIT, {}, seed=3)
    process: ManyProcesses = PartOfRows(workers)
    torch.manual_seed(5)
    process.start_epoch(model, Steps(model, SPLIT.train, TRAINING, "cpu", process).optimizer, 0)
    return torch.rand(3).tolist()


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_parts_of_a_batch_are_the_batch(workers: int) -> None:
    parts = [part_of_split(SPLIT, number, workers) for number in range(workers)]
    whole = training_batches(SPLIT.train, 7, np.random.default_rng(2))
    divided = zip(*(part.batches(7, np.random.default_rng(2)) for part in parts), strict=True)
    for batch, pieces in zip(whole, divided, strict=True):
        places = torch.cat([piece.places for piece in pieces])
        assert places.sort().values.tolist() == list(range(len(batch.at)))
        for values in ("target", "share"):
            together = torch.cat([getattr(piece, values) for piece in pieces])[places.argsort()]
            assert torch.equal(together, getattr(batch, values))
        for number, piece in enumerate(pieces):
            assert piece.whole.tolist() == [len(batch.at), int(batch.seen.sum())]
            assert set((piece.account * workers + number).tolist()) <= set(batch.account.tolist())


def test_a_part_holds_its_own_accounts_and_no_test_target() -> None:
    for number in range(3):
        part = part_of_split(SPLIT, number, 3)
        assert part.train.accounts == len(range(number, 41, 3))
        for place, account in enumerate(part.train.sequence_accounts * 3 + number):
            row = int(np.flatnonzero(SPLIT.train.sequence_accounts == account)[0])
            expected = SPLIT.train.events[SPLIT.train.offsets[row] : SPLIT.train.offsets[row + 1]]
            assert (
                part.train.events[part.train.offsets[place] : part.train.offsets[place + 1]].tolist()
                == expected.tolist()
            )
        own = np.flatnonzero(SPLIT.validation.owner % 3 == number)
        assert (part.validation.owner == SPLIT.validation.owner[own]).all()
        assert (part.validation.account * 3 + number == SPLIT.validation.account[own]).all()
        for query, row in enumerate(own):
            shown = slice(SPLIT.validation.start[row], SPLIT.validation.stop[row])
            actual = part.validation.events[part.validation.start[query] : part.validation.stop[query]]
            assert actual.tolist() == SPLIT.validation.events[shown].tolist()
            assert part.validation.events[part.validation.target_event[query]] == SPLIT.validation.target[row]
        held = len(part.train.events) + len(part.validation.events)
        assert held < len(SPLIT.validation.events)


def test_models_with_accounts_are_not_divided_by_rows() -> None:
    for name, entry in zoo.ZOO.items():
        if entry.is_simple:
            assert entry.divided_by == ""
        else:
            kinds = set(zoo.build(name, SPLIT.train).warm_start_tensors().values())
            assert (
                entry.divided_by
                in {"accounts": ("accounts", ""), "rows": ("rows", "")}["accounts" if "accounts" in kinds else "rows"]
            )
