"""Plans: what a few lines stand for, and that many runs are trained, tested, stopped and told as one."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lightgc2n.errors import OutputError, SettingError
from lightgc2n.experiments.plan_runner import last_log_line, train_one, train_plan
from lightgc2n.experiments.plan_summary import summarise, write_summary
from lightgc2n.experiments.plans import read_plan
from lightgc2n.experiments.save_results import read_ranks
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training.checkpoints import BEST, LAST
from lightgc2n.training.run import evaluate_run
from lightgc2n.training.runs import sole_trainer
from tests.cli.test_commands import run

GRID = """
data = ["E", "../prepared/V"]
model = ["lightgc2n", "lightgc2n-wo-a"]
seed = [0, 1, 2]
[training]
epochs = 7
[lightgc2n]
latent_users = 4
"""


def written(folder: Path, text: str) -> Path:
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    return folder / "plan.toml"


def test_lists_in_a_plan_give_every_combination(tmp_path: Path) -> None:
    runs = read_plan(written(tmp_path, GRID))
    assert len(runs) == 2 * 2 * 3
    assert list(runs)[:4] == ["E-lightgc2n-seed0", "E-lightgc2n-seed1", "E-lightgc2n-seed2", "E-lightgc2n-wo-a-seed0"]
    last = runs["V-lightgc2n-wo-a-seed2"]
    assert last.data.resolve() == (tmp_path / "../prepared/V").resolve()
    assert (last.training.seed, last.training.epochs, last.settings) == (2, 7, {})
    assert runs["V-lightgc2n-seed1"].settings == {"latent_users": 4}


def test_a_run_takes_from_the_top_what_it_does_not_say(tmp_path: Path) -> None:
    text = GRID + '[[run]]\nmodel = "lightgc2n"\n[[run]]\nname = "many people"\nmodel = "lightgc2n"\nseed = 5\n'
    runs = read_plan(written(tmp_path, text + 'domain = ["a", "b"]\nlightgc2n.latent_users = 9\ntraining.clip = 1\n'))
    assert len(runs) == 2 * 3 + 2 * 2
    assert runs["E-lightgc2n-seed0"].settings == {"latent_users": 4}
    many = runs["V-b-many people-seed5"]
    assert (many.domain, many.settings, many.training.clip, many.training.epochs) == ("b", {"latent_users": 9}, 1.0, 7)


def test_each_model_takes_its_file_and_the_plan_beats_it(tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "lightgc2n.toml").write_text(
        "[lightgc2n]\nlatent_users = 2\nlayers = 3\n[training]\nclip = 1.0\nepochs = 9\n"
    )
    runs = read_plan(written(tmp_path, 'config = "found"\n' + GRID))
    mine, ablation = runs["E-lightgc2n-seed0"], runs["E-lightgc2n-wo-a-seed0"]
    assert mine.settings == {"latent_users": 4, "layers": 3}
    assert (mine.training.clip, mine.training.epochs) == (1.0, 7)
    assert (ablation.settings, ablation.training.clip) == ({"latent_users": 2, "layers": 3}, 1.0)  # has no file
    (tmp_path / "found" / "lightgc2n-wo-a.toml").write_text("[lightgc2n-wo-a]\nlayers = 1\n")
    ablation = read_plan(written(tmp_path, 'config = "found"\n' + GRID))["E-lightgc2n-wo-a-seed0"]
    assert (ablation.settings, ablation.training.clip) == ({"layers": 1}, 5.0)
    (other,) = read_plan(written(tmp_path, 'config = "found"\ndata = "E"\nmodel = "gmf"\n')).values()
    assert (other.settings, other.training.clip) == ({}, 5.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = 'E'\nconfig = 'nowhere'", "config must name a folder with one TOML file per model, found 'nowhere'"),
        ("modle = 'lightgc2n'", "Did you mean 'model'?"),
        ("data = 'E'\nmodel = 'lightgc2m'", "Did you mean 'lightgc2n'?"),
        ("model = 'lightgc2n'", "no data. Write data"),
        ("data = 'E'\nseed = '1'", "seed must be int or a list of it, found '1'"),
        ("data = 'E'\nseed = []", "seed must list each of its values once"),
        ("data = 'E'\nseed = [1, 1]", "seed must list each of its values once"),
        ("data = 'E'\n[training]\nepoch = 2", "training: unknown setting 'epoch'. Did you mean 'epochs'?"),
        ("data = 'E'\n[training]\nseed = 2", "training.seed is the plan's `seed`"),
        ("data = 'E'\n[lightgc2n]\nlatent_user = 2", "Did you mean 'latent_users'?"),
        ("data = 'E'\ntraining = 3", "training must be a table"),
        ("data = 'E'\n[run]\nseed = 2", "with two pairs of brackets"),
        ("data = 'E'\n[[run]]\n[[run]]\nseed = 0", "run 2: a second run called E-lightgc2n-seed0"),
        ("data = 'E'\n[[run]]\nname = 'a/b'", "name must be text that can name a folder"),
        ("data = 'E'\n[[run]]\nnaem = 'a'", "run 1: unknown name 'naem'. Did you mean 'name'?"),
        ("data = 'E'\n[[run]]\nname = 'a'\nmodel = ['lightgc2n', 'lightgc2n-wo-a']", "name replaces one model"),
        ("data = ", "not a TOML file"),
    ],
)
def test_a_wrong_plan_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as refused:
        read_plan(written(tmp_path, text))
    assert message in str(refused.value)
    assert str(tmp_path / "plan.toml") in str(refused.value)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    generate(HouseholdConfig(accounts=60), seed=3, out=folder / "homes")
    return folder


SMALL = 'data = "homes"\nmodel = "lightgc2n-wo-a"\n[training]\nepochs = 3\nbatch_size = 32\n'
ONE_BAD = SMALL + '[[run]]\nseed = [0, 1]\n[[run]]\nname = "wild"\ntraining.learning_rate = 1e30\ntraining.clip = 0\n'


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find none of the packages that training does not need."""
    for package in ("polars", "zstandard", "matplotlib", "scipy", "sklearn", "pandas", "optuna", "onnx", "tensorboard"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('not on a bare machine')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))


