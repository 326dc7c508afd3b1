"""Commands among files of somebody else, with names like ours: each file stays, and the command says why it stops."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightgc2n.data.dataset import load_dataset
from tests.cli.test_commands import Done, run
from tests.export.town import data, run_of

PLAN = 'data = "{data}"\nmodel = ["recency"]\n'


@pytest.fixture
def town(tmp_path: Path) -> Path:
    return Path(shutil.copytree(data(), tmp_path / "data"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(done: Done, sentence: str) -> None:
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert sentence in done.stderr


def test_compare_leaves_a_partial_folder_of_somebody_else_alone(town: Path, tmp_path: Path) -> None:
    """Every name in it is one that compare writes too."""
    mine = tmp_path / "table.partial"
    (mine / "ranks").mkdir(parents=True)
    np.save(mine / "ranks" / "markov.npy", np.arange(3))
    (mine / "results.csv").write_text("my own measurements\n")
    before = content(mine)
    for words in ((), ("--force",)):
        done = run("compare", town, "--models", "recency", "--out", tmp_path / "table", *words)
        refused(done, "table.partial is not an unfinished comparison of this version")
    assert content(mine) == before
    assert not (tmp_path / "table").exists()


def test_compare_starts_again_with_force_after_forget(town: Path, tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    words = ["compare", town, "--models", "recency,lightgc2n-wo-a", "--set", "training.epochs=2"]
    words += ["--out", tmp_path / "table"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightgc2n.experiments.comparison_cache.ComparisonCache.clear", stop)
        assert run(*words).returncode == 130
    (tmp_path / "table.partial" / "finished" / "lightgc2n-wo-a.json").unlink()  # stopped in training
    assert run("forget", "h000007", "--data", town).returncode == 0
    refused(run(*words), "data differs")
    done = run(*words, "--force")
    assert done.returncode == 0, done.stderr
    actual = json.loads((tmp_path / "table" / "results.json").read_text())
    assert actual["dataset"]["checksum"] == load_dataset(town).checksum
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "table"]


@pytest.fixture
def desk(town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a plan, a run of ours, and a summary that the user wrote."""
    folder = tmp_path / "desk"
    folder.mkdir()
    (folder / "plan.toml").write_text(PLAN.format(data=town))
    shutil.copytree(run_of("sasrec"), folder / "first")
    (folder / "summary.md").write_text("# What I found in three years\n")
    monkeypatch.chdir(folder)
    return folder


def test_a_plan_leaves_a_folder_with_other_files_alone(desk: Path) -> None:
    before = content(desk)
    refused(run("train", "--plan", "plan.toml", "--out", "."), "is no folder of runs of a plan. Choose another --out.")
    assert content(desk) == before


@pytest.mark.parametrize("name", ["summary.md", "summary.csv"])
def test_a_plan_leaves_a_summary_of_somebody_else_alone(name: str, desk: Path) -> None:
    """A folder that the plan made, to which the user has added a summary of their own."""
    assert run("train", "--plan", "plan.toml", "--out", "runs").returncode == 0
    assert run("train", "--plan", "plan.toml", "--out", "runs").returncode == 0  # its own summary is replaced
    (desk / "runs" / name).write_text("# What I found in three years\n")
    before = content(desk)
    refused(run("train", "--plan", "plan.toml", "--out", "runs"), f"{name} is no summary of runs")
    assert content(desk) == before


@pytest.mark.parametrize(
    "text", ["{}", "[1, 2]", "not JSON", '{"made_by": "me", "data": 3}', '{"data": {"folder": 1}}']
)
def test_a_plan_leaves_a_folder_with_a_foreign_run_json_out(text: str, desk: Path) -> None:
    assert run("train", "--plan", "plan.toml", "--out", "runs").returncode == 0
    (desk / "runs" / "marathon").mkdir()
    (desk / "runs" / "marathon" / "run.json").write_text(text)
    done = run("train", "--plan", "plan.toml", "--out", "runs")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "marathon is left out: its run.json was not made by this product" in done.stderr
    assert (desk / "runs" / "marathon" / "run.json").read_text() == text


