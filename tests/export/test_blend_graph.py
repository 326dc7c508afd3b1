"""The blend in ONNX gives the scores of torch: for histories of all lengths, for newer counts, and nearly as bytes."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from lightgc2n.data.batches import Batch
from lightgc2n.data.dataset import Domain
from lightgc2n.export.blend_graph import Slots
from lightgc2n.export.onnx_builder import FLOAT, INT64, Graph
from lightgc2n.export.write_bundle import ExportOptions, export_run, write_graph, write_weights
from lightgc2n.models.plus.blend import BEHIND
from lightgc2n.models.plus.plus import LightGC2NPlus
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.load_run import load_with_split
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.training.checkpoints import BEST, load_checkpoint
from lightgc2n.training.run import evaluate_run
from tests.export.test_onnx_tables import computed
from tests.export.town import BY_TIME, bundle_of, run_of
from tests.recommending.test_bundle import assert_same, reciprocal_ranks
from tests.recommending.test_recommender import log_of

LENGTHS = (0, 1, 2, 3, 9, 10, 11, 29, 30, 31, 32, 80)  # plus reads 30 events here, and 10 of them have neighbours
NEAR = 1e-6  # of the largest score


def histories(items: int, random: np.random.Generator) -> list[list[int]]:
    """Of each length one over the whole catalogue, items without events included, and one with many repeats."""
    few = random.integers(items, size=4)
    return [random.choice(chosen, size=length).tolist() for length in LENGTHS for chosen in (np.arange(items), few)]


def scores_of_torch(recommender: Recommender, asked: list[list[int]]) -> Any:
    padded = torch.zeros(len(asked), max(LENGTHS), dtype=torch.long)
    for row, history in zip(padded, asked, strict=True):
        row[: len(history)] = torch.tensor(history)
    length, nobody = torch.tensor([len(history) for history in asked]), torch.full((len(asked),), -1)
    everything = Domain("all", 0, len(recommender.dataset.items))
    return recommender.scorer.model.scores(
        recommender.scorer._encoded, Batch(nobody, padded, length), everything
    ).numpy()


def graph_of(recommender: Recommender, int8: bool) -> tuple[Graph, Any]:
    return write_graph(recommender.scorer.model, len(recommender.dataset.items), int8)


def scores_of_graph(recommender: Recommender, asked: list[list[int]], folder: Path, int8: bool = False) -> Any:
    folder.mkdir(exist_ok=True)
    graph, _ = graph_of(recommender, int8)
    write_weights(folder, graph, {})
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    padded = np.full((len(asked), max(LENGTHS)), -1)
    for row, history in zip(padded, asked, strict=True):
        row[max(LENGTHS) - len(history) :] = history
    nothing = np.zeros((1, len(recommender.dataset.items)), dtype=np.float32)
    feed = {"history": padded, "handicap": nothing, "k": np.array([20])}
    scores, best = session.run(["scores", "best_items"], feed)
    np.testing.assert_array_equal(best, np.argsort(-scores, axis=1, kind="stable")[:, :20])
    return scores


def assert_near(found: Any, wanted: Any, asked: list[list[int]]) -> None:
    """Equal but for rounding; lists without any history are by popularity, so that their scores are only finite."""
    some = np.array([len(history) > 0 for history in asked])
    blended = wanted > -BEHIND / 2
    np.testing.assert_array_equal((found > -BEHIND / 2)[some], blended[some])
    for part in (blended, ~blended):
        chosen = part & some[:, None]
        np.testing.assert_allclose(
            found[chosen], wanted[chosen], atol=NEAR * np.abs(wanted[part]).max(initial=0), rtol=0
        )
    assert np.isfinite(found).all()


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_torch(by_time: bool, seed: int, tmp_path: Path) -> None:
    """With the weights that were fitted, and with random ones, so that no source is too weak to matter."""
    recommender, random = load(run_of(BY_TIME) if by_time else run_of("lightgc2n-plus")), np.random.default_rng(seed)
    blend = recommender.scorer.model.blend
    assert blend.is_fitted
    assert len(blend.mixture) == 11, "six sources of the history, four half-lives, and the learned score"
    if seed:
        drawn = random.normal(size=len(blend.weights))
        drawn[-1] = 1 + abs(drawn[0])
        blend.weights.copy_(torch.tensor(drawn))
        blend.mixture.copy_(torch.tensor(random.dirichlet(np.ones(11))))
    asked = histories(len(recommender.dataset.items), random)
    wanted = scores_of_torch(recommender, asked)
    found = scores_of_graph(recommender, asked, tmp_path)
    assert_near(found, wanted, asked)


def test_every_source_counts(tmp_path: Path) -> None:
    """Each source alone, so that none can be mistaken for another."""
    recommender, random = load(run_of("lightgc2n-plus")), np.random.default_rng(5)
    blend, asked = recommender.scorer.model.blend, histories(len(recommender.dataset.items), random)
    logs = recommender.dataset
    asked += [logs.events[start : start + 25].tolist() for start in logs.offsets[:12]]
    for number in range(1, 11):
        blend.weights.zero_()
        blend.weights[2 * number - 1], blend.weights[2 * number] = 1.5, -0.5
        blend.weights[0], blend.weights[-1] = 0.1, 0.5
        blend.mixture.copy_(0.5 * torch.eye(11)[0] + 0.5 * torch.eye(11)[number])
        wanted = scores_of_torch(recommender, asked)
        found = scores_of_graph(recommender, asked, tmp_path)
        assert_near(found, wanted, asked)
        blend.weights[2 * number - 1], blend.weights[2 * number] = 0, 0
        without = scores_of_torch(recommender, asked)
        assert np.abs(without - wanted).max() > 0.1, f"source {number} says nothing here"


def test_lists_are_the_same_whatever_is_asked(tmp_path: Path) -> None:
    torch_, random = load(run_of("lightgc2n-plus")), np.random.default_rng(0)
    onnx, items = load_bundle(bundle_of("lightgc2n-plus")), torch_.dataset.items
    for history in histories(len(items), random):
        ids = [*(items[item] for item in history), "unknown"]
        for wish in ({}, {"k": 75}, {"exclude_seen": True}, {"deny": list(items[:30]), "k": 40}):
            assert_same(onnx.recommend(history=ids, **wish), torch_.recommend(history=ids, **wish))  # type: ignore[arg-type]


@pytest.mark.parametrize("int8", [False, True])
def test_newer_counts_are_exported(int8: bool, tmp_path: Path) -> None:
    """Under a split by time a run counts up to the test's cut, and so does its bundle."""
    config = export_run(run_of(BY_TIME), tmp_path / "bundle", ExportOptions(int8=int8, people=False))
    torch_, onnx = load(run_of(BY_TIME)), load_bundle(tmp_path / "bundle")
    model = torch_.scorer.model
    assert isinstance(model, LightGC2NPlus)
    assert model.newer_followers is not None
    tables = load_file(tmp_path / "bundle" / "weights.safetensors")
    old, new = int((model.followers.counts > 0).sum()), int((model.newer_followers.counts > 0).sum())
    name = "bytes" if int8 else "columns"
    assert (len(tables[f"followers.{name}"]), len(tables[f"newer_followers.{name}"])) == (old, new)
    assert new > old
    ranks = evaluate_run(run_of(BY_TIME)).ranks["lightgc2n-plus"]
    assert config["metrics"]["values"]["MRR@20"] == pytest.approx(float(np.where(ranks <= 20, 1 / ranks, 0).mean()))
    np.testing.assert_array_equal(onnx.scorer.popularity > 0, model.rankable.numpy())
    if not int8:
        for account in torch_.dataset.accounts[:15]:
            assert_same(onnx.recommend(account), torch_.recommend(account))
            history = log_of(torch_, account)[:8]
            assert_same(onnx.recommend(history=history), torch_.recommend(history=history))
            assert_same(onnx.recommend(history=[]), torch_.recommend(history=[]))


