"""A refreshed run answers as its model does after a recount of the newer log, however items are numbered there."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch

from lightgc2n import zoo
from lightgc2n.baselines.simple import SimpleBaseline
from lightgc2n.data.dataset import Dataset, load_dataset, write_dataset
from lightgc2n.data.splits import all_events
from lightgc2n.errors import DataError, OutputError, SettingError
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.models.plus.transitions import count_followers, count_neighbours
from lightgc2n.models.plus.trends import count_trends
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.load_run import run_recommender
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.training.checkpoints import BEST, Progress, load_checkpoint, save_checkpoint
from lightgc2n.training.refresh_run import refresh_run
from lightgc2n.training.run import evaluate_run, train_run
from lightgc2n.training.runs import load_run as load_model
from lightgc2n.training.runs import plan_of, read_run
from tests.cli.test_commands import run
from tests.export.town import BY_TIME, data, run_of
from tests.recommending.test_bundle import assert_same

DAY = 86_400_000_000
NEW_ITEMS = ("new-a", "new-b")
RUNS = ("lightgc2n-plus", BY_TIME)


def log_of(dataset: Dataset) -> dict[str, list[tuple[str, int]]]:
    """The items and times of each account's log."""
    assert dataset.times is not None
    events = [(dataset.items[item], int(time)) for item, time in zip(dataset.events, dataset.times, strict=True)]
    bounds = zip(dataset.sequence_accounts, dataset.offsets[:-1], dataset.offsets[1:], strict=True)
    return {dataset.accounts[account]: events[start:stop] for account, start, stop in bounds}


def write_log(folder: Path, logs: dict[str, list[tuple[str, int]]], items: Sequence[str], times: bool = True) -> Path:
    """A dataset with these logs and the domains of the town, its items in the given order."""
    first = load_dataset(data()).domains[0]
    number, lengths = {item: place for place, item in enumerate(items)}, [len(log) for log in logs.values()]
    write_dataset(
        folder,
        name="newer",
        kind="logs",
        accounts=list(logs),
        items=items,
        domains=[type(first)(first.name, 0, len(items))],
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        sequence_accounts=np.arange(len(logs)),
        events=np.array([number[item] for log in logs.values() for item, _ in log]),
        times=np.array([time for log in logs.values() for _, time in log]) if times else None,
    )
    return folder


@cache
def newer() -> Path:
    """The town a week later: two new items and an account, in another order, and one item of the run is gone."""
    town = load_dataset(data())
    logs, random = log_of(town), np.random.default_rng(0)
    counts = np.bincount(town.events, minlength=len(town.items))
    gone = town.items[int(np.where(counts > 0, counts, counts.max()).argmin())]
    logs = {account: [event for event in log if event[0] != gone] for account, log in logs.items()}
    latest = max(time for log in logs.values() for _, time in log)
    for number, (account, log) in enumerate(list(logs.items())[:20]):
        later = [NEW_ITEMS[number % 2], *(town.items[item] for item in random.integers(len(town.items), size=3))]
        logs[account] = [*log, *((item, latest + DAY * day) for day, item in enumerate(later, 1) if item != gone)]
    logs["newcomer"] = [(town.items[1], latest + DAY), (NEW_ITEMS[0], latest + 2 * DAY)]
    items = [item for item in (*town.items, *NEW_ITEMS) if item != gone]
    folder = Path(mkdtemp(prefix="lightgc2n-newer-")) / "data"
    folder.mkdir()
    return write_log(folder, logs, [items[place] for place in random.permutation(len(items))])


@cache
def refreshed(name: str) -> Path:
    folder = newer().parent / f"refreshed-{name}"
    refresh_run(run_of(name), newer(), folder)
    return folder


