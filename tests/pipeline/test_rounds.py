"""Rounds of a pipeline: promotion, a challenger that is worse, rollback, retention, two at once, and killed steps."""

import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from lightgc2n.data.dataset import load_dataset
from lightgc2n.errors import DataError, OutputError, SettingError
from lightgc2n.files.atomic_writes import claim_folder
from lightgc2n.pipeline import steps
from lightgc2n.pipeline.judge import Judgement
from lightgc2n.pipeline.rounds import NEXT_LINK, PipelineFolder
from lightgc2n.pipeline.run_pipeline import roll_back, run_round, state
from lightgc2n.pipeline.settings import PipelineSettings, read_pipeline, write_template
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.store.databases import StoreUnavailableError
from tests.pipeline.shop import ACCOUNTS, STEPS, events_of, settings_of, shop


def link(settings: PipelineSettings) -> str:
    return os.readlink(settings.folder / "live")


def log(settings: PipelineSettings) -> str:
    return (settings.folder / "pipeline.log").read_text()


def best(settings: PipelineSettings, history: list[str]) -> str:
    return load_bundle(settings.folder / "live").recommend(history=history, k=1).items[0].item_id


def test_newer_counts_are_promoted_when_the_shop_changes(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    first = run_round(settings)
    assert (first.round, first.promoted, first.judged) == (1, True, None)
    assert link(settings) == "rounds/0001/bundle"
    store.append(events_of(range(5, 8)))  # days 5 and 6 are counted, day 7 is judged
    second = run_round(settings)
    assert second.promoted
    assert link(settings) == "rounds/0002/bundle"
    judged = second.judged
    assert judged is not None
    assert judged["questions"] == ACCOUNTS * STEPS
    assert (judged["mrr"], judged["rc"]) == (100.0, 100.0)  # the next item of a ring is certain
    assert (judged["live_mrr"], judged["live_rc"]) == (0.0, 0.0)  # the live model has never seen the new ring
    assert best(settings, ["new-2"]) == "new-3"
    entries = json.loads((settings.folder / "promotions.json").read_text())["promotions"]
    assert [(one["round"], one["kind"]) for one in entries] == [(1, "first"), (2, "promoted")]
    assert "judged on 2024-01-07" in log(settings)


def test_without_new_events_nothing_is_done(tmp_path: Path) -> None:
    shop(tmp_path, 5)
    settings = settings_of(tmp_path)
    run_round(settings)
    again = run_round(settings)
    assert not again.promoted
    assert "no event is newer" in again.reason
    assert sorted(os.listdir(settings.folder / "rounds")) == ["0001"]


def test_the_newest_day_is_in_no_judged_model_but_in_the_served_one(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.append(events_of(range(5, 6)))  # the new ring is only in the judged day
    outcome = run_round(settings)
    assert outcome.judged is not None
    assert (outcome.judged["mrr"], outcome.judged["live_mrr"]) == (0.0, 0.0)  # so neither can know it
    assert outcome.promoted  # equal, so not worse
    assert best(settings, ["new-2"]) == "new-3"  # what is served has counted everything


def sasrec(folder: Path, rate: float, **changes: object) -> PipelineSettings:
    """A pipeline with a model without counts, which has to be trained."""
    split = {"protocol": "last", "validation": rate < 1}
    training = {"epochs": 30 if rate < 1 else 2, "learning_rate": rate, "batch_size": 8}
    tables = {"sasrec": {"width": 16, "max_length": 12}, "split": split, "training": training}
    return settings_of(folder, model="sasrec", tables=tables, **changes)


def test_a_worse_challenger_is_not_promoted(tmp_path: Path) -> None:
    store = shop(tmp_path, 5)
    run_round(sasrec(tmp_path, 0.01))
    store.append(events_of(range(5, 6), change=99))  # another day like those before
    settings = sasrec(tmp_path, 30.0, challenger="train")  # far too large a step, and no checkpoint is selected
    outcome = run_round(settings)
    assert not outcome.promoted
    assert outcome.judged is not None
    assert outcome.judged["questions"] == ACCOUNTS * STEPS
    assert outcome.judged["difference"] < -5
    assert "points lower" in outcome.reason
    assert link(settings) == "rounds/0001/bundle"
    assert not (settings.folder / "rounds" / "0002").exists()
    assert [one["kind"] for one in state(settings)["history"]] == ["first", "kept"]


def test_a_model_without_counts_is_trained_and_served_as_it_is(tmp_path: Path) -> None:
    store = shop(tmp_path, 5)
    run_round(sasrec(tmp_path, 0.01))
    store.append(events_of(range(5, 7)))
    with pytest.raises(SettingError, match="no counts to refresh"):
        run_round(sasrec(tmp_path, 0.01))
    assert run_round(sasrec(tmp_path, 0.01, challenger="train")).promoted
    settings = settings_of(tmp_path)
    assert link(settings) == "rounds/0003/bundle"
    assert sorted(os.listdir(settings.folder / "rounds" / "0003")) == ["bundle", "data", "train", "trained"]
    store.erase_account("who07")
    roll_back(settings, to=1)
    assert not load_bundle(settings.folder / "live").knows("who07")


def test_worse_is_a_significant_loss_or_one_beyond_the_tolerance() -> None:
    def judgement(difference: float, low: float, high: float, p: float) -> Judgement:
        return Judgement(500, 50, 20.0, 40.0, 20.0 - difference, 40.0, difference, low, high, p)

    assert not judgement(0.0, 0.0, 0.0, 1.0).is_worse(0.5)
    assert not judgement(-0.4, -1.0, 0.2, 0.3).is_worse(0.5)
    assert judgement(-0.4, -0.6, -0.2, 0.01).is_worse(0.5)  # small, but significant
    assert judgement(-0.6, -2.0, 0.8, 0.4).is_worse(0.5)  # not significant, but large
    assert not judgement(1.2, 0.3, 2.0, 0.01).is_worse(0.0)


def test_rollback_returns_to_an_earlier_bundle_and_forward_again(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.append(events_of(range(5, 8)))
    run_round(settings)
    assert roll_back(settings) == 1
    assert link(settings) == "rounds/0001/bundle"
    with pytest.raises(DataError, match="no earlier bundle"):
        roll_back(settings)
    with pytest.raises(SettingError, match="Kept: 1, 2"):
        roll_back(settings, to=7)
    assert roll_back(settings, to=2) == 2
    assert [one["kind"] for one in state(settings)["history"]] == ["first", "promoted", "rollback", "rollback"]
    assert "rolled back to round 1" in log(settings)


def test_rollback_does_not_return_to_a_bundle_that_was_rolled_back(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path, keep=4)
    run_round(settings)
    store.append(events_of(range(5, 8)))
    run_round(settings)
    assert roll_back(settings) == 1  # round 2 was bad
    store.append(events_of(range(8, 9)))
    assert run_round(settings).promoted
    assert roll_back(settings) == 1
    assert state(settings)["kept"] == [1, 2, 3]


def test_after_a_rollback_the_next_challenger_meets_the_restored_model(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.append(events_of(range(5, 8)))
    run_round(settings)
    roll_back(settings)
    store.append(events_of(range(8, 9)))
    outcome = run_round(settings)
    assert outcome.judged is not None
    assert outcome.judged["live_mrr"] == 0.0  # the model of round 1 has not counted the new ring
    assert outcome.judged["mrr"] == 100.0


def test_old_bundles_go_and_files_of_others_stay(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    mine = [settings.folder / name for name in ("rounds/0001/bundle/notes.txt", "rounds/mine/bundle/config.json")]
    mine += [settings.folder / "rounds" / "0001" / "todo.md"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    for day in range(5, 8):
        store.append(events_of(range(day, day + 1)))
        assert run_round(settings).promoted
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert not (settings.folder / "rounds/0001/bundle/config.json").exists()
    assert not (settings.folder / "rounds/0002").exists()
    assert state(settings)["kept"] == [3, 4]
    assert "which is not removed" in log(settings)


def test_a_number_that_somebody_else_uses_is_left_out(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    shop(tmp_path, 5)
    (settings.folder / "rounds").mkdir(parents=True)
    claim_folder(settings.folder, "a pipeline", ours=True)
    (settings.folder / "rounds" / "0001").symlink_to(tmp_path)
    (settings.folder / "rounds" / "0002").write_text("mine")
    assert run_round(settings).round == 3
    assert (settings.folder / "rounds" / "0001").readlink() == tmp_path


def test_two_pipelines_never_run_at_once(tmp_path: Path) -> None:
    shop(tmp_path, 5)
    settings = settings_of(tmp_path)
    with PipelineFolder(settings.folder).locked(), pytest.raises(OutputError, match="another process"):
        run_round(settings)
    assert run_round(settings).promoted


@pytest.mark.parametrize("what", ["file", "link", "folder"])
def test_a_live_that_the_pipeline_did_not_make_is_left_alone(tmp_path: Path, what: str) -> None:
    shop(tmp_path, 5)
    settings, other = settings_of(tmp_path), tmp_path / "other"
    run_round(settings)
    live = settings.folder / "live"
    live.unlink()
    other.mkdir()
    if what == "file":
        live.write_text("mine")
    elif what == "link":
        live.symlink_to(other)
    else:
        live.mkdir()
    with pytest.raises(OutputError, match="left alone"):
        run_round(settings)
    assert (live.read_text() == "mine") if what == "file" else live.is_dir()


@pytest.mark.parametrize("what", ["file", "link", "folder"])
def test_a_next_link_that_the_pipeline_did_not_make_is_left_alone(tmp_path: Path, what: str) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.append(events_of(range(5, 8)))
    run_round(settings)
    mine, other = settings.folder / NEXT_LINK, tmp_path / "other"
    other.mkdir()
    if what == "file":
        mine.write_text("mine")
    elif what == "link":
        mine.symlink_to(other)
    else:
        mine.mkdir()
    with pytest.raises(OutputError, match="did not make"):
        roll_back(settings)
    assert {"file": mine.is_file(), "link": mine.is_symlink(), "folder": mine.is_dir()}[what]
    assert link(settings) == "rounds/0002/bundle"


def test_a_next_link_that_a_killed_pipeline_left_is_replaced(tmp_path: Path) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.append(events_of(range(5, 8)))
    run_round(settings)
    (settings.folder / NEXT_LINK).symlink_to("rounds/0002/bundle")
    assert roll_back(settings) == 1
    assert not os.path.lexists(settings.folder / NEXT_LINK)


def test_a_folder_of_the_user_is_refused(tmp_path: Path) -> None:
    shop(tmp_path, 5)
    settings = settings_of(tmp_path)
    settings.folder.mkdir()
    (settings.folder / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"thesis\.txt"):
        run_round(settings)
    assert os.listdir(settings.folder) == ["thesis.txt"]


class KilledError(BaseException):
    """Like kill -9: nothing of the step's own handling of errors sees it."""


STEPS_OF_A_ROUND = [*steps.BEFORE_DECISION, *steps.PROMOTED]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", STEPS_OF_A_ROUND)
def test_a_round_resumes_after_a_kill_in_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, moment: str
) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    run_round(settings)
    store.append(events_of(range(5, 8)))
    table = steps.BEFORE_DECISION if name in steps.BEFORE_DECISION else steps.PROMOTED
    real = table[name]

    def killed(work: steps.Work) -> NoReturn:
        if moment == "after":  # the work is done, and the journal does not know
            real(work)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setitem(table, name, killed)
        with pytest.raises(KilledError):
            run_round(settings)
    done = STEPS_OF_A_ROUND[: STEPS_OF_A_ROUND.index(name)]
    assert state(settings)["unfinished"] == {"round": 2, "done": done}
    load_bundle(settings.folder / "live")  # at any time the link leads to a whole bundle
    outcome = run_round(settings)
    assert (outcome.round, outcome.promoted) == (2, True)
    assert link(settings) == "rounds/0002/bundle"
    assert best(settings, ["new-2"]) == "new-3"
    assert [(one["round"], one["kind"]) for one in state(settings)["history"]] == [(1, "first"), (2, "promoted")]
    assert state(settings)["unfinished"] is None
    assert "round 2: resumed" in log(settings)
    assert run_round(settings).promoted is False  # nothing is left to do


def test_other_settings_give_an_interrupted_round_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop(tmp_path, 5)
    settings = settings_of(tmp_path)

    def killed(_work: steps.Work) -> NoReturn:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setitem(steps.PROMOTED, "export", killed)
        with pytest.raises(KilledError):
            run_round(settings)
    assert run_round(settings_of(tmp_path, keep=3)).round == 2
    assert "round 1: given up: the settings have changed" in log(settings)
    assert sorted(os.listdir(settings.folder / "rounds")) == ["0002"]


def test_a_store_that_is_down_keeps_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop(tmp_path, 5)
    settings = settings_of(tmp_path)

    def down(_work: steps.Work) -> NoReturn:
        raise StoreUnavailableError("events.db: gone.")

    with monkeypatch.context() as patched:
        patched.setitem(steps.PROMOTED, "promote", down)
        with pytest.raises(StoreUnavailableError):
            run_round(settings)
    assert run_round(settings).round == 1


def test_a_failed_round_is_not_tried_again(tmp_path: Path) -> None:
    shop(tmp_path, 1)  # nothing is older than a day
    settings = settings_of(tmp_path)
    for number in (1, 2):
        with pytest.raises(DataError, match="older than the newest period"):
            run_round(settings)
        assert f"round {number}: failed" in log(settings)


def test_the_snapshot_of_a_round_names_nothing_of_the_judged_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, settings = shop(tmp_path, 5), settings_of(tmp_path)
    seen: list[set[str]] = []
    real = steps.train

    def look(work: steps.Work) -> steps.Facts:
        seen.append(set(load_dataset(work.round["train"]).items))
        return real(work)

    store.append(events_of(range(5, 6)))
    monkeypatch.setitem(steps.BEFORE_DECISION, "train", look)
    run_round(settings)
    assert seen == [{f"old-{number}" for number in range(6)}]


def test_the_template_reads_back_as_the_defaults(tmp_path: Path) -> None:
    write_template(tmp_path / "p.toml", "events.db")
    read = read_pipeline(tmp_path / "p.toml")
    assert read.store == str(tmp_path / "events.db")
    assert read.folder == tmp_path / "pipeline"
    with pytest.raises(OutputError, match="exists already"):
        write_template(tmp_path / "p.toml", "events.db")
    (tmp_path / "p.toml").write_text('[pipeline]\nstore = "x"\njudge_hours = 1e300\n')
    with pytest.raises(SettingError, match="judge_hours must be at most"):
        read_pipeline(tmp_path / "p.toml")
    write_template(tmp_path / "quote.toml", 'my "own"\\events.db')
    assert read_pipeline(tmp_path / "quote.toml").pipeline.store == 'my "own"\\events.db'
    (tmp_path / "p.toml").write_text('[pipeline]\nstore = "x"\nkeeps = 3\n')
    with pytest.raises(SettingError, match="keep"):
        read_pipeline(tmp_path / "p.toml")
    (tmp_path / "p.toml").write_text('[pipeline]\nstore = "x"\n[trainings]\n')
    with pytest.raises(SettingError, match="training"):
        read_pipeline(tmp_path / "p.toml")


def test_settings_that_are_not_there_are_an_error_that_says_how_to_create_them(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"pipeline init .*shop\.toml"):
        read_pipeline(tmp_path / "shop.toml")
