"""What every model of the zoo must do, floors included."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.data.batches import Batch, LabelledBatch, make_batch, query_batches, training_batches
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import UNSEEN, Split, SplitConfig, split_dataset
from lightgc2n.metrics.ranks import target_ranks
from lightgc2n.models.contract import Model
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_in_memory
from tests.restoring import saved_and_restored
from tests.worlds import WORLDS, dataset_of

# world -> cut-off, and the least share of targets within it
PASS_MARKS = {"steps": (1, 0.9), "tastes": (5, 0.9), "favourites": (5, 0.8)}
SEEN = [(name, world) for name, entry in zoo.ZOO.items() for world in sorted(entry.sees)]

pytestmark = pytest.mark.filterwarnings("error")


FLOORS = [name for name, entry in zoo.ZOO.items() if entry.is_simple]
TRAINED = [name for name in zoo.ZOO if name not in FLOORS]
QUICK = TrainingConfig(epochs=15, batch_size=8, learning_rate=0.02, patience=15)
TRAINED_WITH = {
    # With one table to read and to score with it throws itself about at the quick rate.
    "disenreason-style": replace(QUICK, learning_rate=0.005),
    # Nothing of a node passes a layer by itself, so at a high rate all become one: small steps, and more of them.
    "tgsrec": replace(QUICK, learning_rate=0.002, epochs=30, patience=30),
}


def fitted(name: str, split: Split) -> Model:
    """The model built, trained if it can be, and calibrated."""
    if name in TRAINED:
        return train_in_memory(name, split, {}, TRAINED_WITH.get(name, QUICK))[0]
    model = zoo.build(name, split.train)

    def validation() -> Iterator[LabelledBatch]:
        return query_batches(split.validation, 64)

    model.calibrate(validation)
    return model


@cache
def fitted_in(name: str, world: str) -> tuple[Model, Split]:
    split = split_dataset(WORLDS[world], SplitConfig())
    return fitted(name, split), split


def exactness(name: str) -> dict[str, float]:
    """Floors count in float64; what is trained sums in float32, in an order that may vary."""
    return {"rtol": 1e-12, "atol": 1e-12} if name in FLOORS else {"rtol": 1e-4, "atol": 1e-5}


def catalogue(split: Split) -> Domain:
    return Domain("all", 0, split.train.items)


def scores(model: Model, batch: Batch, split: Split) -> torch.Tensor:
    return model.scores(model.encode(), batch, catalogue(split))


@pytest.mark.parametrize(("name", "world"), SEEN)
def test_learns_the_worlds_it_can_see(name: str, world: str) -> None:
    model, split = fitted_in(name, world)
    ranks = target_ranks(name, model, split.test, catalogue(split), learned=split.train.popularity > 0)
    cutoff, least = PASS_MARKS[world]
    assert (ranks <= cutoff).mean() >= least


@pytest.mark.parametrize("name", ["popularity", "recency"])
def test_the_steps_world_cannot_be_learned_without_order(name: str) -> None:
    """The planted world is a test only if a model that misses its rule fails it."""
    split = split_dataset(WORLDS["steps"], SplitConfig())
    ranks = target_ranks(name, fitted(name, split), split.test, catalogue(split), learned=split.train.popularity > 0)
    assert (ranks <= 1).mean() < 0.5


@pytest.mark.parametrize("name", zoo.ZOO)
def test_padding_changes_nothing(name: str) -> None:
    model, split = fitted_in(name, "tastes")
    batch = make_batch(split.test.select(np.arange(7)))
    wider = torch.cat([batch.history, torch.full((7, 5), 3)], dim=1)
    assert_close(scores(model, replace(batch, history=wider), split), scores(model, batch, split), **exactness(name))


@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_batch_gives_what_single_queries_give(name: str) -> None:
    model, split = fitted_in(name, "tastes")
    together = scores(model, make_batch(split.test.select(np.arange(9))), split)
    for row in range(9):
        alone = scores(model, make_batch(split.test.select(np.array([row]))), split)
        assert_close(together[row : row + 1], alone, **exactness(name))


@pytest.mark.parametrize("name", FLOORS)
def test_floors_have_nothing_to_train(name: str) -> None:
    assert list(fitted_in(name, "tastes")[0].parameters()) == []


@pytest.mark.parametrize("name", TRAINED)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    split = split_dataset(WORLDS["tastes"], SplitConfig())
    torch.manual_seed(0)
    model = zoo.build(name, split.train)
    terms = model.losses(model.encode(), next(training_batches(split.train, 1000)))
    torch.stack(list(terms.values())).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("name", zoo.ZOO)
def test_save_and_load_give_equal_scores(name: str, tmp_path: Path) -> None:
    model, split = fitted_in(name, "tastes")
    again = saved_and_restored(name, model, tmp_path)
    batch = make_batch(split.test)
    assert again.config == model.config
    assert_close(scores(again, batch, split), scores(model, batch, split), rtol=0, atol=0)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_an_unseen_account_is_scored_by_its_history(name: str) -> None:
    model, split = fitted_in(name, "tastes")
    known = split.test.select(np.arange(5))
    nameless = replace(known, account=np.full(5, UNSEEN, dtype=np.int32))
    actual = scores(model, make_batch(nameless), split)
    assert torch.isfinite(actual).all()
    if name in FLOORS and name != "account-markov":  # the only floor that looks at the account itself
        assert_close(actual, scores(model, make_batch(known), split), rtol=0, atol=0)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_history_may_hold_an_item_without_training_events(name: str) -> None:
    """z occurs only as the validation event, so the test history ends with an item that nobody learned."""
    data = dataset_of([("a", "x y x z y"), ("b", "x y x y x"), ("c", "y x y x y")])
    split = split_dataset(data, SplitConfig())
    row = int(np.flatnonzero(split.test.owner == 0)[0])
    query = split.test.select(np.array([row]))
    assert split.train.popularity[data.item_index["z"]] == 0
    actual = scores(fitted(name, split), make_batch(query), split)
    assert torch.isfinite(actual).all()
    assert actual.shape == (1, 3)


@pytest.mark.parametrize("name", FLOORS)
def test_renaming_items_only_permutes_scores(name: str) -> None:
    logs = [("a", "p q r p q"), ("b", "q r p q r"), ("c", "r r q p p"), ("d", "p r p r q")]
    plain = split_dataset(dataset_of(logs, items="p q r"), SplitConfig())
    renamed = split_dataset(dataset_of(logs, items="r p q"), SplitConfig())
    first = scores(fitted(name, plain), make_batch(plain.test), plain)
    second = scores(fitted(name, renamed), make_batch(renamed.test), renamed)
    assert_close(first, second[:, [1, 2, 0]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_domain_gets_its_own_columns(name: str) -> None:
    model, split = fitted_in(name, "tastes")
    batch = make_batch(split.test.select(np.arange(3)))
    part = model.scores(model.encode(), batch, Domain("part", 4, 9))
    assert_close(part, scores(model, batch, split)[:, 4:9], rtol=0, atol=0)


def test_old_names_of_models_are_aliases() -> None:
    assert zoo.choose_models("floors") == zoo.choose_models("simple") == FLOORS
    assert zoo.entry_of("psjnet-1") is zoo.entry_of("pi-net")
    assert "psjnet-1" not in zoo.choose_models("all")
