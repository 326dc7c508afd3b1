"""A forgotten account is in no file of the run any more; the run still answers for the others, on the changed data."""

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightgc2n.data.dataset import load_dataset, read_ids
from lightgc2n.data.forget_dataset import forget_in_dataset
from lightgc2n.errors import DataError, OutputError
from lightgc2n.export import write_bundle
from lightgc2n.export.write_bundle import ExportOptions, export_run
from lightgc2n.files.writer_lock import staging_folder
from lightgc2n.recommending.forget_bundle import forget_in_bundle
from lightgc2n.recommending.load_bundle import load_bundle
from lightgc2n.recommending.load_run import load_run as load
from lightgc2n.training import forget_run
from lightgc2n.training.checkpoints import load_checkpoint, save_checkpoint
from lightgc2n.training.forget_run import forget_in_run
from lightgc2n.training.run import evaluate_run, train_run
from lightgc2n.training.runs import load_run as load_model
from lightgc2n.training.runs import plan_of
from tests.cli.test_commands import run
from tests.export.town import EXPORTED, data, run_of

GONE = ["h000007", "h000011"]


@pytest.fixture
def town(tmp_path: Path) -> Path:
    return Path(shutil.copytree(data(), tmp_path / "data"))


@pytest.mark.parametrize("model", EXPORTED)
def test_accounts_go_and_the_run_still_answers(model: str, town: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of(model), tmp_path / "run"))
    before = load_checkpoint(folder / "best.safetensors")[0]
    known = read_ids(folder / "accounts.txt")
    done = run("forget", *GONE, "--data", town, "--run", folder)
    assert done.returncode == 0, done.stderr
    assert f"{folder}: forgot 2 accounts" in done.stdout
    held = [path for path in folder.rglob("*") for one in GONE if path.is_file() and one.encode() in path.read_bytes()]
    assert not held
    left = [place for place, account in enumerate(known) if account not in GONE]
    after = load_checkpoint(folder / "best.safetensors")[0]
    for name, rows in after.items():
        if before[name].shape[:1] == (len(known),) and rows.dtype.is_floating_point:
            assert np.array_equal(rows, before[name][left]), name  # rows of accounts are found by id
    assert len(load(folder).recommend("h000003", k=5)) == 5
    assert evaluate_run(folder).dataset.checksum == load_dataset(town).checksum
    assert plan_of(folder).data == town.resolve()


def test_the_blend_is_fitted_anew(town: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of("lightgc2n-plus"), tmp_path / "run"))
    before = load_model(folder)[1].fitted()
    assert run("forget", *GONE, "--data", town, "--run", folder).returncode == 0
    model = load_model(folder)[1]
    assert model.is_finished
    assert model.fitted().keys() == before.keys()
    assert model.fitted() != before  # on the queries that are left


def test_a_run_without_a_blend_gets_none(town: Path, tmp_path: Path) -> None:
    """As earlier versions made them: lists change by what is forgotten alone."""
    folder = Path(shutil.copytree(run_of("lightgc2n-plus"), tmp_path / "run"))
    _, model, progress = load_model(folder)
    model.blend.mixture.copy_(torch.eye(len(model.blend.mixture))[0])
    save_checkpoint(folder / "best.safetensors", model, None, progress)
    assert run("forget", *GONE, "--data", town, "--run", folder).returncode == 0
    assert not load_model(folder)[1].is_finished


def test_a_graph_is_made_anew_without_them(town: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of("lightgc2n"), tmp_path / "run"))
    before = load_checkpoint(folder / "best.safetensors")[0]["graph.held_offsets"]
    forget_in_dataset(town, GONE)
    forget_in_run(folder, GONE, town)
    after = load_checkpoint(folder / "best.safetensors")[0]["graph.held_offsets"]
    assert len(after) == len(before) - len(GONE)
    assert not (folder / "last.safetensors").exists()  # it holds the optimizer's rows of every account


