"""Who is watching, asked of a run: times, sessions that go on, devices, and questions that cannot be answered."""

from pathlib import Path

import numpy as np
import pytest

import lightgc2n as lg
from lightgc2n import zoo
from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.splits import SplitConfig, split_dataset
from lightgc2n.errors import DataError, SettingError
from lightgc2n.recommending.load_run import load_run, run_recommender
from lightgc2n.recommending.recommender import Recommender
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan
from tests.cli.test_commands import run
from tests.worlds import dataset_of

LATE = "2031-05-04T20:15"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town")
    generate(HouseholdConfig(accounts=150, devices=3), seed=0, out=folder / "data")
    train_run(RunPlan(folder / "data", "sasrec", training=TrainingConfig(epochs=1, batch_size=64)), folder / "run")
    return folder


@pytest.fixture(scope="module")
def recommender(town: Path) -> Recommender:
    return load_run(town / "run")


def shared(recommender: Recommender) -> str:
    """An account with several people."""
    return next(one for one in recommender.dataset.accounts if recommender.people(one, k=1).count > 1)


def newest(recommender: Recommender, account: str) -> int:
    dataset = recommender.dataset
    assert dataset.times is not None
    place = list(dataset.accounts).index(account)
    return int(np.asarray(dataset.times)[int(dataset.offsets[place + 1]) - 1])


def test_one_row_before_and_one_after_each_item(recommender: Recommender) -> None:
    account = shared(recommender)
    item = recommender.dataset.items[0]
    found = recommender.who(account, time=LATE, items=[item, "no such item"])
    assert found.people == tuple(person.name for person in recommender.people(account, k=1).people)
    assert [step.item_id for step in found.steps] == [None, item]
    assert found.going_on == 0
    assert "left out of items that were begun" in found.notes[0]
    assert sum(found.chances.values()) == pytest.approx(1)


def test_a_session_that_goes_on_counts_as_begun(recommender: Recommender) -> None:
    account = shared(recommender)
    last = newest(recommender, account)
    found = recommender.who(account, time=last + 60_000_000)
    events = recommender.people(account, k=1)
    session = [
        event.item_id for event, one in zip(events.events, events.sessions, strict=True) if one == events.sessions[-1]
    ]
    assert [step.item_id for step in found.steps] == [None, *session]
    assert found.going_on == len(session)


def test_the_device_of_a_stored_account(recommender: Recommender) -> None:
    account = shared(recommender)
    plain = recommender.who(account, time=LATE)
    told = [recommender.who(account, time=LATE, context=device).steps[0].chances for device in ("tv", "phone")]
    assert told[0] != told[1] != plain.steps[0].chances
    with pytest.raises(DataError, match="unknown device 'radio'"):
        recommender.who(account, time=LATE, context="radio")


def test_what_cannot_be_answered(recommender: Recommender) -> None:
    account = shared(recommender)
    with pytest.raises(SettingError, match="give the time of the query"):
        recommender.who(account)
    with pytest.raises(SettingError, match="expected a time after the newest event"):
        recommender.who(account, time="1990-01-01")
    with pytest.raises(SettingError, match="expected ISO dates"):
        recommender.who(account, time="tomorrow")
    with pytest.raises(SettingError, match="expected a list of item ids"):
        recommender.who(account, time=LATE, items="v00001")


def test_a_log_without_times_is_asked_without_one() -> None:
    dataset = dataset_of([("a", "x y z x"), ("b", "y z x z y"), ("c", "x")])
    train = split_dataset(dataset, SplitConfig()).train
    recommender = run_recommender("item-knn", zoo.build("item-knn", train, {}), dataset, train)
    found = recommender.who("a", items=["y"])
    assert (found.time, found.chances) == (None, {"A": 1.0})
    with pytest.raises(SettingError, match="the log has no times"):
        recommender.who("a", time=LATE)
    with pytest.raises(SettingError, match="keeps no such column"):
        recommender.who("a", context="tv")


def test_from_python_and_the_command_line(town: Path, recommender: Recommender) -> None:
    account, item = shared(recommender), recommender.dataset.items[3]
    wanted = recommender.who(account, time=LATE, items=[item])
    assert lg.load(town / "run", progress=False).who(account, time=LATE, items=[item]) == wanted
    done = run("people", town / "run", "--account", account, "--who", LATE, "--begun", item)
    assert done.returncode == 0, done.stderr
    assert "Who is probably watching at 2031-05-04 20:15:" in done.stdout
    assert "nothing yet" in done.stdout
    done = run("people", town / "run", "--account", account, "--begun", item)
    assert (done.returncode, "only with --who TIME" in done.stderr) == (2, True)
    assert load_dataset(town / "data").contexts is not None
