"""Lists from a trained run: the three ways to ask, what may be listed, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightgc2n import zoo
from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import DataError, ScoreError, SettingError
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.load_run import run_recommender
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.worlds import dataset_of


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    generate(HouseholdConfig(accounts=60), seed=3, out=folder / "data")
    plan = RunPlan(folder / "data", "lightgc2n", training=TrainingConfig(epochs=2, batch_size=32))
    train_run(plan, folder / "run")
    return folder


@pytest.fixture(scope="module")
def recommender(world: Path) -> Recommender:
    return load(world / "run")


def log_of(recommender: Recommender, account: str) -> list[str]:
    """The whole log of an account, found the slow way."""
    data, index = recommender.dataset, recommender.dataset.accounts.index(account)
    rows = np.flatnonzero(data.sequence_accounts == index)
    events = [event for row in rows for event in data.events[data.offsets[row] : data.offsets[row + 1]]]
    return [data.items[event] for event in events]


def expected(recommender: Recommender, account: int, history: list[str], k: int, way: str) -> list[tuple[str, float]]:
    """The list for one history, by a stable sort of all scores of the items that training has."""
    data = recommender.dataset
    items = torch.tensor([[data.item_index[item] for item in history]])
    batch = Batch(torch.tensor([account]), items, torch.tensor([len(history)]))
    with torch.no_grad():
        encoded = recommender.scorer.model.encode()
    scores = getattr(recommender.scorer.model, way)(encoded, batch, Domain("all", 0, len(data.items)))[0].tolist()
    learned = split_dataset(data, SplitConfig()).train.popularity > 0
    ranked = sorted((-score, item) for item, score in enumerate(scores) if learned[item])[:k]
    return [(data.items[item], -score) for score, item in ranked]


def assert_same(found: object, wanted: list[tuple[str, float]]) -> None:
    assert [one.item_id for one in found] == [item for item, _ in wanted]  # type: ignore[attr-defined]
    assert [one.score for one in found] == pytest.approx([score for _, score in wanted], abs=1e-5)  # type: ignore[attr-defined]
    assert [one.rank for one in found] == list(range(1, len(wanted) + 1))  # type: ignore[attr-defined]


def test_a_known_account_has_its_whole_log_and_its_place_in_the_graph(recommender: Recommender) -> None:
    account = recommender.dataset.accounts[7]
    found = recommender.recommend(account, k=5)
    assert_same(found, expected(recommender, 7, log_of(recommender, account), 5, "scores"))
    assert (found.account_id, found.fallback, found.notes) == (account, False, ())


def test_a_given_history_takes_the_place_of_the_graph(recommender: Recommender) -> None:
    account = recommender.dataset.accounts[7]
    log = log_of(recommender, account)
    newer = [*log, *log[:3][::-1]]
    assert_same(recommender.recommend(account, newer, k=9), expected(recommender, 7, newer, 9, "fold_in_scores"))
    # What training saw of the account gives what the graph gives: the last two events were kept from it.
    assert_same(recommender.recommend(account, log[:-2], k=9), expected(recommender, 7, log[:-2], 9, "scores"))


def test_a_history_alone_starts_from_the_mean(recommender: Recommender) -> None:
    account = recommender.dataset.accounts[7]
    log = log_of(recommender, account)
    alone = recommender.recommend(history=log, k=9)
    assert_same(alone, expected(recommender, -1, log, 9, "scores"))
    named = recommender.recommend("somebody new", log, k=9)
    assert named.items == alone.items
    assert named.notes == ("account 'somebody new' is not known: the history alone decides",)
    assert alone[0].score != recommender.recommend(account, log, k=1)[0].score


def test_many_equal_one_by_one(recommender: Recommender) -> None:
    accounts = [*recommender.dataset.accounts[::-3], recommender.dataset.accounts[5]]
    lists = list(recommender.recommend_many(accounts, k=6))
    assert [one.account_id for one in lists] == accounts
    for one in lists:
        single = recommender.recommend(one.account_id, k=6)
        assert_same(one, [(found.item_id, found.score) for found in single])
    assert [one.account_id for one in recommender.recommend_many(k=1)] == list(recommender.dataset.accounts)
    assert list(recommender.recommend_many([])) == []


def test_a_stored_history_is_queried_at_the_end_of_the_dataset() -> None:
    """Account b has the last event, on day 30; of a given history nobody knows when it was."""
    days = [[0, 4, 9, 12], [1, 2, 25, 30]]
    data = dataset_of([("a", "x y z x"), ("b", "y z x z")], times=[[86_400 * day for day in row] for row in days])
    split = split_dataset(data, SplitConfig())
    torch.manual_seed(0)
    model = zoo.build("tgsrec", split.train, {"width": 4, "time_width": 4}).eval()
    recommender = run_recommender("tgsrec", model, data, split.train)
    history = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    timeless = Batch(torch.tensor([0, 1]), history, torch.tensor([4, 4]))
    timed = replace(timeless, ages=torch.tensor([[30.0, 26, 21, 18], [29, 28, 5, 0]]))
    whole = Domain("all", 0, 3)
    stored = model.scores(model.encode(), timed, whole)
    given = model.fold_in_scores(model.encode(), timeless, whole)

    def by_name(scores: torch.Tensor) -> dict[str, float]:
        return dict(zip("xyz", scores.tolist(), strict=True))

    for row, found in enumerate(recommender.recommend_many(["a", "b"])):
        assert {one.item_id: one.score for one in found} == pytest.approx(by_name(stored[row]))
    found = recommender.recommend("b", ["y", "z", "x", "z"])
    assert {one.item_id: one.score for one in found} == pytest.approx(by_name(given[1]))


def test_prepared_queries_of_different_kinds_are_answered_in_order(recommender: Recommender) -> None:
    accounts, items = recommender.dataset.accounts, list(recommender.dataset.items)
    kinds: list[dict[str, Any]] = [
        {"account": accounts[1], "k": 3},
        {"history": items[:2]},
        {"account": accounts[0], "history": items[1:3], "exclude_seen": True, "k": 4},
        {"history": [], "deny": items[:1]},
    ]
    answers = recommender.answer([recommender.prepare(**kind) for kind in kinds])
    assert answers == [recommender.recommend(**kind) for kind in kinds]
    assert [len(answer) for answer in answers[::2]] == [3, 4]


def test_similar_items_need_a_bundle(recommender: Recommender) -> None:
    with pytest.raises(
        SettingError, match=r"similar items need a bundle\. Make one with: lightgc2n\.load\(RUN\)\.export"
    ):
        recommender.similar(recommender.dataset.items[0])


def test_seen_allowed_and_denied_items(recommender: Recommender) -> None:
    account = recommender.dataset.accounts[2]
    everything = recommender.recommend(account, k=10_000)
    ids = [one.item_id for one in everything]
    assert sorted(ids) == sorted(recommender.dataset.items)
    seen = set(log_of(recommender, account))
    assert [one.item_id for one in recommender.recommend(account, k=10_000, exclude_seen=True)] == [
        item for item in ids if item not in seen
    ]
    some = ids[4::7]
    assert [one.item_id for one in recommender.recommend(account, k=3, allow=some)] == some[:3]
    assert [one.item_id for one in recommender.recommend(account, k=3, deny=ids[:2])] == ids[2:5]
    assert [one.item_id for one in recommender.recommend(account, allow=some[:2], deny=some[:1])] == [some[1]]
    nothing = recommender.recommend(account, allow=list(seen), exclude_seen=True)
    assert (len(nothing), nothing.notes) == (0, ("no item is left to list",))
    video = recommender.dataset.domain("video")
    listed = {one.item_id for one in recommender.recommend(account, k=10_000, domain="video")}
    assert listed == set(recommender.dataset.items[video.start : video.stop])


def test_items_without_training_events_come_after_all_others(recommender: Recommender) -> None:
    learned = split_dataset(recommender.dataset, SplitConfig()).train.popularity > 0
    train = split_dataset(recommender.dataset, SplitConfig()).train
    rarest = int(np.where(learned, train.popularity, 10**9).argmin())
    without = replace(train, events=np.where(train.events == rarest, train.events[0], train.events))
    blind = run_recommender("blind", recommender.scorer.model, recommender.dataset, without)
    ids = [one.item_id for one in blind.recommend(recommender.dataset.accounts[0], k=10_000)]
    new = [recommender.dataset.items[item] for item in np.flatnonzero(without.popularity == 0)]
    assert set(ids[-len(new) :]) == set(new)
    assert recommender.dataset.items[rarest] in new


def test_unknown_ids_are_left_out_with_a_note(recommender: Recommender) -> None:
    known = list(recommender.dataset.items[:3])
    found = recommender.recommend(history=["?", known[0], "!", known[1], known[2], "?"], k=4)
    assert found.items == recommender.recommend(history=known, k=4).items
    assert not found.fallback
    assert found.notes == ("left out of the history, because not in data: '?', '!'",)
    many = recommender.recommend(history=[known[0], *"abcdefg"])
    assert many.notes[0].endswith("'a', 'b', 'c', 'd', 'e' and 2 more")


@pytest.mark.parametrize("history", [[], ["?"]])
def test_without_any_history_popular_items_are_listed_and_flagged(recommender: Recommender, history: list[str]) -> None:
    popularity = split_dataset(recommender.dataset, SplitConfig()).train.popularity
    order = sorted(range(len(popularity)), key=lambda item: (-popularity[item], item))[:5]
    for account in (None, recommender.dataset.accounts[0], "somebody new"):
        found = recommender.recommend(account, history, k=5)
        assert found.fallback
        assert found.notes[-1] == "no history: the most popular items"
        assert_same(found, [(recommender.dataset.items[item], float(popularity[item])) for item in order])


def test_an_account_without_events_gets_popular_items(recommender: Recommender) -> None:
    data = recommender.dataset
    train = split_dataset(data, SplitConfig()).train
    one_more = replace(data, accounts=[*data.accounts, "silent"])
    found = run_recommender("more", recommender.scorer.model, one_more, train).recommend("silent", k=2)
    assert (found.fallback, len(found)) == (True, 2)


def test_what_cannot_be_answered_is_refused(recommender: Recommender) -> None:
    account = recommender.dataset.accounts[0]
    with pytest.raises(DataError, match=r"unknown account 'x' .*Give history= to recommend for someone new"):
        recommender.recommend("x")
    with pytest.raises(DataError, match="unknown account 'x'"):
        recommender.recommend_many([account, "x"])  # at once, not when the list is read
    with pytest.raises(SettingError, match="or both, found neither"):
        recommender.recommend()
    with pytest.raises(SettingError, match="at least 1, found 0"):
        recommender.recommend(account, k=0)
    with pytest.raises(DataError, match="allow: item 'x' is not in data"):
        recommender.recommend(account, allow=["x"])
    with pytest.raises(DataError, match="deny: item 'x' is not in data"):
        recommender.recommend(account, deny=["x"])
    with pytest.raises(DataError, match="leave none"):
        recommender.recommend(account, allow=[])
    with pytest.raises(SettingError, match="expected a list of item ids"):
        recommender.recommend(history="abc")
    with pytest.raises(DataError, match="Did you mean 'video'"):
        recommender.recommend(account, domain="vidoe")


def test_a_score_that_is_not_finite_is_refused(world: Path) -> None:
    broken = load(world / "run")
    with torch.no_grad():
        broken.scorer.model.head.bias[3] = torch.nan  # type: ignore[union-attr, operator, index]
    with pytest.raises(ScoreError, match="lightgc2n: score nan"):
        broken.recommend(broken.dataset.accounts[0])


def test_accounts_that_training_held_out_are_nameless(world: Path, tmp_path: Path) -> None:
    few = TrainingConfig(epochs=1, batch_size=32)
    split = SplitConfig(protocol="cold-accounts")
    train_run(RunPlan(world / "data", "lightgc2n-wo-c", split=split, training=few), tmp_path / "run")
    recommender = load(str(tmp_path / "run"))
    held_out = split_dataset(recommender.dataset, split).test.owner[0]
    account = recommender.dataset.accounts[held_out]
    found = recommender.recommend(account, k=5)
    alone = recommender.recommend(history=log_of(recommender, account), k=5)
    assert found.items == alone.items


def test_a_run_on_one_domain_lists_that_domain(world: Path, tmp_path: Path) -> None:
    few = TrainingConfig(epochs=1, batch_size=32)
    train_run(RunPlan(world / "data", "lightgc2n-wo-a", "video", training=few), tmp_path / "run")
    recommender, both = load(tmp_path / "run"), load(world / "run")
    video = both.dataset.domain("video")
    catalogue = both.dataset.items[video.start : video.stop]
    account = both.dataset.accounts[0]
    assert {one.item_id for one in recommender.recommend(account, k=10_000)} == set(catalogue)
    other = both.dataset.items[0 if video.start else video.stop]
    found = recommender.recommend(account, [other, catalogue[0]], k=3)
    assert "left out of the history" in found.notes[0]


def test_the_dataset_must_be_that_of_the_run(world: Path, tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=60), seed=4, out=tmp_path / "other")
    with pytest.raises(DataError, match="was trained on"):
        load(world / "run", tmp_path / "other")
    moved = tmp_path / "moved"
    moved.symlink_to(world / "data")
    assert load(world / "run", moved).recommend(load(world / "run").dataset.accounts[0], k=1)


def test_a_missing_dataset_is_an_error(world: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for file in (world / "run").iterdir():
        text = file.read_bytes()
        if file.name == "run.json":
            text = text.replace(str(world / "data").encode(), b"gone")
        (tmp_path / "run" / file.name).write_bytes(text)
    with pytest.raises(DataError, match=r"no longer at gone\. Say where it is with data="):
        load(tmp_path / "run")
