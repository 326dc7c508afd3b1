"""A search: who goes on, what stopping changes (nothing), and that it never sees the test."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lightgc2n.config import read_tables
from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import LightGC2NError, OutputError, ScoreError, SettingError
from lightgc2n.experiments import search_space, tuning
from lightgc2n.experiments.search_space import Choice
from lightgc2n.experiments.settings_file import command_of, write_tuned
from lightgc2n.experiments.subprocesses import TimeBudget
from lightgc2n.experiments.trials import LOG, Trial, train_trials
from lightgc2n.experiments.tuning import Tuned, TuningPlan, tune
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training import run as run_module
from lightgc2n.training.checkpoints import BEST, LAST, METRICS
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import open_data, train_run
from lightgc2n.training.runs import RunPlan, plan_of
from tests.cli.test_commands import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    generate(HouseholdConfig(accounts=60), seed=3, out=folder)
    return folder


def small(data: Path, trials: int = 4, epochs: int = 3, **more: Any) -> TuningPlan:
    """A search among small models, which is over in seconds."""
    training = TrainingConfig(epochs=epochs, batch_size=64)
    fixed = frozenset({"training.batch_size", "lightgc2n-wo-a.embedding_width", "lightgc2n-wo-a.capsule_width"})
    settings = {"embedding_width": 8, "capsule_width": 8}
    return TuningPlan(RunPlan(data, "lightgc2n-wo-a", settings=settings, training=training), fixed, trials, **more)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tuned]:
    """A search that nobody stopped."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole") / "search"
    return folder, tune(small(data), folder)


def same(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize(
    ("trials", "training", "rungs"),
    [
        (10, TrainingConfig(epochs=45), [(10, 5), (3, 15), (1, 45)]),
        (27, TrainingConfig(epochs=30), [(27, 2), (9, 4), (3, 10), (1, 30)]),  # 30/27 and 30/9, rounded up
        (2, TrainingConfig(epochs=45), [(2, 45)]),
        (10, TrainingConfig(epochs=45, evaluate_every=4), [(10, 8), (3, 16), (1, 45)]),
        (10, TrainingConfig(epochs=2), [(10, 1), (3, 1), (1, 2)]),
    ],
)
def test_rungs_by_hand(trials: int, training: TrainingConfig, rungs: list[tuple[int, int]]) -> None:
    plan = TuningPlan(RunPlan(Path(), "lightgc2n", training=training), trials=trials)
    assert plan.rungs == rungs
    assert replace(plan, halving=False).rungs == [(trials, rungs[-1][1])]


def test_the_command_says_what_is_not_usual() -> None:
    run = RunPlan(Path("D"), "lightgc2n", split=SplitConfig(protocol="time", ask="each-domain", seed=2))
    told = command_of(TuningPlan(replace(run, training=TrainingConfig(epochs=6, seed=2)), trials=8, halving=False))
    assert told == (
        "lightgc2n tune D --model lightgc2n --trials 8 --epochs 6 --protocol time --seed 2 --no-halving "
        '--set split.ask="each-domain"'
    )


def test_the_best_of_each_rung_go_on(whole: tuple[Path, Tuned]) -> None:
    folder, tuned = whole
    values = {}
    for number in range(4):
        rows = [json.loads(row) for row in (folder / f"trial-{number:03}" / METRICS).read_text().splitlines()]
        values[number] = [row["validation"] for row in rows]
    after_one = {number: actual[0] for number, actual in values.items()}
    winner = max(after_one, key=lambda number: (after_one[number], -number))
    assert {number: len(actual) for number, actual in values.items()} == dict.fromkeys(range(4), 1) | {winner: 3}
    assert (tuned.finished, tuned.best["trial"], tuned.best["validation"]) == (True, winner, max(values[winner]))
    assert tuned.best["ended_by"] == "budget"
    assert {row["ended_by"] for row in tuned.rows[1:]} == {"halving"}


def test_given_first_settings_train_all_epochs_beside_the_best(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_standing", lambda epochs, trial: -trial.number)  # the last trial is the best
    tuned = tune(small(data, trials=3, epochs=2, first={"training.clip": 5.0}), tmp_path / "search")
    assert {row["trial"]: row["epochs"] for row in tuned.rows} == {0: 2, 1: 1, 2: 2}


def test_trial_0_is_the_model_as_it_is(data: Path, whole: tuple[Path, Tuned]) -> None:
    folder, tuned = whole
    first = plan_of(folder / "trial-000")
    wanted = small(data).run
    assert first.training == wanted.training
    assert (first.settings["dropout"], first.settings["capsule_width"]) == (0.1, 8)
    assert tuned.defaults["settings"]["lightgc2n-wo-a.dropout"] == 0.1
    for number in range(1, 4):
        other = plan_of(folder / f"trial-{number:03}")
        assert other.training.learning_rate != wanted.training.learning_rate
        assert (other.settings["capsule_width"], other.training.batch_size) == (8, 64)  # fixed, so not searched


def test_a_search_in_slices_ends_the_same(data: Path, tmp_path: Path, whole: tuple[Path, Tuned]) -> None:
    """Slices so short that each holds one epoch: rungs, trials and epochs are all broken off."""
    slices = [tune(small(data), tmp_path / "search", seconds=0.01) for _ in range(6)]
    assert [one.finished for one in slices] == [False] * 5 + [True]  # 4 first epochs, 2 more of the best
    assert same(slices[-1].rows) == same(whole[1].rows)
    assert slices[0].rows[-1]["ended_by"] == "not yet"
    assert (tmp_path / "search" / "trials.csv").read_text().count("\n") == 5


def test_a_run_taken_on_rung_by_rung_is_the_run_of_one_piece(tmp_path: Path, whole: tuple[Path, Tuned]) -> None:
    folder = whole[0] / f"trial-{whole[1].best['trial']:03}"
    train_run(plan_of(folder), tmp_path / "run")
    for name in (BEST, LAST):
        first, second = load_file(folder / name), load_file(tmp_path / "run" / name)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[part], second[part]) for part in first)


