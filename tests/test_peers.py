"""The benchmark beside RecTools is fair: nobody is shown a target, and one function reads the lists of both sides."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lightgc2n.data.splits import SplitConfig, split_dataset
from tests.worlds import dataset_of

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return importlib.import_module(name)


peers, rectools_side = benchmark("peers"), benchmark("rectools_side")


def test_the_peer_gets_training_and_histories_and_no_target(tmp_path: Path) -> None:
    data = dataset_of([("a", "p q r s"), ("b", "q p"), ("c", "r q p t")])
    np.savez(tmp_path / "task.npz", **peers.task_of(split_dataset(data, SplitConfig())))
    with np.load(tmp_path / "task.npz", allow_pickle=False) as given:
        task = {name: given[name] for name in given.files}

    def events(part: str) -> str:
        pairs = zip(task[f"{part}_account"], task[f"{part}_item"], strict=True)
        return " ".join(data.accounts[account] + data.items[item] for account, item in pairs)

    assert events("train") == "ap aq bq cr cq"  # all but the last two; of two events the first
    assert events("history") == "ap aq ar bq cr cq cp"  # all but the last
    assert [data.accounts[account] for account in task["asked"]] == ["a", "b", "c"]
    assert len(task) == 5


def test_a_rank_is_the_place_in_the_list() -> None:
    lists = np.array([[4, 2, 0], [4, 2, 0], [4, 2, 0], [3, -1, -1]])
    learned = np.array([True, True, True, False, True])
    ranks = peers.ranks_in(lists, np.array([4, 0, 1, 3]), learned)
    assert ranks.tolist() == [1.0, 3.0, np.inf, np.inf]  # item 1 is not listed, item 3 has no training event


def test_metrics_of_lists_by_hand() -> None:
    data = dataset_of([(account, "p q r p") for account in "abcd"])
    split = split_dataset(data, SplitConfig())
    p, q, nothing = data.item_index["p"], data.item_index["q"], -1
    lists = np.full((4, peers.LIST_LENGTH), nothing)
    lists[0, 0] = p
    lists[1, :2] = q, p
    lists[2, 9] = p  # within 20, not within 5
    actual = peers.metrics_of(lists, split)
    assert actual["RC@5"] == 2 / 4
    assert actual["RC@20"] == 3 / 4
    assert actual["MRR@5"] == pytest.approx((1 + 1 / 2) / 4)
    assert actual["MRR@20"] == pytest.approx((1 + 1 / 2 + 1 / 10) / 4)


def test_lists_of_the_peer_are_in_the_order_of_the_accounts() -> None:
    asked, account, rank = np.array([7, 3, 5]), np.array([3, 3, 7]), np.array([2, 1, 1])
    lists = rectools_side.as_lists(asked, account, rank, np.array([10, 11, 12]), 2)
    assert lists.tolist() == [[12, -1], [11, 10], [-1, -1]]


def test_our_side_lists_what_evaluation_ranks() -> None:
    from lightgc2n.data.dataset import Domain
    from lightgc2n.metrics.ranks import target_ranks
    from lightgc2n.training.run import new_model

    random = np.random.default_rng(0)
    names = [f"i{number:02}" for number in range(30)]
    logs = [(f"a{row}", " ".join(random.choice(names, 12))) for row in range(40)]
    split = split_dataset(dataset_of(logs), SplitConfig())
    model = new_model("sasrec", split, {"width": 8, "max_length": 6}, seed=0).eval()
    learned, catalogue = split.train.popularity > 0, Domain("all", 0, split.train.items)
    ranks = target_ranks("sasrec", model, split.test, catalogue, learned=learned)
    listed = peers.ranks_in(peers._lists(model, split), split.test.target, learned)
    assert listed.tolist() == np.where(ranks <= peers.LIST_LENGTH, ranks, np.inf).tolist()


def test_the_report_sets_the_same_model_of_both_sides_beside_each_other() -> None:
    metrics = dict.fromkeys(peers.SHOWN, 0.25)

    def actual(epochs: list[float]) -> object:
        return peers.Found(epochs, [9.0], [18.0], [3 * 2**20], [metrics, dict.fromkeys(metrics, 0.75)])

    rows = {
        ("lightgc2n", "sasrec"): actual([1.0, 2.0, 9.0]),
        ("RecTools", "sasrec"): actual([5.0]),
        ("RecTools", "ease"): actual([]),
    }
    ours, theirs, ease = peers.report(rows).splitlines()[2:]
    assert ours == "| lightgc2n: sasrec | 2.00 | 1.00 - 9.00 | 2.5 | 9.0 | 18.0 | 3 | 50.00 | 50.00 | 50.00 | 50.00 |"
    assert theirs.startswith("| RecTools: SASRec | 5.00 | 5.00 - 5.00 |  | 9.0 | 18.0 | 3 | 50.00 |")
    assert ease.startswith("| RecTools: EASE |  |  |  | 9.0 | 18.0 | 3 | 50.00 |")
