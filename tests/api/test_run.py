"""Runs, bundles and comparisons from Python: equal to those of the command line, typed, and gone when collected."""

import gc
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import lightgc2n as lg
from lightgc2n.api import frames
from lightgc2n.api.calls import progress_html
from lightgc2n.progress import Step
from lightgc2n.training.runs import sole_trainer
from tests.api.world import ACCOUNTS, COLUMNS, data, pandas_frame, polars_frame, run


def command(*words: object, cwd: Path) -> Any:
    """What a command prints with --json."""
    line = [sys.executable, "-m", "lightgc2n", *map(str, words), "--json"]
    done = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def by_command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data and the same run, made by the commands."""
    folder = tmp_path_factory.mktemp("command")
    pandas_frame().to_csv(folder / "log.csv", index=False)
    command("import", "log.csv", "--out", "data", cwd=folder)
    settings = ["--set", "lightgc2n-plus.width=8", "--set", "lightgc2n-plus.max_length=10", "--device", "cpu"]
    command("train", "data", "--model", "lightgc2n-plus", "--epochs", 2, *settings, "--out", "run", cwd=folder)
    return folder


def assert_same_list(listed: Iterable[Any], printed: list[dict[str, Any]]) -> None:
    """Two processes add in another order, so scores may differ in the last digit."""
    for one, other in zip(listed, printed, strict=True):
        assert (one.item_id, one.rank) == (other["item_id"], other["rank"])
        assert one.score == pytest.approx(other["score"], rel=1e-5)


def test_lists_are_those_of_the_command(by_command: Path) -> None:
    (listed,) = command("recommend", "run", "--account", "user3", "-k", 5, cwd=by_command)
    assert_same_list(run().recommend("user3", k=5), listed["items"])


def test_people_are_those_of_the_command(by_command: Path) -> None:
    told = command("people", "run", "--account", "user3", "-k", 5, cwd=by_command)
    actual = run().people("user3", k=5)
    assert (actual.account_id, actual.count, list(actual.chances)) == ("user3", told["count"], told["chances"])
    assert_same_list(actual.people[0].next, told["people"][0]["next"]["items"])


def test_the_test_is_that_of_the_command(by_command: Path) -> None:
    told = command("evaluate", "run", "--device", "cpu", cwd=by_command)["models"]["lightgc2n-plus"]["metrics"]["all"]
    tested = run().evaluate()
    assert tested.metrics == {name: value["value"] for name, value in told.items() if name != "queries"}
    assert tested["MRR@20"] == told["MRR@20"]["value"]


def test_a_comparison_is_that_of_the_command(by_command: Path) -> None:
    models = ["popularity", "markov"]
    told = command("compare", "data", "--models", ",".join(models), cwd=by_command)
    compared = lg.compare(data(), models=models, progress=False)
    frame = compared.to_frame("pandas").set_index("model")
    for name in models:
        assert frame.loc[name, "MRR@20"] == told["models"][name]["metrics"]["all"]["MRR@20"]["value"]
    assert compared.best == told["models"]["markov"]["paired"]["against"]
    assert (compared.examples, "coverage" in frame.columns) == ([], False)
    assert set(compared.details("polars").columns) == {"model", "subset", "queries", "metric", "value", "low", "high"}


def test_results_are_typed() -> None:
    listed = run().recommend("user3", k=4)
    assert isinstance(listed, lg.Recommendations)
    assert [item.rank for item in listed] == [1, 2, 3, 4]
    frame = listed.to_frame()
    assert isinstance(frame, pd.DataFrame), "the data came from pandas"
    assert list(frame) == ["rank", "item_id", "score"]
    assert frame["item_id"].tolist() == [item.item_id for item in listed]
    assert isinstance(listed.to_frame("polars"), pl.DataFrame)
    actual = run().people("user3", k=3)
    assert isinstance(actual, lg.AccountPeople)
    assert isinstance(actual.people[0].next, lg.Recommendations)
    assert len(actual.to_frame()) == len(actual.events) == 9
    assert actual.people_frame()["events"].sum() == 9
    assert set(actual.lists_frame()["person"]) >= {person.name for person in actual.people}


def test_frames_are_of_the_library_of_the_data() -> None:
    made = lg.Dataset.from_frame(polars_frame(), **COLUMNS, progress=False)
    assert isinstance(lg.compare(made, models=["popularity"], progress=False).to_frame(), pl.DataFrame)


@pytest.mark.parametrize(("installed", "wanted"), [(("polars",), pl.DataFrame), (("pandas",), pd.DataFrame)])
def test_the_installed_library_is_used(
    installed: tuple[str, ...], wanted: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames.importlib.util, "find_spec", lambda name: name if name in installed else None)
    assert isinstance(frames.make_frame({"a": [1]}, preferred="pandas"), wanted)


def test_without_a_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(lg.MissingExtraError, match=r"\(polars or pandas\) is not installed.*lightgc2n\[train\]"):
        run().recommend("user3").to_frame()
    with pytest.raises(lg.SettingError, match="pandas is not installed"):
        run().recommend("user3").to_frame("pandas")


def test_history_has_a_row_an_epoch() -> None:
    history = run().history
    assert history["epoch"].tolist() == [0, 1]
    assert history["validation"].max() == run().state.best_value


def test_numbers_are_ids_too() -> None:
    frame = pandas_frame()
    frame["user_id"] = frame["user_id"].str.removeprefix("user").astype(int)
    frame["item_id"] = frame["item_id"].str.removeprefix("i").astype(int)
    made = lg.Dataset.from_frame(frame, **COLUMNS, progress=False)
    trained = lg.train(made, model="sasrec", epochs=1, settings={"width": 8}, progress=False)
    assert trained.recommend(3, k=2).account_id == "3"
    assert list(trained.recommend(history=[1, 2], k=2, deny=[5])) == list(
        trained.recommend(history=["1", "2"], k=2, deny=["5"])
    )


def test_a_bundle_answers_like_its_run(tmp_path: Path) -> None:
    titles = {item: f"title\nof {item}" for item in data().items}
    run().export(tmp_path / "bundle", titles=titles)
    bundle = lg.load(tmp_path / "bundle")
    assert isinstance(bundle, lg.Bundle)
    ids = [item.item_id for item in bundle.recommend(history=["i1", "i2"], k=5)]
    assert ids == [item.item_id for item in run().recommend(history=["i1", "i2"], k=5)]
    assert bundle.recommend("user3", k=1).to_frame("pandas")["title"][0].startswith("title of i")
    assert len(bundle.similar("i1", k=3)) == 3
    assert (bundle.accounts, bundle.model) == (run().accounts, "lightgc2n-plus")
    assert repr(bundle).startswith("<Bundle of lightgc2n-plus: 15 items, 24 accounts of 'frame'")


def test_a_run_with_out_is_kept_in_that_folder(tmp_path: Path) -> None:
    made = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False).save(tmp_path / "data")
    first = lg.train(made, model="sasrec", epochs=1, settings={"width": 8}, out=tmp_path / "run", progress=False)
    wanted = list(first.recommend("user3", k=3))
    del first
    gc.collect()
    again = lg.load(tmp_path / "run")
    assert isinstance(again, lg.Run)
    assert list(again.recommend("user3", k=3)) == wanted
    more = lg.train(made, model="sasrec", epochs=2, settings={"width": 8}, out=tmp_path / "run", progress=False)
    assert more.state.epochs == 2


def test_a_run_whose_data_is_gone_takes_equal_data(tmp_path: Path) -> None:
    made = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False)
    lg.train(made, model="sasrec", epochs=1, settings={"width": 8}, progress=False).save(tmp_path / "run")
    del made
    gc.collect()
    with pytest.raises(lg.DataError, match=r"its dataset is no longer at .*\. Say where it is with data="):
        lg.load(tmp_path / "run")
    again = lg.load(tmp_path / "run", data=lg.Dataset.from_frame(polars_frame(), **COLUMNS, progress=False))
    assert len(again.recommend("user3", k=3)) == 3


def test_a_run_without_out_is_removed_with_its_object() -> None:
    trained = lg.train(data(), model="sasrec", epochs=1, settings={"width": 8}, progress=False)
    folder = trained.folder
    assert (folder / "run.json").exists()
    del trained
    gc.collect()
    assert not folder.parent.exists()


def test_a_run_is_not_saved_while_it_is_trained(tmp_path: Path) -> None:
    """Its best weights would be of one epoch, and what it says of them of another."""
    with sole_trainer(run().folder), pytest.raises(lg.OutputError, match="is being trained by another process"):
        run().save(tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_path_can_be_trained_on(tmp_path: Path) -> None:
    pandas_frame().to_csv(tmp_path / "log.csv", index=False)
    trained = lg.train(tmp_path / "log.csv", model="sasrec", epochs=1, settings={"width": 8}, progress=False)
    assert trained.data.checksum == data().checksum


def test_a_run_starts_from_another() -> None:
    later = lg.train(data(), epochs=1, from_run=run(), progress=False)
    assert later.model == "lightgc2n-plus"
    assert later.state.best_value >= run().state.best_value, "the weights it starts from are measured first"


def test_results_say_what_they_are() -> None:
    listed = run().recommend("user3", k=2)
    assert repr(listed).startswith("2 items for account 'user3', best first\n")
    assert listed[0].item_id in repr(listed)
    assert f">{listed[0].item_id}</td>" in listed._repr_html_()
    assert repr(run()).startswith("<Run of lightgc2n-plus on 'frame': 2 epochs, best validation MRR@20")
    found = run().people("user3")
    assert ("one person" if found.count == 1 else f"{found.count} people") in repr(found).splitlines()[0]
    assert all(f"{one.events:,} ({100 * one.share:.0f} %)" in repr(found) for one in found.people)
    assert found.people[0].next[0].item_id in repr(found)
    compared = lg.compare(data(), models=["popularity", "markov"], progress=False)
    assert "MRR@20" in repr(compared)
    assert "<b>" in compared._repr_html_(), "the best values are bold"
    assert f"{ACCOUNTS} test targets" in repr(run().evaluate())


def test_lists_for_all_accounts() -> None:
    lists = list(run().recommend_many(k=2))
    assert [one.account_id for one in lists] == list(run().accounts)
    assert list(lists[3]) == list(run().recommend(lists[3].account_id, k=2))


def test_models_are_listed() -> None:
    assert {"popularity", "sasrec", "lightgc2n-plus"} <= set(lg.list_models())
    assert "popularity" in lg.list_models(simple=True)
    assert "popularity" not in lg.list_models(simple=False)


def test_a_run_that_stays_says_that_its_data_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lg.train(data(), model="sasrec", epochs=1, settings={"width": 8}, out=tmp_path / "run")
    assert "data.save(FOLDER) keeps it" in capsys.readouterr().err
    kept = lg.Dataset.from_frame(pandas_frame(), **COLUMNS, progress=False).save(tmp_path / "data")
    lg.train(kept, model="sasrec", epochs=1, settings={"width": 8}, out=tmp_path / "other")
    assert "data.save" not in capsys.readouterr().err


def test_progress_of_a_notebook_is_a_bar_and_a_sentence() -> None:
    step = Step("epoch <3>", 8)
    step.advance(2)
    shown = progress_html("so far & on", step)
    assert shown["text/plain"] == "so far & on, epoch <3> 25 %"
    assert '<progress value="2" max="8">' in shown["text/html"]
    assert "so far &amp; on" in shown["text/html"]
    assert progress_html("", None) == {"text/html": "", "text/plain": ""}


def test_progress_is_shown_or_silent(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (True, False):
        lg.compare(data(), models=["popularity"], progress=progress)
        shown = capsys.readouterr()
        assert shown.out == ""
        assert ("model 1 of 1: popularity" in shown.err) == progress


def test_a_refreshed_run_counts_newer_events(tmp_path: Path) -> None:
    frame = pandas_frame()
    later = frame["timestamp"].max() + 86_400
    newer = pd.concat([frame, pd.DataFrame({"user_id": "late", "item_id": ["i1", "new"], "timestamp": later})])
    fresh = run().refresh(lg.Dataset.from_frame(newer, **COLUMNS, progress=False))
    assert fresh.folder != run().folder
    assert "new" in [one.item_id for one in fresh.recommend("late", k=16)]
    assert fresh.people("late").count >= 1
    kept = run().refresh(data(), out=tmp_path / "fresh")
    assert kept.folder == tmp_path / "fresh"
    again = lg.load(tmp_path / "fresh").recommend("user3", k=5)
    assert_same_list(kept.recommend("user3", k=5), [one._asdict() for one in again])


def test_a_comparison_shows_examples_and_measures_beyond_accuracy() -> None:
    compared = lg.compare(data(), models=["popularity", "markov"], examples=2, metrics="all", progress=False)
    assert [set(one["lists"]) for one in compared.examples] == 2 * [{"popularity", "markov"}]
    told = compared.result["models"]["markov"]["beyond"]["coverage"]["value"]
    assert compared.to_frame("pandas").set_index("model").loc["markov", "coverage"] == told
    shown = repr(compared)
    assert "beyond accuracy" in shown
    assert shown.count("history, newest first") == 2
    with pytest.raises(lg.SettingError, match="metrics=: expected accuracy or all, found 'some'"):
        lg.compare(data(), models=["popularity"], metrics="some", progress=False)
