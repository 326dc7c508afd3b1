"""From a run on to newer data: rows find their places by id, what is new starts from the mean."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from lightgc2n import zoo
from lightgc2n.data.batches import Batch, make_batch
from lightgc2n.data.dataset import Dataset, Domain, write_dataset
from lightgc2n.data.splits import Split, SplitConfig, split_dataset
from lightgc2n.errors import DataError, OutputError, SettingError
from lightgc2n.models.contract import Model
from lightgc2n.training.checkpoints import (
    BEST,
    WHOLE,
    Progress,
    read_rows,
    save_checkpoint,
    warm_start,
    write_vocabularies,
)
from lightgc2n.training.loop import TrainingConfig, train
from lightgc2n.training.run import new_model, train_run
from lightgc2n.training.runs import RunPlan, load_run, read_run
from tests.cli.test_commands import run as command
from tests.worlds import dataset_of, tastes_world

TRAINED = [name for name, entry in zoo.ZOO.items() if not entry.is_simple]
OLD = dataset_of([("a", "p q r p q r"), ("b", "q r q r q r"), ("c", "p p q p r p")], items="p q r")
# The same logs with all ids in another order, and then with somebody and something new among them.
SHUFFLED = dataset_of([("c", "p p q p r p"), ("a", "p q r p q r"), ("b", "q r q r q r")], items="r p q")
GROWN = dataset_of(
    [("new", "p s q s p s"), ("c", "p p q p r p"), ("b", "q r q r q r s q"), ("d", "s p s p")], items="s r q p"
)
FEW = TrainingConfig(epochs=3, batch_size=2, learning_rate=0.02)


def saved(dataset: Dataset, folder: Path) -> Path:
    folder.mkdir()
    parts = ("accounts", "items", "domains", "offsets", "sequence_accounts", "events")
    write_dataset(folder, name="tiny", kind="logs", **{part: getattr(dataset, part) for part in parts})
    return folder


def started_from(run: Path, name: str, dataset: Dataset) -> tuple[Model, Split]:
    """A model on newer data with what the run has learned."""
    split = split_dataset(dataset, SplitConfig())
    model = new_model(name, split, {}, seed=99)
    warm_start(model, dataset, run)
    return model.eval(), split


def scores(model: Model, split: Split) -> torch.Tensor:
    with torch.no_grad():
        return model.scores(model.encode(), make_batch(split.test), Domain("all", 0, split.train.items))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every model, and no dataset any more."""
    folder = tmp_path_factory.mktemp("carry")
    data = saved(OLD, folder / "data")
    for name in TRAINED:
        train_run(RunPlan(data, name, training=FEW), folder / name)
    shutil.rmtree(data)
    return folder


@pytest.mark.parametrize("name", TRAINED)
def test_a_model_names_every_parameter_that_grows_with_the_data(name: str) -> None:
    sizes = {"accounts": tastes_world(accounts=16, size=5), "items": tastes_world(accounts=8, size=6)}
    small = new_model(name, split_dataset(tastes_world(accounts=8, size=5), SplitConfig()), {}, 0)
    for kind, dataset in sizes.items():
        grown = new_model(name, split_dataset(dataset, SplitConfig()), {}, 0)
        shapes = {key: tensor.shape for key, tensor in grown.named_parameters()}
        growing = {key for key, tensor in small.named_parameters() if tensor.shape != shapes[key]}
        named = {key for key, of in small.warm_start_tensors().items() if of == kind}
        assert growing <= named, f"{name}.warm_start_tensors() does not say that these stand for {kind}"
        assert all(small.state_dict()[key].shape[0] < grown.state_dict()[key].shape[0] for key in named)


@pytest.mark.parametrize("name", TRAINED)
def test_unchanged_data_gives_equal_scores(name: str, runs: Path) -> None:
    model, split = started_from(runs / name, name, OLD)
    assert_close(scores(model, split), scores(load_run(runs / name)[1], split), rtol=0, atol=0)