@pytest.mark.usefixtures("bare")
def test_runs_go_side_by_side_and_one_that_fails_stops_no_other(world: Path) -> None:
    plan, out = written(world, ONE_BAD), world / "together"
    words = ["train", "--plan", plan, "--out", out, "--side-by-side", 3, "--device", "cpu"]
    done = run(*words, "--json")
    assert done.returncode == 1
    assert "1 runs failed: homes-wild-seed0" in done.stderr
    assert "smaller learning rate" in done.stderr
    told = json.loads(done.stdout)
    assert (told["left"], told["failed"]) == ([], ["homes-wild-seed0"])
    first = out / "homes-lightgc2n-wo-a-seed0"
    results = json.loads((first / "results.json").read_text())
    ranks = read_ranks(first).rank
    assert ranks.tolist() == evaluate_run(first).ranks["lightgc2n-wo-a"].tolist()
    assert results["metrics"]["RC@10"] == (ranks <= 10).mean()
    assert results["metrics"]["NDCG@5"] == np.where(ranks <= 5, 1 / np.log2(1 + ranks), 0).mean()
    assert (results["epochs"], results["ended_by"], results["targets"]) == (3, "budget", len(ranks))
    assert results["peak_memory_mb"] > 50
    assert results["device"].startswith("cpu")
    before = (first / "results.json").stat().st_mtime_ns
    written(world, SMALL + "[[run]]\nseed = [0, 1]\n")
    again = run(*words)
    assert "2 runs, 2 of them finished" in again.stderr
    assert "Not finished: homes-wild-seed0 (0 epochs)." in again.stdout
    assert (first / "results.json").stat().st_mtime_ns == before


