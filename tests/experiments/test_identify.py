"""The study of people: labels stay with the scorer, chance is what it says, and runs take part by latent users."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lightgc2n.data.dataset import Dataset, load_dataset
from lightgc2n.data.members import Members, load_members
from lightgc2n.errors import DataError, SettingError
from lightgc2n.experiments import identify as identify_module
from lightgc2n.experiments.identify import (
    METHODS,
    Identified,
    IdentifyOptions,
    choose_methods,
    identify,
    known_people,
    shown_logs,
)
from lightgc2n.experiments.identify_latent import affinity, latent_methods, ownership
from lightgc2n.experiments.identify_tables import write_identified, write_reliability
from lightgc2n.people.contrast_method import Examples
from lightgc2n.people.reference_methods import REFERENCE_METHODS, Method
from lightgc2n.people.sessions import Logs
from lightgc2n.recommending.loading import load
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import train_run
from lightgc2n.training.runs import RunPlan, load_run
from tests.worlds import dataset_of

FEW = ["one-person", "random-sessions", "session-k-means", "session-dbscan"]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town") / "data"
    generate(HouseholdConfig(accounts=80), seed=3, out=folder)
    return folder


@pytest.fixture(scope="module")
def world(town: Path) -> tuple[Dataset, Members]:
    members = load_members(town)
    assert members is not None
    return load_dataset(town), members


@pytest.fixture(scope="module")
def actual(world: tuple[Dataset, Members]) -> Identified:
    return identify(*world, FEW)


def value(actual: Identified, table: str, method: str, measure: str) -> float:
    return float(actual.result["tables"][table][method]["measures"][measure]["accounts"]["value"])


def tiny(labels: str = "abacd") -> tuple[Dataset, Members]:
    """Three accounts; the first two are read as two lines, since a year ends in between."""
    days = [[0], [400, 401], [3], [5]]
    times = [[day * 86_400 for day in line] for line in days]
    data = dataset_of([("x", "p"), ("x", "q p"), ("y", "r"), ("z", "p")], times=times)
    names = sorted(set(labels))
    return data, Members(
        [f"h-{name}" for name in names], np.array([names.index(one) for one in labels], dtype=np.int32)
    )


def test_no_reference_method_is_hidden_by_another() -> None:
    assert all(METHODS[name] is method for name, method in REFERENCE_METHODS.items())


def test_every_method_is_in_its_tables(actual: Identified) -> None:
    assert list(actual.result["tables"]["given"]) == FEW[:3]  # DBSCAN finds its own count
    assert list(actual.result["tables"]["inferred"]) == FEW
    assert value(actual, "inferred", "one-person", "singles split") == 0
    assert value(actual, "given", "session-k-means", "ARI") > value(actual, "given", "random-sessions", "ARI")


def test_whoever_knows_the_people_is_right_and_chance_is_not(
    world: tuple[Dataset, Members], monkeypatch: pytest.MonkeyPatch
) -> None:
    def knows(logs: Logs, count: object, random: object) -> np.ndarray:
        return np.asarray(world[1].of_event).astype(np.int64)

    monkeypatch.setitem(identify_module.METHODS, "knows", Method(knows))
    row = identify(*world, ["knows"]).result["tables"]["given"]["knows"]
    assert all(row["measures"][name]["events"]["value"] == 1 for name in ("ARI", "NMI", "accuracy", "least served"))
    assert row["chance"]["ARI"] < 0.5


def test_chance_of_random_sessions_is_what_they_score(actual: Identified) -> None:
    row = actual.result["tables"]["given"]["random-sessions"]
    interval = row["measures"]["ARI"]["accounts"]
    assert interval["low"] < row["chance"]["ARI"] < interval["high"]
    shared = row["measures"]["shared ARI"]["accounts"]
    assert shared["low"] < row["chance"]["shared ARI"] < shared["high"]
    alone = actual.result["tables"]["given"]["one-person"]
    assert alone["chance"]["ARI"] == pytest.approx(alone["measures"]["ARI"]["accounts"]["value"])


def test_no_method_is_shown_a_label(world: tuple[Dataset, Members], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Logs, np.ndarray | None]] = []

    def spy(logs: Logs, count: np.ndarray | None, random: object) -> np.ndarray:
        seen.append((logs, count))
        return np.zeros(len(logs.items), dtype=np.int64)

    monkeypatch.setitem(identify_module.METHODS, "spy", Method(spy))
    data, members = world
    strangers = Members([f"p{one}" for one in range(7)], np.arange(len(data.events), dtype=np.int32) % 7)
    for labels in (members, strangers):
        identify(data, labels, ["spy"])
    assert [count is None for _, count in seen] == [False, True, False, True]
    for logs, _ in seen[1:]:
        assert all(
            np.array_equal(getattr(logs, name), getattr(seen[0][0], name)) for name in ("items", "times", "vectors")
        )
        assert logs.training is not None
        assert seen[0][0].training is not None
        assert np.array_equal(logs.training.items, seen[0][0].training.items)
    assert not np.array_equal(seen[0][1], seen[2][1])  # type: ignore[arg-type]


def test_what_is_learned_from_is_training_events_of_all_accounts(world: tuple[Dataset, Members]) -> None:
    _, _, logs = shown_logs(world[0], IdentifyOptions(accounts="validation"))
    training = logs.training
    assert training is not None
    assert logs.row is not None
    assert training.accounts == 80
    for place, row in enumerate(logs.row):
        whole = logs.items[logs.offsets[place] : logs.offsets[place + 1]]
        learned = training.items[training.offsets[row] : training.offsets[row + 1]]
        assert np.array_equal(learned, whole[:-2])  # the last two events are targets


def test_contrast_runs_with_and_without_the_count(world: tuple[Dataset, Members]) -> None:
    tables = identify(*world, ["random-sessions", "contrast"]).result["tables"]
    assert list(tables["given"]) == list(tables["inferred"]) == ["random-sessions", "contrast"]
    for table in tables.values():
        ours, chance = (table[name]["measures"]["shared ARI"]["accounts"] for name in ("contrast", "random-sessions"))
        assert ours["low"] > chance["high"]
    assert "reliability" not in tables["given"]["contrast"]
    told = tables["inferred"]["contrast"]["reliability"]
    assert told["accounts"] == 80
    assert sum(line["accounts"] for line in told["tenths"]) == 80


def test_methods_with_examples_are_scored_on_other_accounts(
    world: tuple[Dataset, Members], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Logs, Examples]] = []

    def spy(logs: Logs, count: object, random: object, *, examples: Examples) -> np.ndarray:
        seen.append((logs, examples))
        return np.zeros(len(logs.items), dtype=np.int64)

    monkeypatch.setitem(identify_module.METHODS, "spy", Method(spy, given=False, needs="examples"))
    identify(*world, ["spy"], IdentifyOptions(accounts="test"))
    logs, examples = seen[0]
    assert logs.row is not None
    assert examples.logs.row is not None
    assert sorted([*logs.row, *examples.logs.row]) == list(range(80))
    _, places, shown = shown_logs(world[0], IdentifyOptions(accounts="validation"))
    assert np.array_equal(examples.people, known_people(world[1], places, shown).people)
    for part in ("all", "validation"):
        with pytest.raises(DataError, match="--accounts test"):
            identify(*world, ["spy"], IdentifyOptions(accounts=part))


def test_taught_methods_and_length_alone(world: tuple[Dataset, Members], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    actual = identify(*world, ["length-alone", "contrast-taught"], IdentifyOptions(accounts="test"))
    assert not actual.result["tables"]["given"]
    rows = actual.result["tables"]["inferred"]
    assert list(rows) == ["length-alone", "contrast-taught"]
    assert all(0 < row["reliability"]["confidence"] < 1 for row in rows.values())
    assert write_identified(actual, tmp_path / "out") == ""
    assert (tmp_path / "out" / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert "contrast-taught: mean confidence in its counts" in (tmp_path / "out" / "results.md").read_text()


def test_without_matplotlib_there_is_a_line_and_no_picture(
    actual: Identified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgc2n.experiments.identify_tables.find_spec", lambda name: None)
    result = {"tables": {"inferred": {"any": {"reliability": {}}}}, "dataset": {"name": "any"}}
    assert "matplotlib is not installed" in write_reliability(result, tmp_path)
    assert write_reliability(actual.result, tmp_path) == ""  # nobody there says how sure they are
    assert not list(tmp_path.iterdir())


def test_an_account_is_one_log_and_a_guest_is_not_behind_it() -> None:
    data, members = tiny("abadc")
    accounts, places, logs = shown_logs(data, IdentifyOptions())
    assert (accounts.tolist(), places.tolist(), logs.offsets.tolist()) == ([0, 1, 2], [0, 1, 2, 3, 4], [0, 3, 4, 5])
    assert known_people(members, places, logs).people.tolist() == [2, 1, 1]
    guests = replace(members, names=["h-a", "h-guest", "h-c", "x-guest"])
    assert known_people(guests, places, logs).people.tolist() == [1, 1, 1]  # y is a guest's alone, and one person's
    assert known_people(guests, places, logs).member.tolist() == [0, 1, 0, 3, 2]


def test_unknown_members_are_no_people() -> None:
    data, members = tiny()
    hidden = replace(members, of_event=np.array([0, -1, -1, 2, 3], dtype=np.int32))
    result = identify(data, hidden, ["one-person"]).result
    assert result["counts"]["accounts_by_people"] == {"1": 3}
    assert result["counts"]["events_of_unknown_members"] == 2
    nobody = replace(members, of_event=np.full(5, -1, dtype=np.int32))
    with pytest.raises(DataError, match="no event has a label"):
        identify(data, nobody, ["one-person"])


def test_methods_that_are_gone_name_the_one_that_is_left() -> None:
    with pytest.raises(SettingError, match="Use contrast"):
        choose_methods(["one-person", "habits"])


def test_settings_are_chosen_on_other_accounts_than_those_tested(world: tuple[Dataset, Members]) -> None:
    parts = {part: shown_logs(world[0], IdentifyOptions(accounts=part, seed=4))[0] for part in ("validation", "test")}
    assert len(parts["validation"]) == 24  # three in ten of 80
    assert sorted([*parts["validation"], *parts["test"]]) == list(range(80))
    assert parts["test"].tolist() == shown_logs(world[0], IdentifyOptions(accounts="test"))[0].tolist()


def test_a_longer_gap_binds_more(world: tuple[Dataset, Members]) -> None:
    usual, day = (identify(*world, ["one-person"], IdentifyOptions(gap=gap)).result["sessions"] for gap in (0.0, 24.0))
    assert (usual["gap_hours"], day["gap_hours"]) == (1, 24)
    assert usual["sessions"] > day["sessions"]
    assert usual["of_one_person"] > 0.95 > day["of_one_person"]


def test_invalid_options_are_errors() -> None:
    data, members = tiny()
    with pytest.raises(SettingError, match="Did you mean 'session-k-means'"):
        identify(data, members, ["sesion-k-means"])
    with pytest.raises(DataError, match="session-k-means-hours: needs hours"):
        identify(data, members, ["session-k-means-hours"])
    assert "session-k-means-hours" in identify(data, members, ["all"]).result["left_out"]
    windows = dataset_of([("x", "p q r")], kind="windows")
    with pytest.raises(DataError, match="not logs"):
        identify(windows, members, ["one-person"])


def test_what_is_written(actual: Identified, world: tuple[Dataset, Members], tmp_path: Path) -> None:
    write_identified(actual, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == actual.result
    with (tmp_path / "out" / "accounts.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["count"], row["method"]) == ("inferred", "session-k-means")]
    assert [row["account"] for row in rows] == list(world[0].accounts)
    mean = np.mean([float(row["ARI"]) for row in rows])
    assert mean == pytest.approx(value(actual, "inferred", "session-k-means", "ARI"), abs=1e-5)
    with (tmp_path / "out" / "results.csv").open() as file:
        cells = {(row["count"], row["method"], row["measure"], row["mean over"]): row for row in csv.DictReader(file)}
    cell = cells["inferred", "session-k-means", "ARI", "accounts"]
    assert float(cell["low"]) < mean < float(cell["high"])
    text = (tmp_path / "out" / "results.md").read_text()
    assert text.count("| session-k-means | ") == 2
    assert f"{mean:.3f}" in text


def test_every_account_is_written_under_its_own_name(world: tuple[Dataset, Members], tmp_path: Path) -> None:
    dataset, members = world
    some = identify(dataset, members, ["one-person"], IdentifyOptions(accounts="test"))
    write_identified(some, tmp_path / "out")
    with (tmp_path / "out" / "accounts.csv").open() as file:
        rows = {row["account"]: int(row["events"]) for row in csv.DictReader(file)}
    events = np.bincount(np.repeat(dataset.sequence_accounts, np.diff(dataset.offsets)))
    assert 0 < len(rows) < len(dataset.accounts)
    assert rows == {one: number for one, number in zip(dataset.accounts, events, strict=True) if one in rows}


@pytest.fixture(scope="module")
def run(town: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_run(RunPlan(town, "lightgc2n", training=TrainingConfig(epochs=1)), folder)
    return folder


def test_a_run_gives_methods_by_ownership_and_by_affinity(world: tuple[Dataset, Members], run: Path) -> None:
    tables = identify(*world, ["one-person"], runs=[run, run]).result["tables"]
    names = ["lightgc2n-ownership", "lightgc2n-affinity"]
    assert list(tables["given"]) == [*names, *(f"{name} (run)" for name in names), "one-person"]
    assert tables["inferred"]["lightgc2n-ownership"]["measures"]["ARI"]["accounts"]["value"] < 1


def test_ownership_equals_that_of_the_recommender(world: tuple[Dataset, Members], run: Path) -> None:
    accounts, _, logs = shown_logs(world[0], IdentifyOptions(accounts="validation"))
    name, model, _ = load_run(run)
    shares, recommender = ownership(name, model, logs, accounts), load(run)
    for place in (0, 7):
        told = recommender.ownership(world[0].accounts[accounts[place]])
        own = shares[logs.offsets[place] : logs.offsets[place + 1]]
        assert own == pytest.approx(np.array([event.shares for event in told]), abs=1e-5)
    label = latent_methods(run, world[0], accounts)["lightgc2n-ownership"].find(logs, None, np.random.default_rng(0))
    assert np.array_equal(label, shares.argmax(axis=1))


def test_affinity_by_a_loop(run: Path) -> None:
    _, model, _ = load_run(run)
    with torch.no_grad():
        items, bases = model.encode().items.numpy(), model.alignment.bases.numpy()  # type: ignore[union-attr, operator]
    actual = affinity(model)
    for item in (0, 17):
        strength = [float(items[item] @ base) ** 2 + 1e-4 * len(base) for base in bases]  # Eq. 15
        assert actual[item] == pytest.approx(np.array(strength) / sum(strength), rel=1e-4)


def test_a_run_on_other_data_or_one_domain_is_refused(run: Path, town: Path, tmp_path: Path) -> None:
    data, members = tiny()
    with pytest.raises(DataError, match="trained on other data"):
        identify(data, members, ["one-person"], runs=[run])
    training = TrainingConfig(epochs=1)
    train_run(RunPlan(town, "lightgc2n", domain="video", training=training), tmp_path / "video")
    with pytest.raises(DataError, match="domain 'video' alone"):
        identify(data, members, ["one-person"], runs=[tmp_path / "video"])