def recounted(name: str) -> Recommender:
    """The model of the run moved to the newer catalogue item by item, its counts made from the newer log."""
    title, old, _ = load_model(run_of(name))
    assert isinstance(old, LightGC2NPlus)
    dataset = load_dataset(newer())
    known = all_events(dataset, plan_of(run_of(name)).split)
    model = zoo.build(title, known, {"width": 16, "max_length": 30})
    assert isinstance(model, LightGC2NPlus)
    before, numbers, old_items = old.state_dict(), load_dataset(data()).item_index, load_dataset(data()).items
    tensors = model.state_dict()
    rows = [numbers.get(item, -1) for item in dataset.items]
    for key, value in before.items():
        if key in ("items", "memory.readiness", "bias"):
            mean = value[before["learned"] > 0].mean(dim=0)
            of_new = value[before["learned"] > 0].min() if key == "bias" else mean
            tensors[key] = torch.stack([value[row] if row >= 0 else of_new for row in rows])
        elif key == "learned":
            tensors[key] = torch.tensor([float(value[row]) if row >= 0 else 0.0 for row in rows])
        elif not key.startswith(("followers.c", "followers.l", "blend.c", "blend.total", "trends.looked", "trends.c")):
            tensors[key] = value if key != "trends.rates" else tensors[key]
    # What followed what as the model learned it: counts of the run, by the new numbers.
    columns = np.zeros((len(rows), before["followers.columns"].shape[1]), dtype=np.int32)
    counts, times = np.zeros(columns.shape, dtype=np.float32), before["followers.counts"].numpy()
    followers = before["followers.columns"].numpy()
    for item, row in enumerate(rows):
        for place in np.flatnonzero(times[row]) if row >= 0 else ():
            follower = old_items[followers[row, place]]
            if follower in dataset.item_index:
                columns[item, place], counts[item, place] = dataset.item_index[follower], times[row, place]
    leaving = torch.tensor([float(before["followers.leaving"][row]) if row >= 0 else 0.0 for row in rows])
    tensors |= {"followers.columns": torch.from_numpy(columns), "followers.counts": torch.from_numpy(counts)}
    tensors["followers.leaving"] = leaving
    tensors["trends.chosen"] = before["trends.chosen"]
    model = zoo.entry_of(title).restore(model.config, tensors)
    model.refresh(known)
    return run_recommender(title, model, dataset, known)


@pytest.mark.parametrize("name", RUNS)
def test_lists_are_those_of_a_recount(name: str) -> None:
    actual, wanted = load(refreshed(name)), recounted(name)
    assert actual.scorer.model.fitted() == wanted.scorer.model.fitted()
    for account in (*actual.dataset.accounts[:25], "newcomer"):
        assert_same(actual.recommend(account, k=20), wanted.recommend(account, k=20))
    for history in ([NEW_ITEMS[1]], [actual.dataset.items[3], NEW_ITEMS[0]], []):
        assert_same(actual.recommend(history=history, k=20), wanted.recommend(history=history, k=20))


@pytest.mark.parametrize("name", RUNS)
def test_every_counted_source_is_of_all_events(name: str) -> None:
    model, dataset = load(refreshed(name)).scorer.model, load_dataset(newer())
    known = all_events(dataset, plan_of(run_of(name)).split)
    assert len(known.events) == len(dataset.events)
    trends = count_trends(known, model.config.trending)
    assert trends is not None
    neighbours, followers = count_neighbours(known), count_followers(known, model.config.followers)
    for part in ("columns", "counts", "total"):
        assert torch.equal(getattr(model.blend, part), getattr(neighbours, part))
        assert torch.equal(getattr(model.newer_followers, part), getattr(followers, part))
    assert torch.equal(model.trends.rates, trends["rates"])
    assert model.trends.looked[-1] > load(run_of(name)).scorer.model.trends.looked[-1]


@pytest.mark.parametrize("name", RUNS)
def test_learned_weights_stay(name: str) -> None:
    before, after = (load_model(folder)[1].state_dict() for folder in (run_of(name), refreshed(name)))
    numbers, items = load_dataset(data()).item_index, load_dataset(newer()).items
    kept = [place for place, item in enumerate(items) if item in numbers]
    rows = [numbers[items[place]] for place in kept]
    was_learned = before["learned"][rows] > 0
    assert torch.equal(after["items"][kept][was_learned], before["items"][rows][was_learned])
    for key in ("bias", "memory.readiness", "learned", "followers.leaving"):
        assert torch.equal(after[key][kept], before[key][rows])
    for key in ("blend.weights", "blend.mixture", "state.own.weight", "same_person.bases", "trends.weight"):
        assert torch.equal(after[key], before[key])