def test_a_run_without_a_fitted_blend_keeps_the_counts_of_training(tmp_path: Path) -> None:
    """Such runs, which earlier versions wrote, answer as they did."""
    shutil.copytree(run_of(BY_TIME), tmp_path / "run")
    tensors, _, progress = load_checkpoint(tmp_path / "run" / BEST)
    tensors["blend.mixture"] = torch.eye(11)[0]
    save_file(tensors, tmp_path / "run" / BEST, metadata={"progress": json.dumps(asdict(progress))})
    (old, split), fitted = load_with_split(tmp_path / "run"), load(run_of(BY_TIME))
    assert isinstance(old.scorer.model, LightGC2NPlus)
    assert old.scorer.model.newer_followers is None
    np.testing.assert_array_equal(old.scorer.popularity, split.train.popularity)
    assert split.known is not None
    np.testing.assert_array_equal(fitted.scorer.popularity, split.known.popularity)
    assert old.scorer.popularity.sum() < fitted.scorer.popularity.sum()


def test_bytes_keep_the_ranking(tmp_path: Path) -> None:
    for run in (run_of("lightgc2n-plus"), run_of(BY_TIME)):
        for int8 in (False, True):
            export_run(run, tmp_path / str(int8), ExportOptions(int8=int8, people=False), force=True)
        exact, rounded = (reciprocal_ranks(load_bundle(tmp_path / str(int8))) for int8 in (False, True))
        assert rounded >= 0.98 * exact