@pytest.mark.parametrize("name", TRAINED)
def test_ids_in_another_order_find_their_rows(name: str, runs: Path) -> None:
    first, second = started_from(runs / name, name, OLD), started_from(runs / name, name, SHUFFLED)
    rows = [SHUFFLED.accounts[owner] for owner in second[1].test.owner]
    order = [rows.index(OLD.accounts[owner]) for owner in first[1].test.owner]
    columns = [SHUFFLED.items.index(item) for item in OLD.items]
    assert_close(scores(*second)[order][:, columns], scores(*first), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_new_starts_from_the_mean_and_can_be_scored(name: str, runs: Path) -> None:
    model, split = started_from(runs / name, name, GROWN)
    assert scores(model, split).isfinite().all()
    old, new = load_run(runs / name)[1].state_dict(), model.state_dict()
    for key, kind in ((key, kind) for key, kind in model.warm_start_tensors().items() if kind != WHOLE):
        known, here = getattr(OLD, kind), getattr(GROWN, kind)
        for place, one in enumerate(here):
            wanted = old[key][known.index(one)] if one in known else old[key].mean(dim=0)
            assert_close(new[key][place], wanted, rtol=0, atol=0)


def test_training_from_a_run_takes_fewer_epochs_to_a_loss(tmp_path: Path) -> None:
    """Newer data has more accounts, and a ninth cluster of items."""
    before, after = tastes_world(accounts=80), tastes_world(accounts=108, clusters=9, seed=1)
    training = TrainingConfig(epochs=12, batch_size=32, learning_rate=0.01, patience=12)
    old, new = saved(before, tmp_path / "old"), saved(after, tmp_path / "new")
    train_run(RunPlan(old, "lightgc2n", training=training), tmp_path / "first")
    plan = RunPlan(new, "lightgc2n", training=training)
    train_run(plan, tmp_path / "scratch")
    train_run(replace(plan, from_run=tmp_path / "first"), tmp_path / "on")
    losses = {run: [row["next_item"] for row in read_rows(tmp_path / run)] for run in ("scratch", "on")}
    wanted = losses["scratch"][5]
    assert next(epoch for epoch, loss in enumerate(losses["on"]) if loss <= wanted) < 4


@pytest.fixture
def grown(runs: Path, tmp_path: Path) -> tuple[RunPlan, Path]:
    shutil.copytree(runs / "lightgc2n", tmp_path / "first")
    plan = RunPlan(saved(GROWN, tmp_path / "grown"), "lightgc2n", training=FEW, from_run=tmp_path / "first")
    return plan, tmp_path / "second"


def test_a_warm_started_run_records_its_source_and_resumes_without_it(grown: tuple[RunPlan, Path]) -> None:
    plan, out = grown
    assert plan.from_run is not None
    train_run(plan, out, seconds=0)
    best = load_run(plan.from_run)[2].best_epoch
    actual = read_run(out)["from"]
    assert (actual["run"], actual["epochs"]) == (str(plan.from_run), best + 1)
    assert actual["data"] == read_run(plan.from_run)["data"]
    assert (out / "items.txt").read_text() == "s\nr\nq\np\n"
    shutil.rmtree(plan.from_run)
    assert train_run(plan, out).epochs == FEW.epochs
    with pytest.raises(OutputError, match="from_run= differs"):
        train_run(replace(plan, from_run=None), out)


def test_weights_that_come_from_a_run_are_the_first_to_be_beaten(tmp_path: Path) -> None:
    split = split_dataset(tastes_world(), SplitConfig())
    for folder in (None, tmp_path):
        model = new_model("lightgc2n", split, {}, 0)
        before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        said, epochs = iter([0.9, 0.1, 0.2, 0.3]), []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "start_epoch", epochs.append)
            progress = train(model, split, FEW, lambda model, said=said: next(said), folder, epochs_before=7)
        assert (progress.best_value, progress.best_epoch, progress.epochs) == (0.9, -1, 3)
        assert epochs == [7, 8, 9]  # what a model does in its first epochs is not done again
        assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_what_does_not_fit_is_refused(grown: tuple[RunPlan, Path], tmp_path: Path) -> None:
    plan, out = grown
    assert plan.from_run is not None
    with pytest.raises(SettingError, match=r"item_embeddings is \(3, 16\), this model needs \(4, 8\)"):
        train_run(replace(plan, settings={"embedding_width": 8}), out)
    other = saved(dataset_of([("a", "x y z x")] * 2), tmp_path / "other")
    with pytest.raises(DataError, match="has no item in common with tiny"):
        train_run(replace(plan, data=other), tmp_path / "third")
    (plan.from_run / "items.txt").unlink()
    with pytest.raises(DataError, match=r"items.txt: missing. Rerun the command"):
        train_run(plan, tmp_path / "fourth")


def test_the_command_takes_the_settings_of_the_run(grown: tuple[RunPlan, Path]) -> None:
    plan, out = grown
    words = ["train", plan.data, "--from", plan.from_run, "--out", out, "--device", "cpu"]
    done = command(*words, "--set", "lightgc2n.dropout=0.3", "--epochs", 1, "--json")
    assert done.returncode == 0, done.stderr
    assert "initial weights: validation MRR@20" in done.stderr
    actual = read_run(out)
    assert (actual["training"]["epochs"], actual["training"]["learning_rate"]) == (1, FEW.learning_rate)
    assert (actual["settings"]["dropout"], json.loads(done.stdout)["epochs"]) == (0.3, 1)
    refused = command(*words, "--model", "lightgc2n-wo-a")
    assert (refused.returncode, "a run of lightgc2n. Its weights cannot start" in refused.stderr) == (2, True)


class Remembers(Model):
    """A model that keeps for each account whether it was met."""

    def __init__(self, met: list[bool]) -> None:
        super().__init__()
        self.register_buffer("met", torch.tensor(met))
        self.register_buffer("graph", torch.tensor([float(len(met))]))

    def warm_start_tensors(self) -> dict[str, str]:
        return {"met": "accounts"}

    def encode(self) -> None:
        """Nothing."""

    def scores(self, encoded: None, batch: Batch, domain: Domain) -> torch.Tensor:
        raise AssertionError


def test_buffers_stay_those_of_the_new_data_unless_they_are_named(tmp_path: Path) -> None:
    old, new = Remembers([True, False, True]), Remembers([False] * 4)
    save_checkpoint(tmp_path / BEST, old, None, Progress())
    write_vocabularies(tmp_path, OLD)
    warm_start(new, GROWN, tmp_path)
    state = new.state_dict()
    assert state["met"].tolist() == [False, True, False, False]  # new, c, b, d: of a, b, c only b was not met
    assert state["graph"].tolist() == [4.0]