def test_floors_are_runs_that_are_counted_and_tested(world: Path, tmp_path: Path) -> None:
    text = 'data = "homes"\nmodel = ["recency", "markov"]\n[markov]\nreach = 2\n'
    words = ["train", "--plan", written(world, text), "--out", tmp_path / "out", "--device", "cpu"]
    assert run(*words).returncode == 0
    markov = tmp_path / "out" / "homes-markov-seed0"
    compared = run("compare", world / "homes", "--models", "markov", "--set", "markov.reach=2", "--json")
    expected = json.loads(compared.stdout)["models"]["markov"]["metrics"]["all"]["MRR@20"]["value"]
    results = json.loads((markov / "results.json").read_text())
    assert results["metrics"]["MRR@20"] == pytest.approx(expected)
    assert (results["epochs"], results["parameters"], results["validation"]) == (0, 0, None)
    assert results["stored_numbers"] > 0
    assert json.loads((markov / "run.json").read_text())["settings"]["reach"] == 2
    again = run(*words)
    assert "2 runs, 2 of them finished" in again.stderr
    assert "| homes-recency | 1 |" in (tmp_path / "out" / "summary.md").read_text()


def test_one_process_may_take_several_runs_and_one_that_fails_stops_no_other(world: Path, tmp_path: Path) -> None:
    bad = '[[run]]\nname = "wild"\ntraining.learning_rate = 1e30\ntraining.clip = 0\n'
    plan = written(world, SMALL + bad + "[[run]]\nseed = [0, 1]\n")
    state = train_plan(plan, tmp_path / "out", per_process=3)
    assert state.failed == ["homes-wild-seed0"]
    assert state.finished == ["homes-lightgc2n-wo-a-seed0", "homes-lightgc2n-wo-a-seed1"]
    assert last_log_line(tmp_path / "out", "homes-wild-seed0").startswith("error: epoch 1: ")
    train_one(plan, tmp_path / "alone", "homes-lightgc2n-wo-a-seed1")
    first, second = (
        read_ranks(tmp_path / out / "homes-lightgc2n-wo-a-seed1").rank.tolist() for out in ("out", "alone")
    )
    assert first == second


def test_a_baseline_that_cannot_be_built_stops_no_other_run(world: Path, tmp_path: Path) -> None:
    text = 'data = "homes"\nmodel = "recency"\n[[run]]\n[[run]]\nname = "late"\nsplit.protocol = "windows"\n'
    done = run("train", "--plan", written(world, text), "--out", tmp_path / "out", "--device", "cpu")
    assert (done.returncode, "homes-late-seed0" in done.stderr, "holds logs" in done.stderr) == (1, True, True)
    assert (tmp_path / "out" / "homes-recency-seed0" / "results.json").is_file()


def test_equal_questions_have_equal_checksums_whatever_is_learned_from(world: Path, tmp_path: Path) -> None:
    """One domain of a log by itself, and a share of the training data, ask the same; another protocol does not."""
    same, other = "split.training_share = 0.5", 'split.protocol = "cold-accounts"'
    text = 'data = "homes"\ndomain = "video"\nmodel = "recency"\n[[run]]\n'
    text += "".join(f'[[run]]\nname = "{name}"\n{said}\n' for name, said in (("half", same), ("cold", other)))
    assert run("train", "--plan", written(world, text), "--out", tmp_path / "out").returncode == 0
    actual = [
        json.loads((tmp_path / "out" / f"homes-video-{name}-seed0" / "results.json").read_text())["questions"]
        for name in ("recency", "half", "cold")
    ]
    assert actual[0] == actual[1] != actual[2]