def test_a_blend_that_is_not_fitted_is_not_exported(tmp_path: Path) -> None:
    """The scores are the learned ones, and no table of the blend is written."""
    recommender = load(run_of("lightgc2n-plus"))
    fitted = graph_of(recommender, True)[0].weights.keys()
    blend = recommender.scorer.model.blend
    blend.mixture.copy_(torch.eye(11)[0])
    assert not blend.is_fitted
    alone, without = (
        graph_of(recommender, True)[0],
        load(run_of("lightgc2n-plus-wo-blend")),
    )
    assert alone.weights.keys() == graph_of(without, True)[0].weights.keys()
    assert [node.op_type for node in alone.nodes] == [node.op_type for node in graph_of(without, True)[0].nodes]
    own = {name for name in fitted if name.split(".")[0] in ("neighbours", "blend", "trends", "newer_followers")}
    assert {"neighbours.bytes", "neighbours.top", "trends.shares"} <= own
    assert not own & alone.weights.keys()
    facts = [json.loads((bundle_of(name) / "config.json").read_text()) for name in (*PLUS, "sasrec")]
    assert [one.get("blend") for one in facts] == [True, None, None]
    assert "Scores join what was learned with counts" in (bundle_of(PLUS[0]) / "README.md").read_text()
    assert "Scores join what was learned with counts" not in (bundle_of(PLUS[1]) / "README.md").read_text()


PLUS = ("lightgc2n-plus", "lightgc2n-plus-wo-blend")


def test_neighbours_as_bytes(tmp_path: Path) -> None:
    """A share is the largest of its row, less 15 % for each code: within half a code, down to the last of them."""
    recommender = load(run_of("lightgc2n-plus"))
    graph, counted = (
        graph_of(recommender, True)[0],
        recommender.scorer.model.blend.neighbours,
    )
    shares = (counted.counts / (counted.total + 5)[:, None]).numpy()
    tables = graph.weights
    items = len(shares)
    high = 2 ** ((items - 1) // 256).bit_length()
    columns = tables["neighbours.lower"] + 256 * (tables["neighbours.bytes"] % high).astype(np.int64)
    np.testing.assert_array_equal(columns, counted.columns.numpy()[shares > 0])
    row, top = np.nonzero(shares)[0], tables["neighbours.top"].astype(np.float64)
    found = top[row] * tables["neighbours.values"][tables["neighbours.bytes"] // high]
    exact = shares[shares > 0]
    lowest = top[row] * max(0.85 ** (256 // high - 1), 1e-3)
    assert np.abs(np.log(found / np.maximum(exact, lowest))).max() < -0.51 * np.log(0.85)
    np.testing.assert_array_equal(tables["neighbours.kept"][1:], (shares > 0).sum(axis=1))


def test_slots_by_hand(tmp_path: Path) -> None:
    """Item 4 stands in columns 0 and 2, so its slot is 2; in the second row item 1 fills all columns."""
    graph = Graph()
    columns = graph.input("columns", INT64, ["B", "C"])
    slots = Slots.of(columns, graph.input("dense", FLOAT, ["B", 6]))
    feed = {"columns": np.array([[4, 0, 4, 5], [1, 1, 1, 1]]), "dense": np.full((2, 6), 0.5, dtype=np.float32)}
    assert computed(graph, slots.of_column.cast(FLOAT), tmp_path, feed).tolist() == [[2, 1, 2, 3], [3, 3, 3, 3]]


def test_batches_of_one_and_of_many(tmp_path: Path) -> None:
    onnx = load_bundle(bundle_of("lightgc2n-plus"))
    logs = [log_of(onnx, account)[:length] for account, length in zip(onnx.dataset.accounts, LENGTHS, strict=False)]  # type: ignore[arg-type]
    together = onnx.answer([onnx.prepare(history=log, k=30) for log in logs])
    for log, many in zip(logs, together, strict=True):
        assert_same(many, onnx.recommend(history=log, k=30))
