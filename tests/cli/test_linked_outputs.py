"""Folders that commands fill over time: links in them are not followed, and folders of a user are not taken."""

import shutil
from pathlib import Path

import pytest

from tests.cli.test_commands import run
from tests.cli.test_foreign_files import content, refused
from tests.export.town import data

FAILING_PLAN = 'data = "{data}"\nmodel = "recency"\n[split]\nprotocol = "windows"\n'
MINE = "what I did today\n"


@pytest.fixture
def town(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data-recency-seed0.txt").write_text(MINE)
    (tmp_path / "mine.txt").write_text(MINE)
    place = Path(shutil.copytree(data(), tmp_path / "data"))
    (tmp_path / "plan.toml").write_text(FAILING_PLAN.format(data=place))
    return place


@pytest.mark.parametrize("link", ["logs", "logs/data-recency-seed0.txt"])
def test_a_plan_does_not_follow_a_link_in_place_of_its_logs(link: str, town: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    assert run("train", "--plan", tmp_path / "plan.toml", "--out", out).returncode == 1  # the run fails
    mine = tmp_path / "mine" if link == "logs" else tmp_path / "mine.txt"
    shutil.rmtree(out / link) if link == "logs" else (out / link).unlink()
    (out / link).symlink_to(mine)
    before = content(tmp_path)
    refused(run("train", "--plan", tmp_path / "plan.toml", "--out", out), f"{link}: expected a regular file")
    assert content(tmp_path) == before


def test_a_plan_leaves_a_folder_alone_that_holds_logs_of_somebody_else(town: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "mine").rename(tmp_path / "project" / "logs")
    before = content(tmp_path)
    refused(
        run("train", "--plan", tmp_path / "plan.toml", "--out", tmp_path / "project"),
        "project holds logs and is no folder of runs of a plan",
    )
    assert content(tmp_path) == before


def test_experiments_leave_a_folder_alone_that_holds_data_of_somebody_else(town: Path, tmp_path: Path) -> None:
    (tmp_path / "study" / "data").mkdir(parents=True)
    (tmp_path / "study" / "data" / "thesis.txt").write_text(MINE)
    before = content(tmp_path)
    refused(
        run("experiment", "statistics", "--quick", "--out", tmp_path / "study"), "study holds data and is no folder"
    )
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["trials.csv", "best.toml"])
def test_a_search_does_not_follow_a_link(name: str, town: Path, tmp_path: Path) -> None:
    words = ("tune", town, "--model", "lightgc2n", "--trials", "1", "--epochs", "1", "--out", tmp_path / "search")
    assert run(*words).returncode == 0
    (tmp_path / "search" / name).unlink()
    (tmp_path / "search" / name).symlink_to(tmp_path / "mine.txt")
    refused(run(*words), f"{name}: expected a regular file, found a link")
    assert (tmp_path / "mine.txt").read_text() == MINE


@pytest.mark.parametrize("name", ["report.html", "tables"])
def test_a_report_does_not_follow_a_link(name: str, town: Path, tmp_path: Path) -> None:
    out = tmp_path / "paper"
    done = run("experiment", "statistics", "--data", town, "--out", out)
    assert done.returncode == 0, done.stderr
    (out / name).unlink() if name != "tables" else shutil.rmtree(out / name)
    (out / name).symlink_to(tmp_path / ("mine" if name == "tables" else "mine.txt"))
    before = content(tmp_path)
    refused(run("report", out), f"{name}: expected a regular file, found a link")
    assert content(tmp_path) == before