def test_a_time_budget_ends_at_an_epoch_and_the_same_command_resumes(world: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    plan = written(world, SMALL)
    name = "homes-lightgc2n-wo-a-seed0"
    done = run("train", "--plan", plan, "--out", tmp_path / "none", "--slice", 0)
    assert (done.returncode, f"1 runs are left: {name}" in done.stdout) == (0, True)
    assert train_one(plan, tmp_path / "whole", name)
    words = ["train", "--plan", plan, "--out", tmp_path / "sliced", "--only", name, "--slice", 0, "--device", "cpu"]
    for _ in range(2):
        assert "paused" in run(*words).stdout
    assert summarise(tmp_path / "sliced").left == {name: 2}
    assert not (tmp_path / "sliced" / name / "results.json").exists()
    assert "finished" in run(*words).stdout
    for file in (BEST, LAST):
        first, second = load_file(tmp_path / "whole" / name / file), load_file(tmp_path / "sliced" / name / file)
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_single_run_can_be_sliced_too(world: Path, tmp_path: Path) -> None:
    words = ["train", world / "homes", "--model", "lightgc2n-wo-a", "--epochs", 2, "--out", tmp_path / "run"]
    first, second = (run(*words, "--device", "cpu", "--slice", 0) for _ in range(2))
    assert "paused after 1 epoch" in first.stdout
    assert "ended by budget" in second.stdout


@pytest.mark.parametrize("everyone", [False, True], ids=["the plan's process", "all, as a terminal does"])
def test_ctrl_c_stops_every_run_at_once(everyone: bool, world: Path, tmp_path: Path) -> None:
    plan = written(world, SMALL.replace("epochs = 3", "epochs = 100000\npatience = 100000") + "[[run]]\nseed = [0, 1]")
    words = ["train", "--plan", plan, "--out", tmp_path / "out", "--side-by-side", "2", "--device", "cpu"]
    command = [sys.executable, "-m", "lightgc2n", *map(str, words)]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = [tmp_path / "out" / f"homes-lightgc2n-wo-a-seed{seed}" for seed in (0, 1)]
    while not all((one / LAST).exists() for one in runs):
        assert parent.poll() is None
        time.sleep(0.05)
    (os.killpg if everyone else os.kill)(parent.pid, signal.SIGINT)
    _, said = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert "Traceback" not in said
    for one in runs:
        with sole_trainer(one):  # nobody trains it any more
            assert not [path.name for path in one.iterdir() if path.name.startswith(".")]
    for log in (tmp_path / "out" / "logs").iterdir():
        assert "Traceback" not in log.read_text()


def test_a_finished_run_is_not_taken_for_another(world: Path, tmp_path: Path) -> None:
    name = "homes-lightgc2n-wo-a-seed0"
    train_one(written(world, SMALL), tmp_path / "out", name)
    plan = written(world, SMALL + "dropout = 0.5\n".replace("dropout", "learning_rate"))
    done = run("train", "--plan", plan, "--out", tmp_path / "out", "--device", "cpu")
    assert (done.returncode, "holds another run (training." in done.stderr) == (2, True)


def test_a_run_is_trained_by_one_process_alone(world: Path, tmp_path: Path) -> None:
    name = "homes-lightgc2n-wo-a-seed0"
    (tmp_path / "out" / name).mkdir(parents=True)
    with (
        sole_trainer(tmp_path / "out" / name),
        pytest.raises(OutputError, match="being trained by another process"),
    ):
        train_one(written(world, SMALL), tmp_path / "out", name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "lightgc2n"], "--model belongs in the plan file"),
        (["homes"], "DIR belongs in the plan file"),
        (
            ["--only", "homes-lightgc2n-seed0"],
            "unknown run 'homes-lightgc2n-seed0'. Did you mean 'homes-lightgc2n-wo-a",
        ),
    ],
)
def test_options_that_a_plan_sets_are_errors(words: list[str], message: str, world: Path, tmp_path: Path) -> None:
    done = run("train", "--plan", written(world, SMALL), "--out", tmp_path / "out", *words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()


def test_options_of_a_plan_need_one(tmp_path: Path) -> None:
    done = run("train", "--out", tmp_path / "out", "--side-by-side", 2)
    assert (done.returncode, "--side-by-side needs --plan" in done.stderr) == (2, True)
    assert "nothing to train on" in run("train", "--out", tmp_path / "out").stderr


def finished(folder: Path, name: str, ranks: list[float], ended_by: str, **said: Any) -> None:
    """A run folder that holds no more than a summary reads: two targets of account 0, one of each other account."""
    costs = {"parameters": 10, "epochs": 4, "training_seconds": 2.5, "validation": 0.25, "peak_memory_mb": 300.4}
    actual = {"stamps": [], "domains": ["all"], "ended_by": ended_by, **costs, **said}
    (folder / name).mkdir()
    (folder / name / "run.json").write_text('{"made_by": "lightgc2n 0.1.0"}')
    (folder / name / "results.json").write_text(json.dumps(actual))
    owner = np.maximum(np.arange(len(ranks)) - 1, 0)
    domain = np.arange(len(ranks)) % len(actual["domains"])
    np.savez(folder / name / "ranks.npz", rank=np.array(ranks, dtype=float), owner=owner, domain=domain)


def test_a_summary_by_hand(tmp_path: Path) -> None:
    finished(tmp_path, "E-x-seed0", [1, 2, 10, np.inf], "patience")  # RR@20 (1 + 1/2 + 1/10) / 4 = 0.4
    finished(tmp_path, "E-x-seed1", [1, 1, 5, 21], "budget")  # (1 + 1 + 1/5) / 4 = 0.55
    finished(tmp_path, "E-x-seed10", [4, 4, 4, 4], "")  # 0.25
    finished(tmp_path, "E-y-seed0", [1, 2, 4, 4], "patience", stamps=["it leaks"], domains=["E", "V"])
    (tmp_path / "E-z-seed0").mkdir()
    (tmp_path / "E-z-seed0" / "run.json").write_text('{"made_by": "lightgc2n 0.1.0"}')
    (tmp_path / "E-z-seed0" / "metrics.jsonl").write_text('{"epoch": 0}\n{"epoch": 1}\n{"epo')
    summary = write_summary(tmp_path)
    assert [(row["run"], row["seeds"], row["ended by budget"]) for row in summary.rows] == [
        ("E-x", 3, 1),
        ("E-y, E", 1, 0),
        ("E-y, V", 1, 0),
    ]
    assert summary.rows[0]["MRR@20"] == pytest.approx((0.4 + 0.55 + 0.25) / 3)
    assert summary.rows[0]["MRR@20 spread"] == pytest.approx(0.55 - 0.25)
    assert [row["MRR@20"] for row in summary.rows[1:]] == pytest.approx([(1 + 1 / 4) / 2, (1 / 2 + 1 / 4) / 2])
    # Drawn three times, account 0 has 3 * 2 of 3 * 2 targets and a mean of (1 + 1 + 1/4 + 1/2 + 1 + 1/4) / 6 = 2/3.
    # Drawn three times, the last account has (0 + 0 + 1/4) / 3 = 1/12: each of the two is one draw in 27.
    assert summary.rows[0]["low"] == pytest.approx(1 / 12)
    assert summary.rows[0]["high"] == pytest.approx(2 / 3)
    page = (tmp_path / "summary.md").read_text()
    assert (
        "| E-x | 3 | 75.00 (50.00) | 83.33 (25.00) | 39.17 (30.00) | 40.00 (30.00) | 8.33 to 66.67 | 25.00 (0.00) "
        "| 10 | 4 (1 by budget) | 0.62 | 2 | 300 |" in page
    )
    assert "Not finished: E-z-seed0 (2 epochs)." in page
    assert "it leaks" in page
    with (tmp_path / "summary.csv").open() as file:
        assert [float(row["MRR@20"]) for row in csv.DictReader(file)] == [row["MRR@20"] for row in summary.rows]
