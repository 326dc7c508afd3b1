"""The folder of a run, and the commands around it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lightgc2n.data.dataset import load_dataset
from lightgc2n.data.importing import ImportOptions, import_log
from lightgc2n.data.splits import SplitConfig
from lightgc2n.errors import DataError, OutputError
from lightgc2n.synthetic.households import HouseholdConfig, generate
from lightgc2n.training import checkpoints, runs
from lightgc2n.training.checkpoints import BEST, LAST
from lightgc2n.training.loop import TrainingConfig
from lightgc2n.training.run import evaluate_run, train_run
from lightgc2n.training.runs import RUN, RunPlan, load_run, plan_of, read_run
from tests.cli.test_commands import run

FEW = TrainingConfig(epochs=2, batch_size=32)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    generate(HouseholdConfig(accounts=60), seed=3, out=folder)
    return folder


def test_a_run_says_everything(data: Path, tmp_path: Path) -> None:
    plan = RunPlan(data, "lightgc2n-wo-dr", "video", {"latent_users": 2}, SplitConfig(), FEW)
    train_run(plan, tmp_path / "run")
    actual = read_run(tmp_path / "run")
    assert actual["settings"]["latent_users"] == 2
    assert actual["settings"]["capsule_width"] == 16  # defaults are spelled out
    assert actual["data"]["checksum"] == json.loads((data / "manifest.json").read_text())["checksum"]
    assert set(actual["versions"]) == {"lightgc2n", "python", "torch", "numpy"}
    assert (actual["split"]["protocol"], actual["training"]["epochs"]) == ("last", 2)
    assert plan_of(tmp_path / "run").domain == "video"
    name, model, progress = load_run(tmp_path / "run")
    assert (name, progress.ended_by, model.training) == ("lightgc2n-wo-dr", "budget", False)
    tested = evaluate_run(tmp_path / "run", fold_in=True)
    ways = ["lightgc2n-wo-dr", "lightgc2n-wo-dr, folded in", "lightgc2n-wo-dr, history alone"]
    assert list(tested.ranks) == list(tested.facts) == ways
    assert all(len(ranks) == len(tested.split.test) for ranks in tested.ranks.values())
    assert tested.facts[name]["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    # The log that is shown holds all that the graph knows of the account; a mean account gives other capsules.
    known, folded, nameless = tested.ranks.values()
    assert known.tolist() == folded.tolist() != nameless.tolist()


def test_fitted_values_are_stored_and_reported(data: Path, tmp_path: Path) -> None:
    train_run(RunPlan(data, "lightgc2n-plus", "video", training=FEW), tmp_path / "run")
    fitted = load_run(tmp_path / "run")[1].fitted()
    assert {"added", "times", "trends of 1 days"} <= set(fitted)  # the data has times
    assert evaluate_run(tmp_path / "run").facts["lightgc2n-plus"]["fitted"] == fitted


def test_another_run_in_the_same_folder_is_refused(data: Path, tmp_path: Path) -> None:
    train_run(RunPlan(data, "lightgc2n-wo-a", training=FEW), tmp_path / "run")
    for other in (
        RunPlan(data, "lightgc2n-wo-c", training=FEW),
        RunPlan(data, "lightgc2n-wo-a", settings={"dropout": 0.5}, training=FEW),
        RunPlan(data, "lightgc2n-wo-a", training=TrainingConfig(epochs=3)),
    ):
        with pytest.raises(OutputError, match="another run"):
            train_run(other, tmp_path / "run")


def test_the_commands(data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    words = ["train", data, "--model", "lightgc2n", "--out", tmp_path / "run", "--epochs", 2, "--device", "cpu"]
    first = run(*words, "--set", "training.batch_size=32", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["epochs"] == 2
    again = run(*words, "--set", "training.batch_size=32", "--json")  # it is finished, so nothing is trained again
    assert json.loads(again.stdout)["seconds"] == json.loads(first.stdout)["seconds"]
    tested = run("evaluate", tmp_path / "run", "--device", "cpu", "--json")
    assert tested.returncode == 0, tested.stderr
    assert json.loads(tested.stdout)["models"]["lightgc2n"]["epochs"] == 2
    compared = run(
        *("compare", data, "--models", "markov,lightgc2n-wo-a", "--set", "training.epochs=1", "--json"),
    )
    assert json.loads(compared.stdout)["models"]["lightgc2n-wo-a"]["ended_by"] == "budget"


def test_what_is_typed_beats_a_file(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text("[training]\nepochs = 7\nbatch_size = 32\n[lightgc2n-wo-a]\ndropout = 0.3\n")
    words = ["--model", "lightgc2n-wo-a", "--config", tmp_path / "file.toml", "--epochs", 1, "--device", "cpu"]
    done = run("train", data, "--out", tmp_path / "run", *words, "--set", "training.batch_size=64")
    assert done.returncode == 0, done.stderr
    assert "% after epoch 1; ended by budget" in done.stdout  # counted as the lines of progress count
    assert "Stopped too early: validation was still improving at the last of 1 epoch." in done.stdout
    actual = read_run(tmp_path / "run")
    assert (actual["training"]["epochs"], actual["training"]["batch_size"]) == (1, 64)
    assert actual["settings"]["dropout"] == 0.3


def test_a_simple_baseline_is_a_run_too(data: Path, tmp_path: Path) -> None:
    words = ("train", data, "--model", "markov-recency", "--out", tmp_path / "run")
    done, again = run(*words), run(*words)
    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert "counted; validation MRR@20" in done.stdout
    assert again.stdout == done.stdout
    split = ("markov-recency", "--json")
    compared = json.loads(run("compare", data, "--models", *split).stdout)["models"]["markov-recency"]
    tested = json.loads(run("evaluate", tmp_path / "run", "--json").stdout)["models"]["markov-recency"]
    different = ("seconds", "peak_memory_mb")
    assert {key: tested[key] for key in tested if key not in different} == {
        key: compared[key] for key in compared if key not in different
    }
    warm = run("train", data, "--from", tmp_path / "run", "--out", tmp_path / "warm")
    assert "it has no weights" in warm.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "lightgc2m"], "Did you mean 'lightgc2n'?"),
        (["--set", "training.epoch=2"], "Did you mean 'epochs'?"),
        (["--set", "lightgc2n.latent_users=0"], "latent_users must be at least 1"),
        (["--set", "lightgcn.latent_users=2"], "Did you mean 'lightgc2n'?"),
    ],
)
def test_wrong_settings_are_refused(words: list[str], message: str, data: Path, tmp_path: Path) -> None:
    done = run("train", data, "--model", "lightgc2n", "--out", tmp_path / "run", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "run").exists()


def test_unfinished_files_of_killed_processes_are_removed(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lightgc2n-tmp-0badcafe-best.safetensors").write_text("half")
    train_run(RunPlan(data, "lightgc2n-wo-dr", training=FEW), folder)
    assert not list(folder.glob(".*"))


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the handle of the lock as well, as a duplicate has; it may live much longer than the training."""
    duplicates, locked = [], runs._locked

    def forked(folder: Path, wait: bool) -> int:
        duplicates.append(os.dup(handle := locked(folder, wait)))
        return handle

    monkeypatch.setattr(runs, "_locked", forked)
    for _ in range(2):  # the second was refused: "is being trained by another process"
        with runs.sole_trainer(tmp_path):
            pass
    assert len(duplicates) == 2
    for handle in duplicates:
        os.close(handle)