def test_a_finished_search_is_not_made_again(data: Path, whole: tuple[Path, Tuned]) -> None:
    assert tune(small(data), whole[0]).rows == whole[1].rows  # the seconds too


def test_side_by_side_ends_the_same(data: Path, tmp_path: Path) -> None:
    plan = small(data, trials=2, epochs=2)
    alone, side = (tune(plan, tmp_path / f"{count}", side_by_side=count) for count in (1, 2))
    assert same(side.rows) == same(alone.rows)
    assert all((tmp_path / "2" / f"trial-00{number}" / LOG).is_file() for number in range(2))


STOPPED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tests.experiments.test_tuning import small, tune
from lightgc2n.training.loop import Steps
calls, wanted = [0], int(sys.argv[3])
real = Steps._step
def step(*given):
    calls[0] += 1
    if calls[0] == wanted:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given)
Steps._step = step
tune(small(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("steps", [3, pytest.param(1, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_kill_9_loses_no_more_than_an_epoch(data: Path, tmp_path: Path, whole: tuple[Path, Tuned], steps: int) -> None:
    command = [sys.executable, "-c", STOPPED, str(data), str(tmp_path / "search"), str(steps)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert same(tune(small(data), tmp_path / "search").rows) == same(whole[1].rows)


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_a_killed_search(data: Path, tmp_path: Path, how: signal.Signals) -> None:
    words = [
        "tune",
        data,
        "--epochs",
        900,
        "--trials",
        2,
        "--side-by-side",
        2,
        "--out",
        tmp_path / "s",
        "--device",
        "cpu",
    ]
    command = [sys.executable, "-m", "lightgc2n", *map(str, words)]
    parent = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list((tmp_path / "s").glob(f"*/{METRICS}"))) == 2)
    children = children_of(parent.pid)
    assert len(children) == 2
    parent.send_signal(how)
    parent.wait()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def test_settings_that_cannot_be_trained_lose(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_space, "SPACES", {"training.learning_rate": Choice((1e30,))})
    tuned = tune(small(data, trials=3), tmp_path / "search")
    assert (tuned.best["trial"], tuned.best["ended_by"]) == (0, "budget")
    assert [row["ended_by"] for row in tuned.rows[1:]] == ["failure"] * 2
    assert "nan" in tuned.rows[1]["failure"]
    assert tune(small(data, trials=3), tmp_path / "search").rows == tuned.rows
    hopeless = TuningPlan(RunPlan(data, "lightgc2n-wo-a", training=TrainingConfig(learning_rate=1e30)), trials=1)
    with pytest.raises(ScoreError, match="all 1 trials failed"):
        tune(hopeless, tmp_path / "hopeless")


def test_a_broken_child_is_named(data: Path, tmp_path: Path, whole: tuple[Path, Tuned]) -> None:
    """A child that cannot read its data says so, and the search ends with its last word."""
    trials = []
    for number in range(2):
        folder = tmp_path / f"trial-{number}"
        folder.mkdir()
        described = json.loads((whole[0] / "trial-000" / "run.json").read_text())
        described["data"]["folder"] = str(tmp_path / "nowhere")
        (folder / "run.json").write_text(json.dumps(described))
        trials.append(Trial(number, folder))
    opened = open_data(plan_of(whole[0] / "trial-000"))
    with pytest.raises(LightGC2NError, match=r"trial \d ended with code 2: error: .*nowhere") as actual:
        train_trials(trials, 1, "cpu", 2, TimeBudget(), lambda trial: None, opened)
    first = str(actual.value).split("trial ")[1][0]  # whichever ends first; the other is ended before its last word
    assert (tmp_path / f"trial-{first}" / LOG).read_text()


def test_the_test_set_is_never_used(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = run_module.ranks_in_domains

    def spy(name: str, model: Any, queries: Any, *given: Any, **more: Any) -> Any:
        asked.append(queries)
        return real(name, model, queries, *given, **more)

    monkeypatch.setattr(run_module, "ranks_in_domains", spy)
    plan = small(data, trials=3)
    tune(plan, tmp_path / "search")
    split = open_data(plan.run)[1]
    assert len(asked) == 5  # one epoch for each of three, two more for one
    assert all((queries.target_event == split.validation.target_event).all() for queries in asked)
    assert not set(split.validation.target_event) & set(split.test.target_event)


@pytest.mark.parametrize("other", [{"trials": 5}, {"epochs": 4}, {"sampler": "optuna"}])
def test_another_search_in_the_same_folder_is_refused(
    data: Path, whole: tuple[Path, Tuned], other: dict[str, Any]
) -> None:
    with pytest.raises(OutputError, match="holds another search"):
        tune(small(data, **other), whole[0])


def test_nonsense_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is a simple baseline"):
        tune(TuningPlan(RunPlan(data, "markov")), tmp_path / "search")
    with pytest.raises(SettingError, match="Did you mean 'random'"):
        tune(small(data, sampler="randon"), tmp_path / "search")
    blind = replace(small(data).run, split=SplitConfig(validation=False))
    with pytest.raises(SettingError, match="needs validation targets"):
        tune(TuningPlan(blind), tmp_path / "search")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(OutputError, match="holds no search"):
        tune(small(data), tmp_path / "mine")


def test_the_best_settings_can_be_read_back(tmp_path: Path, whole: tuple[Path, Tuned]) -> None:
    tuned = whole[1]
    write_tuned(tuned, tmp_path / "best.toml")
    tables = read_tables(tmp_path / "best.toml", None, known=["lightgc2n-wo-a", "training", "split"])
    actual = {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
    fixed = {"training.batch_size": 64, "lightgc2n-wo-a.embedding_width": 8, "lightgc2n-wo-a.capsule_width": 8}
    assert actual == tuned.best["settings"] | fixed
    page = (tmp_path / "best.toml").read_text()
    assert page.startswith(f"# {command_of(tuned.plan)}\n")
    assert f"chosen, trial {tuned.best['trial']}: {100 * tuned.best['validation']:.2f} %" in page
    assert "--set lightgc2n-wo-a.capsule_width=8" in page


def test_an_interrupted_optuna_search_resumes(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    plan = small(data, trials=6, epochs=2, sampler="optuna")
    at_once = tune(plan, tmp_path / "whole")
    for _ in range(3):
        tune(plan, tmp_path / "slices", seconds=0.01)
    assert same(tune(plan, tmp_path / "slices").rows) == same(at_once.rows)


def test_the_command(data: Path, tmp_path: Path) -> None:
    words = ["tune", data, "--model", "lightgc2n-wo-a", "--trials", 3, "--epochs", 3, "--device", "cpu"]
    words += ["--set", "lightgc2n-wo-a.capsule_width=8", "--out", tmp_path / "search", "--save", tmp_path / "best.toml"]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "(defaults)" in done.stdout
    assert "budget ‡" in done.stdout
    assert "learning" in done.stdout
    assert "capsule" not in done.stdout  # fixed
    assert max(len(line) for line in done.stdout.splitlines() if line.startswith("│")) <= 160
    assert "3 of 3 trials, 5 epochs in all: 3 to epoch 1, then 1 to epoch 3" in done.stdout
    again = run(*words, "--json")  # the file it would save is its own
    assert (again.returncode, json.loads(again.stdout)["finished"]) == (0, True)
    used = run("train", data, "--model", "lightgc2n-wo-a", "--config", tmp_path / "best.toml", "--epochs", 1, "--out",
               tmp_path / "run", "--device", "cpu")  # fmt: skip
    assert used.returncode == 0, used.stderr
    assert plan_of(tmp_path / "run").settings["capsule_width"] == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "markov"], "markov is a simple baseline"),
        (["--model", "lightgc2"], "Did you mean 'lightgc2n'?"),
        (["--set", "lightgc2n-plus.widht=2"], "Did you mean 'width'?"),
        (["--sampler", "grid"], "unknown sampler 'grid'"),
        (["--save", "SAVED"], "Choose another --save, or replace it with --force"),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "saved.toml").write_text("[training]\nepochs = 3\n")
    given = [tmp_path / "saved.toml" if word == "SAVED" else word for word in words]
    done = run("tune", data, "--out", tmp_path / "search", "--epochs", 1, *given)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "search").exists()


def test_the_first_trial_has_given_settings_which_are_still_searched(data: Path, tmp_path: Path) -> None:
    given = tmp_path / "published.toml"
    given.write_text("[lightgc2n-wo-a]\nlayers = 3\npooling = 'sum'\n[training]\nlearning_rate = 0.001\n")
    out = tmp_path / "search"
    small_model = ("--set", "lightgc2n-wo-a.embedding_width=8", "--set", "lightgc2n-wo-a.capsule_width=8")
    words = ("--model", "lightgc2n-wo-a", "--first", given, "--trials", "3", "--epochs", "1", "--no-halving")
    assert run("tune", data, *words, *small_model, "--out", out).returncode == 0
    trials = [plan_of(out / f"trial-{number:03}") for number in range(3)]
    assert (trials[0].settings["layers"], trials[0].training.learning_rate) == (3, 0.001)
    assert len({trial.training.learning_rate for trial in trials}) == 3
    assert {trial.settings["pooling"] for trial in trials} == {"sum"}  # not in the search space
    best = (out / "best.toml").read_text()
    assert 'pooling = "sum"' in best
    assert f"--first {given}" in best.splitlines()[0]