@pytest.mark.parametrize("name", RUNS)
def test_new_items_and_accounts_are_there_at_once(name: str) -> None:
    fresh = load(refreshed(name))
    assert len(fresh.recommend("newcomer", k=20)) == 20
    every = [one.item_id for one in fresh.recommend(fresh.dataset.accounts[0], k=len(fresh.dataset.items))]
    assert all(every.index(item) < len(every) // 2 for item in NEW_ITEMS), "they were frequent lately"
    assert fresh.people("newcomer").count >= 1
    assert not set(NEW_ITEMS) & set(load(run_of(name)).dataset.items)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_a_bundle_gives_the_same_lists(name: str, int8: bool, tmp_path: Path) -> None:
    config = export_run(refreshed(name), tmp_path / "bundle", ExportOptions(int8=int8, people=False))
    bundle, fresh = load_bundle(tmp_path / "bundle"), load(refreshed(name))
    assert config["metrics"] == {}
    assert "counts of this refreshed run include all events" in (tmp_path / "bundle" / "README.md").read_text()
    accounts = [*fresh.dataset.accounts[:20], "newcomer"]
    if int8:
        pairs = [(bundle.recommend(one, k=20), fresh.recommend(one, k=20)) for one in accounts]
        shared = [len({x.item_id for x in actual} & {x.item_id for x in wanted}) for actual, wanted in pairs]
        assert np.mean(shared) > 18  # of 20: rounding swaps items with close scores
    else:
        for account in accounts:
            assert_same(bundle.recommend(account, k=20), fresh.recommend(account, k=20))


@pytest.mark.parametrize("model", ["trending", "markov", "markov-recency", "item-knn"])
def test_a_simple_baseline_counts_all_events_with_the_values_fitted_before(model: str, tmp_path: Path) -> None:
    refresh_run(run_of(model), newer(), tmp_path / "fresh")
    _, before, _ = load_model(run_of(model))
    dataset = load_dataset(newer())
    known = all_events(dataset, plan_of(run_of(model)).split)
    anew = zoo.build(model, known, {})
    assert isinstance(before, SimpleBaseline)
    for fitted in before.fitted_tensors:
        getattr(anew, fitted).copy_(getattr(before, fitted))
    found, wanted = load(tmp_path / "fresh"), run_recommender(model, anew, dataset, known)
    assert found.scorer.model.fitted() == before.fitted()
    assert bool(before.fitted()) == bool(before.fitted_tensors)
    for account in (*dataset.accounts[:10], "newcomer"):
        assert_same(found.recommend(account, k=20), wanted.recommend(account, k=20))
    export_run(tmp_path / "fresh", tmp_path / "bundle", ExportOptions(people=False))
    assert_same(load_bundle(tmp_path / "bundle").recommend("newcomer"), found.recommend("newcomer"))


def test_run_json_says_where_it_comes_from() -> None:
    before, after = read_run(run_of(BY_TIME)), read_run(refreshed(BY_TIME))
    dataset = load_dataset(newer())
    for part in ("model", "settings", "split", "training", "label"):
        assert after[part] == before[part]
    assert after["data"]["checksum"] == dataset.checksum
    assert after["from"] == {"run": str(run_of(BY_TIME).resolve()), "data": before["data"], "epochs": 0}
    newest = str(np.datetime64(int(np.max(dataset.times)), "us"))[:16]
    assert after["refreshed"] == {"events": len(dataset.events), "newest": newest, "new_items": 2, "new_accounts": 1}


def test_the_command(tmp_path: Path) -> None:
    done = run("refresh", run_of(BY_TIME), "--data", newer(), "--out", tmp_path / "fresh")
    assert done.returncode == 0, done.stderr
    assert "new: 2 items, 1 accounts" in done.stdout
    asked = run("recommend", tmp_path / "fresh", "--account", "newcomer", "-k", 3, "--json")
    listed = [one["item_id"] for one in json.loads(asked.stdout)[0]["items"]]
    assert listed == [one.item_id for one in load(refreshed(BY_TIME)).recommend("newcomer", k=3)]
    again = run("refresh", tmp_path / "fresh", "--data", data(), "--out", tmp_path / "again", "--json")
    assert json.loads(again.stdout)["new_items"] == 1, "the item that was gone"
    assert read_run(tmp_path / "again")["from"]["epochs"] == 0  # the checkpoint still holds those of the run


@pytest.mark.parametrize("model", ["lightgc2n", "sasrec"])
def test_a_run_without_counts_says_so(model: str, tmp_path: Path) -> None:
    done = run("refresh", run_of(model), "--data", newer(), "--out", tmp_path / "fresh")
    assert done.returncode == 2
    assert f"{model} has no counted sources here" in done.stderr
    assert "lightgc2n train NEWER --from RUN" in done.stderr
    assert not (tmp_path / "fresh").exists()


def test_without_times_followers_and_neighbours_are_counted(tmp_path: Path) -> None:
    town = load_dataset(data())
    (tmp_path / "old").mkdir()
    old = write_log(tmp_path / "old", log_of(town), town.items, times=False)
    plan = plan_of(run_of("lightgc2n-plus"))
    for model in ("lightgc2n-plus", "lightgc2n-plus-wo-blend"):
        train_run(type(plan)(old, model, settings=plan.settings, training=plan.training), tmp_path / model)
    refresh_run(tmp_path / "lightgc2n-plus", newer(), tmp_path / "fresh")
    model, known = load(tmp_path / "fresh").scorer.model, all_events(load_dataset(newer()), plan.split)
    assert torch.equal(model.blend.counts, count_neighbours(known).counts)
    with pytest.raises(SettingError, match="lightgc2n-plus-wo-blend has no counted sources here"):
        refresh_run(tmp_path / "lightgc2n-plus-wo-blend", newer(), tmp_path / "none")
    with pytest.raises(DataError, match="trends need the times of events"):
        refresh_run(run_of("lightgc2n-plus"), old, tmp_path / "none")


def test_what_is_refused(tmp_path: Path) -> None:
    fresh = refreshed(BY_TIME)
    with pytest.raises(DataError, match=r"no test target is left\. Evaluate the run that it was made from"):
        evaluate_run(fresh)
    with pytest.raises(OutputError, match="would replace"):
        refresh_run(fresh, newer(), fresh, force=True)
    with pytest.raises(OutputError, match="exists already"):
        refresh_run(run_of(BY_TIME), newer(), fresh)
    with pytest.raises(OutputError, match="refreshed run, which is not trained further"):
        train_run(plan_of(fresh), fresh)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="was not made by this command"):
        refresh_run(run_of(BY_TIME), newer(), tmp_path / "mine", force=True)
    _, model, progress = load_model(run_of(BY_TIME))
    unfinished = Progress(epochs=progress.epochs)
    (tmp_path / "run").mkdir()
    for name in ("run.json", "accounts.txt", "items.txt"):
        (tmp_path / "run" / name).write_bytes((run_of(BY_TIME) / name).read_bytes())
    save_checkpoint(tmp_path / "run" / BEST, model, None, unfinished)
    with pytest.raises(DataError, match="its training has not ended"):
        refresh_run(tmp_path / "run", newer(), tmp_path / "none")


def test_an_account_can_be_forgotten_in_it(tmp_path: Path) -> None:
    town: dict[str, Any] = log_of(load_dataset(newer()))
    (tmp_path / "data").mkdir()
    log = write_log(tmp_path / "data", town, load_dataset(newer()).items)
    refresh_run(run_of(BY_TIME), log, tmp_path / "fresh")
    done = run("forget", "newcomer", "--data", log, "--run", tmp_path / "fresh")
    assert done.returncode == 0, done.stderr
    fresh = load(tmp_path / "fresh")
    assert "newcomer" not in fresh.dataset.accounts
    known = all_events(fresh.dataset, plan_of(tmp_path / "fresh").split)
    assert torch.equal(fresh.scorer.model.blend.counts, count_neighbours(known).counts)
    assert "followers.counts" in load_checkpoint(tmp_path / "fresh" / BEST)[0]