@pytest.mark.parametrize("text", ["{}", '{"data": 3}', '{"data": {"folder": "x"}, "model": "lightgc2n"}'])
def test_a_run_json_of_somebody_else_is_no_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    for command in ("evaluate", "export"):
        words = [] if command == "evaluate" else ["--out", tmp_path / "bundle"]
        refused(run(command, tmp_path, *words), "run.json: not the description of a run")


@pytest.mark.parametrize("name", ["log.txt", "failed.txt", "notes/day1.md"])
def test_forget_leaves_a_run_alone_that_holds_a_file_of_somebody_else(name: str, town: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_of("sasrec"), tmp_path / "run"))
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("what I did today\n")
    before = {**content(folder), **content(town)}
    done = run("forget", "h000007", "--data", town, "--run", folder)
    refused(done, f"holds {name.split('/day')[0]}")
    assert {**content(folder), **content(town)} == before  # also not in the dataset


def linked(path: Path, outside: Path) -> None:
    shutil.move(path, outside)
    path.symlink_to(outside)


@pytest.mark.parametrize("name", ["events.npy", "accounts.txt", "manifest.json"])
def test_a_dataset_with_a_linked_file_is_not_rewritten(name: str, town: Path, tmp_path: Path) -> None:
    linked(town / name, tmp_path / "outside")
    before, outside = content(town), (tmp_path / "outside").read_bytes()
    refused(run("forget", "h000007", "--data", town), f"data/{name}: expected a regular file, found a link")
    log = tmp_path / "log.csv"
    log.write_text("user,item\n" + "".join(f"u{n % 5},i{n % 7}\n" for n in range(40)))
    done = run("import", log, "--out", town, "--force")
    refused(done, f"data/{name}: expected a regular file, found a link")
    assert (town / name).is_symlink()
    assert (content(town), (tmp_path / "outside").read_bytes()) == (before, outside)


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "best.safetensors", "tensorboard"])
def test_a_run_with_a_linked_file_is_not_trained(name: str, town: Path, tmp_path: Path) -> None:
    words = ["train", town, "--model", "lightgc2n-wo-a", "--out", tmp_path / "run"]
    assert run(*words, "--epochs", "1").returncode == 0
    if name == "tensorboard":
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "events.out.tfevents.1.mine").write_text("my own curves")
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / "outside")
    else:
        linked(tmp_path / "run" / name, tmp_path / "outside")
    before = content(tmp_path)
    refused(run(*words, "--epochs", "2"), f"run/{name}: expected a regular file, found a link")
    assert content(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_forget_by_root_keeps_the_owners(town: Path, tmp_path: Path) -> None:
    for path in (town, *town.rglob("*")):
        os.chown(path, 12345, 23456)
    graves = tmp_path / "graves.json"
    assert run("forget", "h000007", "--data", town, "--tombstones", graves).returncode == 0
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (town, *town.rglob("*"))} == {(12345, 23456)}
    os.chown(graves, 12345, 23456)
    graves.chmod(0o600)
    assert run("forget", "h000008", "--data", town, "--tombstones", graves).returncode == 0
    facts = graves.stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (12345, 23456, 0o600)


HASH = "0" * 64
SALT = "0" * 32


@pytest.mark.parametrize(
    "content",
    [
        [],
        3,
        None,
        {"salt": SALT, "accounts": []},
        {"made_by": "lightgc2n fan club", "salt": SALT, "accounts": []},
        {"made_by": "lightgc2n 0.1.0", "salt": SALT, "accounts": [], "mine": "years of work"},
        {"made_by": "lightgc2n 0.1.0", "salt": "", "accounts": []},
        {"made_by": "lightgc2n 0.1.0", "salt": 7, "accounts": []},
        {"made_by": "lightgc2n 0.1.0", "salt": SALT, "accounts": {HASH: 1}},
        {"made_by": "lightgc2n 0.1.0", "salt": SALT, "accounts": ["g" * 64]},
        {"made_by": "lightgc2n 0.1.0", "salt": SALT, "accounts": [["a"] * 64]},
    ],
)
def test_an_odd_tombstone_file_is_neither_read_nor_replaced(content: Any, town: Path, tmp_path: Path) -> None:
    graves, log = tmp_path / "graves.json", tmp_path / "log.csv"
    graves.write_text(json.dumps(content))
    log.write_text("user,item\nu1,i1\nu2,i2\n")
    before = graves.read_bytes()
    refused(run("forget", "h000007", "--data", town, "--tombstones", graves), "graves.json: not a tombstone file")
    refused(run("import", log, "--out", tmp_path / "new", "--tombstones", graves), "graves.json: not a tombstone file")
    assert graves.read_bytes() == before
    assert "h000007" in load_dataset(town).accounts