@pytest.mark.parametrize("moment", ["fit_weights", "save_checkpoint"])
def test_a_run_killed_while_its_blend_is_fitted_ends_like_one_that_was_not(
    moment: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = RunPlan(data, "lightgc2n-plus", settings={"width": 8}, training=FEW)
    train_run(plan, tmp_path / "whole")
    with monkeypatch.context() as patch:
        place = "lightgc2n.models.plus.blend" if moment == "fit_weights" else "lightgc2n.training.run"
        patch.setattr(f"{place}.{moment}", _stop)
        with pytest.raises(KeyboardInterrupt):
            train_run(plan, tmp_path / "killed")
    assert not load_run(tmp_path / "killed")[1].is_finished
    train_run(plan, tmp_path / "killed")
    resumed, whole = (checkpoints.load_checkpoint(tmp_path / name / BEST)[0] for name in ("killed", "whole"))
    assert resumed.keys() == whole.keys()
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_a_run_that_was_tested_keeps_its_weights(data: Path, tmp_path: Path) -> None:
    """One of an earlier version has no blend; its results are those of its weights."""
    folder, plan = tmp_path / "run", RunPlan(data, "lightgc2n-plus", settings={"width": 8}, training=FEW)
    train_run(plan, folder)
    for name in (BEST, LAST):
        with safe_open(folder / name, "pt") as file:
            kept = {key: file.get_tensor(key) for key in file.keys() if not key.startswith("blend.")}  # noqa: SIM118
            metadata = file.metadata()
        save_file(kept, folder / name, metadata)
    (folder / "results.json").write_text("{}")
    before = (folder / BEST).read_bytes()
    train_run(plan, folder)
    assert (folder / BEST).read_bytes() == before
    (folder / "results.json").unlink()
    train_run(plan, folder)
    assert load_run(folder)[1].is_finished


def test_without_a_blend_the_selected_trends_stay(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training ends with those that validation selected; only a blend weighs all of them."""
    plan = RunPlan(data, "lightgc2n-plus-wo-blend", settings={"width": 8}, training=FEW)
    train_run(plan, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("lightgc2n.training.run.finish", lambda *_: False)
        train_run(plan, tmp_path / "unfinished")
    finished, selected = (load_run(tmp_path / name)[1] for name in ("run", "unfinished"))
    assert finished.is_finished
    assert finished.fitted() == selected.fitted()


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_folder_of_somebody_else_is_refused(data: Path, tmp_path: Path) -> None:
    """A repository, say: training used to remove every hidden file of its folder."""
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (repository / ".env").write_text("x\n")
    done = run("train", data, "--model", "lightgc2n-plus", "--epochs", "1", "--out", repository)
    assert done.returncode == 2
    assert "holds .env and is not a run (no run.json). Choose another --out." in done.stderr
    files = {path.relative_to(repository).as_posix() for path in repository.rglob("*") if path.is_file()}
    assert files == {".env", ".git/HEAD"}


def test_files_that_others_keep_in_the_folder_of_a_run_stay(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = RunPlan(data, "lightgc2n-wo-dr", training=FEW)
    train_run(plan, folder)
    (folder / ".git").mkdir()
    (folder / ".notes").write_text("mine")
    train_run(plan, folder)
    assert (folder / ".git").is_dir()
    assert (folder / ".notes").read_text() == "mine"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run"):
        load_run(tmp_path)


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    (tmp_path / RUN).write_text("{")
    with pytest.raises(DataError, match=rf"{RUN}: not the description of a run: .* Train it again"):
        load_run(tmp_path)


def test_what_failed_in_its_first_epoch_is_not_in_the_way(data: Path, tmp_path: Path) -> None:
    generate(HouseholdConfig(accounts=20), seed=3, out=tmp_path / "other")
    words = ["--model", "lightgc2n-wo-dr", "--epochs", 1, "--out", tmp_path / "run"]
    failed = run("train", tmp_path / "other", *words, "--set", "training.learning_rate=1e30")
    assert (failed.returncode, "smaller learning rate" in failed.stderr) == (2, True)
    done = run("train", data, *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "accounts.txt").read_text().splitlines() == load_dataset(data).accounts
    again = run("train", data, *words, "--set", "training.learning_rate=0.25")
    assert again.returncode == 2
    assert "training.learning_rate is 0.005 there, expected 0.25" in again.stderr


def test_logs_that_are_too_short_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item\n" + "".join(f"u{n},i{n % 3}\nu{n},j{n % 3}\n" for n in range(9)))
    import_log(tmp_path / "log.csv", tmp_path / "short", ImportOptions())
    done = run("train", tmp_path / "short", "--out", tmp_path / "run")
    assert (done.returncode, "too short to train on" in done.stderr) == (2, True)
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_named(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr(checkpoints, "save", full)
    with pytest.raises(OutputError, match=r"safetensors: cannot be written: No space left.*call train again to resume"):
        train_run(RunPlan(data, "lightgc2n-wo-dr", training=FEW), tmp_path / "run")


def test_a_run_that_is_given_more_epochs_is_one_that_had_them_from_the_start(data: Path, tmp_path: Path) -> None:
    def plan(epochs: int) -> RunPlan:
        return RunPlan(data, "lightgc2n-wo-dr", training=TrainingConfig(epochs=epochs, batch_size=32))

    train_run(plan(2), tmp_path / "run")
    assert train_run(plan(4), tmp_path / "run").epochs == 4
    train_run(plan(4), tmp_path / "whole")
    grown, whole = (load_run(tmp_path / name)[1].state_dict() for name in ("run", "whole"))
    assert all(torch.equal(grown[name], whole[name]) for name in whole)
    assert plan_of(tmp_path / "run").training.epochs == 4
    with pytest.raises(OutputError, match=r"training\.epochs is 4 there, expected 3"):
        train_run(plan(3), tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text("{}")  # its test would no longer be its own
    with pytest.raises(OutputError, match=r"training\.epochs is 4 there, expected 5"):
        train_run(plan(5), tmp_path / "run")