def test_the_dataset_comes_first(town: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of("sasrec"), tmp_path / "run"))
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match=r"still holds 'h000007'. Forget it there first, with --data"):
        forget_in_run(folder, GONE, town)
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_export_that_began_before_does_not_bring_an_account_back(
    town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export has read the run and the data; then the account is forgotten everywhere; then the export ends."""
    folder, bundle = Path(shutil.copytree(run_of("sasrec"), tmp_path / "run")), tmp_path / "bundle"
    export_run(folder, bundle, ExportOptions(people=False), data=town)
    write = write_bundle.write_weights

    def write_late(*arguments: Any) -> None:
        forget_in_dataset(town, GONE)
        write(*arguments)

    monkeypatch.setattr(write_bundle, "write_weights", write_late)
    with pytest.raises(DataError, match="was changed while the run was exported"):
        export_run(folder, bundle, ExportOptions(people=False), data=town, force=True)
    forget_in_bundle(bundle, GONE)
    assert not set(GONE) & set(load_bundle(bundle).dataset.accounts)


def test_two_at_once_both_count(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second forgets in dataset and run when the first has read the run and not yet replaced it."""
    folder = Path(shutil.copytree(run_of("sasrec"), tmp_path / "run"))
    save, threads = forget_run.save_checkpoint, []

    def forget_other() -> None:
        forget_in_dataset(town, ["h000011"])
        forget_in_run(folder, ["h000011"], town)

    def save_late(*arguments: Any) -> None:
        if not threads:
            threads.append(threading.Thread(target=forget_other))
            threads[0].start()
            while "h000011" in load_dataset(town).accounts:
                threads[0].join(0.05)
        save(*arguments)

    monkeypatch.setattr(forget_run, "save_checkpoint", save_late)
    forget_in_dataset(town, ["h000007"])
    forget_in_run(folder, ["h000007"], town)
    threads[0].join()
    assert not {"h000007", "h000011"} & set(read_ids(folder / "accounts.txt"))
    assert load(folder).dataset.checksum == load_dataset(town).checksum


def test_what_a_killed_forget_left_of_a_run_is_removed_by_the_next_command(town: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of("sasrec"), tmp_path / "run"))
    forget_in_dataset(town, GONE)
    code = """
import os, sys
from pathlib import Path
from lightgc2n.files import folder_kinds
from lightgc2n.training.forget_run import forget_in_run
folder_kinds.FolderKind.remove = lambda *_: os._exit(9)
forget_in_run(Path(sys.argv[1]), sys.argv[3:], Path(sys.argv[2]))
"""
    assert subprocess.run([sys.executable, "-c", code, folder, town, *GONE], check=False, timeout=120).returncode == 9
    assert staging_folder(folder).is_dir()
    assert plan_of(folder).model == "sasrec"
    assert not staging_folder(folder).exists()
    assert not set(GONE) & set(read_ids(folder / "accounts.txt"))


@pytest.mark.parametrize("ended", [True, False])
def test_training_again_keeps_the_weights(ended: bool, town: Path, tmp_path: Path) -> None:
    """It used to start from its first epoch, and to replace the weights by those of that epoch."""
    folder = Path(shutil.copytree(run_of("sasrec"), tmp_path / "run"))
    if not ended:
        _, model, progress = load_model(folder)
        save_checkpoint(folder / "last.safetensors", model, None, replace(progress, ended_by=""))
    forget_in_dataset(town, GONE)
    forget_in_run(folder, GONE, town)
    before, plan = (folder / "best.safetensors").read_bytes(), plan_of(folder)
    progress = train_run(plan, folder)
    assert progress.ended_by == ("budget" if ended else "forget")
    assert (folder / "best.safetensors").read_bytes() == before
    more = replace(plan, training=replace(plan.training, epochs=plan.training.epochs + 1))
    with pytest.raises(OutputError, match=r"no last.safetensors, so it cannot resume.*from_run="):
        train_run(more, folder)
    assert (folder / "best.safetensors").read_bytes() == before
    assert plan_of(folder) == plan


def test_a_run_whose_checkpoint_was_removed_keeps_its_weights(town: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of("sasrec"), tmp_path / "run"))
    (folder / "last.safetensors").unlink()
    before = (folder / "best.safetensors").read_bytes()
    with pytest.raises(OutputError, match=r"no last.safetensors, so it cannot resume"):
        train_run(replace(plan_of(folder), data=town), folder)
    assert (folder / "best.safetensors").read_bytes() == before