def test_tombstones_are_not_read_from_a_pipe(town: Path, tmp_path: Path) -> None:
    """Nobody writes to the pipe, so reading it would never end."""
    os.mkfifo(tmp_path / "pipe")
    refused(run("forget", "h000007", "--data", town, "--tombstones", tmp_path / "pipe"), "pipe is not a regular file")
    assert "h000007" in load_dataset(town).accounts


def test_a_root_folder_is_refused(town: Path) -> None:
    refused(run("compare", town, "--models", "recency", "--out", "/", "--force"), "/ was not made by this command")


def test_quick_experiments_write_nothing_into_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    refused(run("experiment", "all", "--quick", "--out", tmp_path), "is no folder of experiments")
    assert content(tmp_path) == {"thesis.txt": b"years of work"}


def test_an_id_that_is_no_text_is_not_there(town: Path, tmp_path: Path) -> None:
    refused(
        run("forget", os.fsdecode(b"\xff\xfe"), "--data", town, "--tombstones", tmp_path / "graves.json"), "no account"
    )


def test_a_search_leaves_a_tuning_json_of_somebody_else_alone(town: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    for text in ("not JSON", "[]", '{"made_by": "me"}'):
        out.mkdir(exist_ok=True)
        (out / "tuning.json").write_text(text)
        refused(
            run("tune", town, "--model", "lightgc2n-wo-a", "--out", out), "tuning.json: not the description of a search"
        )
        assert content(out) == {"tuning.json": text.encode()}


def test_import_does_not_replace_the_log_that_it_reads(tmp_path: Path) -> None:
    """Rows that were set aside are mended where they lie, and imported from there."""
    (tmp_path / "log.csv").write_text("account_id,item_id\na,1\na,2\nb,1\nb,\n")
    assert run("import", tmp_path / "log.csv", "--out", tmp_path / "shop", "--skip-bad").returncode == 0
    (tmp_path / "shop" / "rejected.tsv").write_text("account_id\titem_id\nb\t2\n")
    before = content(tmp_path)
    (tmp_path / "link").symlink_to("shop/rejected.tsv")
    for source in ("shop/rejected.tsv", "link"):
        done = run("import", tmp_path / source, "--out", tmp_path / "shop", "--force")
        refused(done, f"{tmp_path / 'shop'} would replace {tmp_path / source}, which is read. Choose another --out.")
    (tmp_path / "link").unlink()
    assert content(tmp_path) == before


def test_simulate_does_not_replace_the_users_that_it_merges(tmp_path: Path) -> None:
    rows = [f"u{user},i{event % 7},{1_700_000_000 + 60 * event + user}" for user in range(6) for event in range(12)]
    (tmp_path / "log.csv").write_text("\n".join(["account_id,item_id,timestamp", *rows]) + "\n")
    assert run("import", tmp_path / "log.csv", "--out", tmp_path / "users").returncode == 0
    before = content(tmp_path)
    done = run("simulate", tmp_path / "users", "--out", tmp_path / "users", "--force")
    refused(done, "which is read. Choose another --out.")
    assert content(tmp_path) == before


def test_titles_do_not_replace_the_log(tmp_path: Path) -> None:
    words = ("generate", "--accounts", "50", "--out", tmp_path / "log.csv", "--titles", tmp_path / "log.csv")
    refused(run(*words, "--force"), "the same file as --out")
    assert not (tmp_path / "log.csv").exists()
