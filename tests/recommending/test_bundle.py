"""A bundle answers as its run does: for accounts, for accounts with other histories, and for histories alone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lightgc2n
from lightgc2n.errors import DataError, SettingError
from lightgc2n.recommending import onnx_scorer
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import TorchScorer
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.recommending.onnx_scorer import OnnxScorer
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.recommending.results import Recommendations
from tests.cli.test_commands import run
from tests.export.town import EXPORTED, bundle_of, run_of
from tests.recommending.test_recommender import log_of

NEAR = 1e-5  # relative: scores nearer than this may stand in another order

ABLATIONS = (
    *("lightgc2n-wo-la", "lightgc2n-wo-dr", "lightgc2n-wo-c", "lightgc2n-wo-s", "lightgc2n-wo-a"),
    *(f"lightgc2n-plus-wo-{part}" for part in ("people", "state", "steps", "memory", "trends", "blend")),
)


def pair(model: str) -> tuple[Recommender, Recommender]:
    return load(run_of(model)), load_bundle(bundle_of(model))


def assert_same(found: Recommendations, wanted: Recommendations) -> None:
    """The same items with the same scores; places may be swapped where scores are as good as equal."""
    assert (found.account_id, found.fallback, found.notes) == (wanted.account_id, wanted.fallback, wanted.notes)
    assert [one.rank for one in found] == list(range(1, len(wanted) + 1))
    scores = np.array([one.score for one in wanted])
    near = NEAR * max(1.0, float(np.abs(scores).max(initial=0)))
    np.testing.assert_allclose([one.score for one in found], scores, atol=near, rtol=0)
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.item_id != other.item_id:
            twins = {twin.item_id for twin in wanted if abs(twin.score - other.score) <= 2 * near}
            last = abs(scores[-1] - other.score) <= 2 * near  # its twin may stand just behind the end of the list
            assert one.item_id in twins or last, f"place {place + 1}: {one} in place of {other}"


def ways_to_ask(recommender: Recommender) -> list[tuple[str | None, list[str] | None]]:
    accounts = recommender.dataset.accounts
    logs = [log_of(recommender, account) for account in accounts[:4]]
    items = list(recommender.dataset.items)
    return [
        *((account, None) for account in accounts[:12]),
        (accounts[0], logs[0][::-1]),
        (accounts[1], logs[2]),
        (None, logs[3]),
        ("somebody new", logs[3][:7]),
        (None, logs[0][:1]),
        (None, [logs[0][0]] * 3),
        (None, items[::3] * 2),  # far longer than what sasrec and plus read
        (None, ["?", *logs[1][:4], "!"]),
        (None, []),
        (accounts[2], []),
    ]


@pytest.mark.parametrize("model", EXPORTED)
def test_every_way_to_ask(model: str) -> None:
    torch, onnx = pair(model)
    for account, history in ways_to_ask(torch):
        assert_same(onnx.recommend(account, history), torch.recommend(account, history))


@pytest.mark.parametrize("model", ABLATIONS)
def test_ablations_too(model: str) -> None:
    torch, onnx = pair(model)
    log = log_of(torch, torch.dataset.accounts[5])
    for account, history in ((torch.dataset.accounts[5], None), (torch.dataset.accounts[4], log), (None, log[:6])):
        assert_same(onnx.recommend(account, history), torch.recommend(account, history))


@pytest.mark.parametrize("model", ["lightgc2n", "lightgc2n-wo-dr", "lightgc2n-plus"])
def test_whose_events_they_were(model: str) -> None:
    torch, onnx = pair(model)
    for account, history in ways_to_ask(torch):
        found, wanted = onnx.ownership(account, history), torch.ownership(account, history)
        assert (found.account_id, found.notes) == (wanted.account_id, wanted.notes)
        assert [one.item_id for one in found] == [one.item_id for one in wanted]
        np.testing.assert_allclose(found.weights, wanted.weights, atol=1e-5)
        if len(wanted):
            np.testing.assert_allclose([one.shares for one in found], [one.shares for one in wanted], atol=1e-5)


@pytest.mark.parametrize("model", ["sasrec", "lightgc2n-wo-c", "lightgc2n-plus-wo-people"])
def test_without_latent_users_it_says_so(model: str) -> None:
    onnx = load_bundle(bundle_of(model))
    with pytest.raises(SettingError, match="this model has no latent users"):
        onnx.ownership(onnx.dataset.accounts[0])


@pytest.mark.parametrize("model", EXPORTED)
def test_what_may_be_listed(model: str) -> None:
    torch, onnx = pair(model)
    account, items = torch.dataset.accounts[3], list(torch.dataset.items)
    log = log_of(torch, account)
    new = [items[place] for place in np.flatnonzero(onnx.scorer.popularity == 0)]
    assert new, "some item must be new, or the last wish says nothing"
    wishes: list[dict[str, object]] = [
        {"exclude_seen": True},
        {"allow": items[4::7], "k": 5},
        {"deny": items[:40]},
        {"domain": "video", "exclude_seen": True},
        {"allow": log, "exclude_seen": True},
        {"allow": [*items[:3], *new], "k": 50},
        {"k": 10_000},
    ]
    for wish in wishes:
        for asked in ((account, None), (None, log[:5]), (None, [])):
            assert_same(onnx.recommend(*asked, **wish), torch.recommend(*asked, **wish))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", EXPORTED)
def test_many_at_once_equal_one_by_one(model: str) -> None:
    torch, onnx = pair(model)
    accounts = [*torch.dataset.accounts[::-3], torch.dataset.accounts[5]]
    for many, single in zip(onnx.recommend_many(accounts, k=6), accounts, strict=True):
        assert_same(many, onnx.recommend(single, k=6))
        assert_same(many, torch.recommend(single, k=6))
    assert len(list(onnx.recommend_many(k=1))) == len(torch.dataset.accounts)
    assert list(onnx.recommend_many([])) == []


@pytest.mark.parametrize("model", EXPORTED)
def test_questions_of_all_kinds_are_answered_together(model: str) -> None:
    torch, onnx = pair(model)
    items = list(torch.dataset.items)
    wishes: list[dict[str, object]] = [{"k": 3}, {"exclude_seen": True, "k": 30}, {"deny": items[:20]}]
    asked = [(*ask, wishes[place % 3]) for place, ask in enumerate(ways_to_ask(torch))]
    questions = [onnx.prepare(account, history, **wish) for account, history, wish in asked]  # type: ignore[arg-type]
    for found, (account, history, wish) in zip(onnx.answer(questions), asked, strict=True):
        assert_same(found, torch.recommend(account, history, **wish))  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="at least 1, found 0"):
        onnx.prepare(history=items[:2], k=0)


def test_what_an_account_holds_beyond_its_history_counts(tmp_path: Path) -> None:
    """Of lines without times the longest is the history, and the graph knows of the others."""
    from lightgc2n.data.dataset import Domain, write_dataset
    from lightgc2n.data.splits import SplitConfig
    from lightgc2n.export.write_bundle import ExportOptions, export_run
    from lightgc2n.training.loop import TrainingConfig
    from lightgc2n.training.run import train_run
    from lightgc2n.training.runs import RunPlan

    random, lengths = np.random.default_rng(0), [6, 3] * 12
    (tmp_path / "data").mkdir()
    write_dataset(
        tmp_path / "data",
        **{"name": "lines", "kind": "logs", "accounts": [f"a{n}" for n in range(12)]},  # type: ignore[arg-type]
        items=[f"i{n}" for n in range(20)],
        domains=[Domain("all", 0, 20)],
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        sequence_accounts=np.repeat(np.arange(12), 2),
        events=random.integers(20, size=sum(lengths)),
    )
    split = SplitConfig(protocol="cold-accounts")
    training = TrainingConfig(epochs=1, batch_size=4)
    train_run(RunPlan(tmp_path / "data", "lightgc2n", split=split, training=training), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "bundle", ExportOptions())
    torch, onnx = load(tmp_path / "run"), load_bundle(tmp_path / "bundle")
    assert len(onnx.scorer.server.held_items) > 0
    different = 0
    for account in torch.dataset.accounts:
        wanted = torch.recommend(account)
        assert_same(onnx.recommend(account), wanted)
        log = [torch.dataset.items[event] for event in onnx.prepare(account).events]
        assert_same(onnx.recommend(account, log), torch.recommend(account, log))
        different += wanted.items != torch.recommend(account, log).items
    assert different > 0, "or what is held beyond says nothing"


def test_bytes_keep_the_ranking() -> None:
    for model in EXPORTED:
        exact, rounded = load_bundle(bundle_of(model)), load_bundle(bundle_of(model, int8=True))
        assert reciprocal_ranks(rounded) >= 0.99 * reciprocal_ranks(exact), model
        log = log_of_bundle(exact, 0)
        whole, parts = rounded.recommend(history=log), rounded.answer([rounded.prepare(history=log)] * 3)
        for part in parts:
            assert_same(part, whole)  # one question is rounded like many


def log_of_bundle(bundle: Recommender, account: int) -> list[str]:
    return [bundle.dataset.items[event] for event in bundle.prepare(bundle.dataset.accounts[account]).events]


def reciprocal_ranks(bundle: Recommender) -> float:
    """MRR@20 over the newest ten events of each account, each asked with what was before it."""
    gains = []
    for account in range(len(bundle.dataset.accounts)):
        log = log_of_bundle(bundle, account)
        places = range(max(1, len(log) - 10), len(log))
        scores = bundle.scorer.unfiltered_scores([bundle.prepare(history=log[:place]).batch for place in places])
        targets = [bundle.dataset.item_index[log[place]] for place in places]
        rank = 1 + (scores > scores[np.arange(len(targets)), targets][:, None]).sum(axis=1)
        gains += np.where(rank <= 20, 1 / rank, 0).tolist()
    return float(np.mean(gains))


def test_a_device_part_alone_answers_histories(tmp_path: Path) -> None:
    whole = load_bundle(bundle_of("lightgc2n"))
    alone = load_bundle(_copied(bundle_of("lightgc2n"), tmp_path / "phone", without_server=True))
    log = log_of_bundle(whole, 2)
    assert_same(alone.recommend(history=log), whole.recommend(history=log))
    with pytest.raises(DataError, match=r"unknown account 'h000002' \(none is known here\)"):
        alone.recommend("h000002")


def _copied(bundle: Path, to: Path, without_server: bool) -> Path:
    import shutil

    shutil.copytree(bundle, to, ignore=shutil.ignore_patterns("server") if without_server else None)
    return to


def test_accounts_without_histories() -> None:
    whole, bare = load_bundle(bundle_of("lightgc2n")), load_bundle(bundle_of("lightgc2n", histories=False))
    account, log = whole.dataset.accounts[2], log_of_bundle(whole, 2)
    assert_same(bare.recommend(account, log), whole.recommend(account, log))
    with pytest.raises(DataError, match=r"holds no histories\. Give history="):
        bare.recommend(account)
    assert not (bundle_of("sasrec", histories=False) / "server").exists(), "nothing is left to be known of accounts"


@pytest.mark.parametrize(("scores", "cells"), [(3, 2**20), (2**22, 400), (0, 0)])
def test_few_rows_at_a_time_give_the_same_lists(scores: int, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = load_bundle(bundle_of("lightgc2n"))
    whole, runs = list(bundle.recommend_many(k=5)), []
    monkeypatch.setattr(onnx_scorer, "MOST_SCORES", scores * len(bundle.dataset.items))
    monkeypatch.setattr(onnx_scorer, "MOST_CELLS", cells)
    top_items = OnnxScorer._top_items
    monkeypatch.setattr(OnnxScorer, "_top_items", lambda self, rows: runs.append(rows) or top_items(self, rows))
    for one, other in zip(bundle.recommend_many(k=5), whole, strict=True):
        assert_same(one, other)
    assert len(runs) > 1
    assert all(len(rows) == 1 or len(rows) <= scores for rows in runs)
    assert all(len(rows) == 1 or len(rows) * max(len(row.events) for row in rows) <= cells for rows in runs)


def test_load_takes_either(tmp_path: Path) -> None:
    assert isinstance(lightgc2n.load(run_of("sasrec")).recommender.scorer, TorchScorer)
    assert isinstance(lightgc2n.load(str(bundle_of("sasrec"))).recommender.scorer, OnnxScorer)
    with pytest.raises(SettingError, match="leave out data="):
        lightgc2n.load(bundle_of("sasrec"), data=tmp_path)
    with pytest.raises(SettingError, match="leave out device="):
        lightgc2n.load(bundle_of("sasrec"), device="cuda")
    with pytest.raises(DataError, match="not a run"):
        lightgc2n.load(tmp_path)


@pytest.mark.parametrize("model", EXPORTED)
def test_the_command_gives_the_same_lists(model: str) -> None:
    torch, _ = pair(model)
    account, log = torch.dataset.accounts[3], log_of(torch, torch.dataset.accounts[6])
    for words, wanted in (
        (["--account", account], torch.recommend(account)),
        (["--history", ",".join(log), "--exclude-seen"], torch.recommend(history=log, exclude_seen=True)),
    ):
        done = run("recommend", bundle_of(model), *words, "--json")
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)
        assert_same(lists_from(found), wanted)


def lists_from(found: dict[str, object]) -> Recommendations:
    from lightgc2n.recommending.results import Recommendation

    items = tuple(Recommendation(**one) for one in found["items"])  # type: ignore[attr-defined]
    return Recommendations(found["account_id"], items, found["fallback"], tuple(found["notes"]))  # type: ignore[arg-type]


WITHOUT_TORCH = """
import sys

for package in ("torch", "jaxtyping", "polars", "onnx"):
    sys.modules[package] = None  # importing it fails

import lightgc2n
from lightgc2n.__main__ import main

bundle = lightgc2n.load(sys.argv[1])
account = bundle.accounts[0]
assert len(bundle.recommend(account, exclude_seen=True)) == 20
assert len(bundle.recommend(history=list(bundle.items[:5]))) == 20
assert len(bundle.ownership(account).weights) > 1
sys.argv = ["lightgc2n", "recommend", sys.argv[1], "--account", account, "--people", "--json"]
main()
"""


@pytest.mark.parametrize("model", ["lightgc2n", "lightgc2n-plus"])
def test_no_torch_is_needed(model: str) -> None:
    words = [sys.executable, "-c", WITHOUT_TORCH, str(bundle_of(model))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)[0]["items"]) == 20
