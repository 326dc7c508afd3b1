"""`make demo` and `make clean` leave alone what a user put into demo/ or .venv."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of the project that these commands need, in a folder of their own."""
    for name in ("Makefile", "scripts", "lightgc2n/__init__.py", "lightgc2n/errors.py", "lightgc2n/data/__init__.py",
                 "lightgc2n/files"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tmp_path / name)
    return tmp_path


def call(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False, timeout=120)


def test_a_demo_folder_of_the_user_is_left_alone(checkout: Path) -> None:
    (checkout / "demo").mkdir()
    (checkout / "demo" / "thesis.txt").write_text("years of work")
    done = call(checkout, "scripts/demo", "--claim")
    assert (done.returncode, "Move them elsewhere" in done.stderr) == (2, True)
    assert call(checkout, "make", "clean").returncode == 0
    assert (checkout / "demo" / "thesis.txt").read_text() == "years of work"


def test_clean_removes_what_make_made_and_nothing_else(checkout: Path) -> None:
    assert call(checkout, "scripts/demo", "--claim").returncode == 0
    made = [
        "households.csv",
        "households/manifest.json",
        "compare/runs/lightgc2n/run.json",
        "bundle/server/accounts.txt",
    ]
    mine = ["notes.txt", "bundle/notes.txt", "compare/runs/lightgc2n/.git/HEAD"]
    for name in (*made, *mine):
        (checkout / "demo" / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / "demo" / name).touch()
    (checkout / ".venv" / "bin").mkdir(parents=True)  # an environment that the user made
    assert call(checkout, "make", "clean").returncode == 0
    left = {path.relative_to(checkout / "demo").as_posix() for path in (checkout / "demo").rglob("*") if path.is_file()}
    assert left == set(mine)
    assert (checkout / ".venv").is_dir()


def test_clean_removes_an_environment_that_make_made(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".made-by-make").touch()
    assert call(checkout, "make", "clean").returncode == 0
    assert not (checkout / ".venv").exists()
    assert not (checkout / "demo").exists()
