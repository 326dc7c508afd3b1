"""The commit of a run is that of this project's checkout, and of nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lightgc2n

PACKAGE = Path(lightgc2n.__file__).parent
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(folder: Path, *tracked: str) -> str:
    """Makes a repository with these files in it, and tells its commit."""
    git(folder, "init", "-q")
    git(folder, "add", "--", *tracked)
    git(folder, "commit", "-q", "-m", "first")
    return git(folder, "rev-parse", "HEAD")


def commit_told_in(parent: Path, **environment: str) -> str:
    """What the package that stands in `parent` says, in a process of its own."""
    code = "from lightgc2n.training.runs import source_commit; print(source_commit())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=parent, check=True, capture_output=True, text=True,
        env={"PYTHONPATH": str(parent), "PATH": "/usr/bin:/bin"} | environment,
    ).stdout.strip()  # fmt: skip


def copied_to(parent: Path) -> Path:
    shutil.copytree(PACKAGE, parent / "lightgc2n", ignore=shutil.ignore_patterns("__pycache__", "ort"))
    return parent


def test_a_repository_around_the_environment(tmp_path: Path) -> None:
    """Somebody's project that has the package in its site-packages, ignored or even tracked, is not this project."""
    site = tmp_path / "venv" / "lib" / "site-packages"
    site.mkdir(parents=True)
    copied_to(site)
    (tmp_path / "thesis.txt").write_text("mine")
    repository(tmp_path, "thesis.txt")
    assert commit_told_in(site) == "None"
    git(tmp_path, "add", "--", "venv")
    git(tmp_path, "commit", "-q", "-m", "everything")
    assert commit_told_in(site) == "None"


def test_a_checkout_of_this_project(tmp_path: Path) -> None:
    copied_to(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    repository(tmp_path, "notes.txt")
    assert commit_told_in(tmp_path) == "None"  # the package lies there and is not tracked
    git(tmp_path, "add", "--", "lightgc2n")
    git(tmp_path, "commit", "-q", "-m", "the package")
    assert commit_told_in(tmp_path) == git(tmp_path, "rev-parse", "HEAD")


def test_changes_that_are_not_committed(tmp_path: Path) -> None:
    """A copy of a working tree beside an older repository is not that repository's commit."""
    copied_to(tmp_path)
    commit = repository(tmp_path, "lightgc2n")
    with (tmp_path / "lightgc2n" / "zoo.py").open("a") as file:
        file.write("# newer\n")
    assert commit_told_in(tmp_path) == f"{commit}-dirty"


def test_a_copy_without_a_repository_gets_the_commit_of_its_source(tmp_path: Path) -> None:
    assert commit_told_in(copied_to(tmp_path), LIGHTGC2N_COMMIT="c58179d") == "c58179d"
